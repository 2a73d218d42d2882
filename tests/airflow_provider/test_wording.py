"""No hint that reaches a DAG's author speaks of the command line: every text of the core is read from its source."""

from __future__ import annotations

import pytest
from hint_texts import HINTS, OF_THE_COMMAND_LINE, ONLY_ON_THE_COMMAND_LINE

from airflow_provider_weblake.wording import in_words_of_a_dag


def test_there_are_hints_to_look_at() -> None:
    assert len(HINTS) >= 20
    said = " ".join(text for _, text in HINTS)
    for flag in ("--new", "--allow-partial", "--timeout", "--max-credits", "`weblake land`", "WEBLAKE_API_KEY"):
        assert flag in said


@pytest.mark.parametrize(("room", "hint"), HINTS, ids=[f"{room}:{text[:40]}" for room, text in HINTS])
def test_a_hint_speaks_of_parameters_and_the_connection(room: str, hint: str) -> None:
    left = set(OF_THE_COMMAND_LINE.findall(in_words_of_a_dag(hint)))
    assert left <= ONLY_ON_THE_COMMAND_LINE


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("Run the same command again later; nothing is paid twice.", "Retry or clear the task later; nothing is paid"),
        ("If it is known, `weblake land` it; else start afresh with --new.", "land it with WeblakeLandOperator; else"),
        ("Land the right one with `weblake land`, or wait.", "Land the right one with WeblakeLandOperator, or"),
        ("--new starts another one.", "clearing the task starts another one."),
        ("Raise --max-credits, or ask for fewer pages.", "Raise max_credits, or ask"),
        ("Check WEBLAKE_BASE_URL and that the service is up.", "Check the connection's host and that"),
        ("Check WEBLAKE_API_KEY.", "Check the connection's password."),
    ],
)
def test_what_is_said_instead_can_be_followed(hint: str, said: str) -> None:
    assert said in in_words_of_a_dag(hint)
