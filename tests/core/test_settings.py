"""Tests of the sources of base URL and API key: arguments first, then the environment."""

from __future__ import annotations

import pytest

from weblake import credentials
from weblake.credentials import ApiKey
from weblake.errors import AskPerson, InvalidOption


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (credentials.BASE_URL, credentials.API_KEY, credentials.INSECURE):
        monkeypatch.delenv(name, raising=False)


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(credentials.BASE_URL, " https://one.test/a/ ")
    monkeypatch.setenv(credentials.API_KEY, " key-of-the-environment\n")
    found = credentials.find()
    assert found is not None
    assert (str(found.base_url), found.api_key.header()) == ("https://one.test/a", b"Bearer key-of-the-environment")
    found = credentials.find("https://two.test", ApiKey("given-key"))
    assert found is not None
    assert (str(found.base_url), found.api_key.header()) == ("https://two.test", b"Bearer given-key")


@pytest.mark.parametrize("url", ["", "  "])
def test_without_a_base_url_the_embedded_service_is_used(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv(credentials.BASE_URL, url)
    assert credentials.find(api_key=ApiKey("given-key")) is None


def test_a_base_url_needs_a_key_that_a_header_can_carry() -> None:
    with pytest.raises(AskPerson, match=r"There is a base URL \(https://one\.test\) and no API key"):
        credentials.find("https://one.test")
    with pytest.raises(InvalidOption):
        credentials.find("https://one.test", ApiKey("a key\nX-Other: 1"))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("1", True),
        ("true", True),
        (" Yes ", True),
        ("ON", True),
        ("0", False),
        ("", False),
        ("no", False),
        ("2", False),
    ],
)
def test_plain_http_beyond_loopback_is_allowed_by_four_values(
    monkeypatch: pytest.MonkeyPatch, text: str, allowed: bool
) -> None:
    url, key = "http://one.test", ApiKey("given-key")
    monkeypatch.setenv(credentials.INSECURE, text)
    if allowed:
        assert credentials.find(url, key) is not None
    else:
        with pytest.raises(InvalidOption):
            credentials.find(url, key)
    assert credentials.find(url, key, insecure=True) is not None
    with pytest.raises(InvalidOption):
        credentials.find(url, key, insecure=False)
