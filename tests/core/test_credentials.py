"""Which texts the API key is removed from, and what the objects that hold it show."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from urllib.parse import quote

import pytest

from weblake.credentials import MIN_PREFIX, ApiKey, BaseUrl, is_loopback

KEY = "test+key/0123456789="
IN_URL = quote(KEY, safe="")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{KEY} and <{KEY}>", "*** and <***>"),
        (f"?key={IN_URL}&x", "?key=***&x"),
        ("?key=" + IN_URL.replace("%2B", "%2b").replace("%3D", "%3d"), "?key=***"),
        (f"/{quote(KEY)}/", "/***/"),
        ("".join(f"%{ord(one):02X}" for one in KEY), "***"),
        (f"{KEY}{KEY}{KEY[:9]}", "*********"),
        (f"{KEY[:-1]}…", "***…"),
        (f"{IN_URL[:-2]}…", "***…"),
        (f"{KEY[:MIN_PREFIX]}…", "***…"),
        (f"{KEY[: MIN_PREFIX - 1]}…", "test+ke…"),
    ],
    ids=[
        "whole",
        "in a URL",
        "lower-case escapes",
        "slash not escaped",
        "all escaped",
        "repeated",
        "truncated",
        "truncated in a URL",
        "shortest prefix",
        "too short",
    ],
)
def test_the_key_is_removed_in_each_form(text: str, shown: str) -> None:
    assert ApiKey(KEY).redact(text) == shown


def test_a_key_that_is_shorter_than_a_prefix_is_removed_whole() -> None:
    assert ApiKey("short").redact("short, shor") == "***, shor"


def test_without_a_key_nothing_is_removed() -> None:
    assert ApiKey("").redact("a text") == "a text"


@pytest.mark.parametrize(
    "form",
    [ApiKey.header, lambda key: key.header()[7:], lambda key: bytes(key.header())],
    ids=["bytes", "slice", "copy"],
)
def test_no_form_of_the_header_shows_the_key(form: Callable[[ApiKey], bytes]) -> None:
    """HTTP libraries make them, and keep them in locals, which some tracebacks show."""
    found = form(ApiKey(KEY))
    assert found in (f"Bearer {KEY}".encode(), KEY.encode())
    assert "***" in repr(found)
    assert KEY not in repr(found)


def test_the_key_is_neither_shown_nor_pickled() -> None:
    key = ApiKey(KEY)
    assert KEY not in f"{key} {key!r} {key.header()!s}"
    for each in (key, key.header()):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(each)


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_a_loopback_host(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["notlocalhost", "localhost.example", "127.0.0.1.example", "10.0.0.1", "::", ""])
def test_any_other_host(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://Service.example:443/a/", "https://service.example/a"),
        ("https://service.example:80", "https://service.example:80"),
        ("http://127.0.0.1:80", "http://127.0.0.1"),
        ("https://[::1]:8443", "https://[::1]:8443"),
    ],
)
def test_a_base_url_names_its_port_unless_it_is_the_default(text: str, url: str) -> None:
    assert str(BaseUrl.parse(text)) == url
