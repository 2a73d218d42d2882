"""No hint that reaches the author of an asset speaks of the command line: the core's texts are read from its source."""

from __future__ import annotations

import pytest
from hint_texts import HINTS, OF_THE_COMMAND_LINE, ONLY_ON_THE_COMMAND_LINE

from dagster_weblake.wording import in_words_of_dagster


@pytest.mark.parametrize(("room", "hint"), HINTS, ids=[f"{room}:{text[:40]}" for room, text in HINTS])
def test_a_hint_speaks_of_assets_and_the_resource(room: str, hint: str) -> None:
    left = set(OF_THE_COMMAND_LINE.findall(in_words_of_dagster(hint)))
    assert left <= ONLY_ON_THE_COMMAND_LINE


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Run the same command again later; nothing is paid twice.", "Re-execute the run from failure later; nothing"),
        ("If it is known, `weblake land` it; else start afresh with --new.", "land it with an asset of a JobRequest;"),
        ("land what the service has of job 7 with `weblake land`.", "of job 7 with an asset of a JobRequest."),
        ("--new starts another one.", "a new run starts another one."),
        ("Raise --max-credits, or ask for fewer pages.", "Raise max_credits, or ask"),
        ("Check WEBLAKE_API_KEY.", "Check the resource's api_key."),
    ],
)
def test_what_is_said_instead_can_be_followed(hint: str, said: str) -> None:
    assert said in in_words_of_dagster(hint)
