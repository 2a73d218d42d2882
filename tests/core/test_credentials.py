"""Which texts the API key is removed from, and what the objects that hold it show."""

from __future__ import annotations

import pickle
from collections.abc import Callable
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


@pytest.mark.parametrize(
    "form",
    [ApiKey.header, lambda key: key.header()[7:], lambda key: bytes(key.header()), lambda key: key.header().decode()],
    ids=["bytes", "slice", "copy", "text"],
)
def test_no_form_of_the_header_shows_the_key(form: Callable[[ApiKey], bytes | str]) -> None:
    """HTTP libraries make them, and keep them in locals, which some tracebacks show."""
    found = form(ApiKey(KEY))
    assert found in (f"Bearer {KEY}", f"Bearer {KEY}".encode(), KEY.encode())
    assert "***" in repr(found)
    assert KEY not in repr(found)


def test_the_key_is_neither_shown_nor_pickled() -> None:
    key = ApiKey(KEY)
    assert KEY not in f"{key} {key!r} {key.header()!s}"
    for each in (key, key.header()):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(each)
