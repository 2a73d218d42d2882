"""Which texts the API key is removed from."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from weblake.credentials import SHORTEST_PREFIX, ApiKey

KEY = "test+key/0123456789="
IN_URL = quote(KEY, safe="")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{KEY} and <{KEY}>", "*** and <***>"),
        (f"?key={IN_URL}&x", "?key=***&x"),
        (f"{KEY[:-1]}…", "***…"),
        (f"{IN_URL[:-2]}…", "***…"),
        (f"{KEY[:SHORTEST_PREFIX]}…", "***…"),
        (f"{KEY[: SHORTEST_PREFIX - 1]}…", "test+ke…"),
    ],
    ids=["whole", "in a URL", "truncated", "truncated in a URL", "shortest prefix", "too short"],
)
def test_the_key_is_removed_in_each_form(text: str, shown: str) -> None:
    assert ApiKey(KEY).redact(text) == shown


def test_a_key_that_is_shorter_than_a_prefix_is_removed_whole() -> None:
    assert ApiKey("short").redact("short, shor") == "***, shor"
