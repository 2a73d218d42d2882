"""The key stays home: every byte that a run of the command line prints or writes is searched for it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

#: As in conftest.py; the first test asserts that it is the key in use.
CANARY = "canary-of-the-system-tests"


def forms() -> list[bytes]:
    """The key as it could stand somewhere: plain, UTF-16, percent-encoded, and base64 at each of three offsets."""
    found = [CANARY.encode(), CANARY.encode("utf-16-le"), quote(CANARY, safe="").encode()]
    found.append("".join(f"%{byte:02X}" for byte in CANARY.encode()).encode())
    for offset in range(3):
        encoded = base64.b64encode(b"x" * offset + CANARY.encode())
        found.append(encoded[4 if offset else 0 : -4])
    return found


def holding(tree: Path) -> list[Path]:
    return [path for path in tree.rglob("*") if path.is_file() and any(form in path.read_bytes() for form in forms())]


def test_no_byte_of_a_run_holds_the_key(weblake_command: Any, service: Any, site: str, tmp_path: Path) -> None:
    assert service.key == CANARY
    lake = tmp_path / "lake"
    urls = [f"{site}/1", f"{site}/2", "http://127.0.0.1:9/"]
    commands = [
        ("batch", *urls, "--to", str(lake), "--json"),
        ("batch", *urls, "--to", str(lake)),
        ("crawl", f"{site}/", "--limit", "4", "--to", str(lake)),
        ("scrape", f"{site}/3", "--to", str(lake), "--json"),
        ("scrape", f"{site}/3"),
        ("usage", "credits", "--by-api-key", "--to", str(lake)),
        ("usage", "tokens", "--json"),
        ("activity", "--to", str(lake)),
        ("loads", str(lake), "--json"),
        ("map", f"{site}/"),
        ("crawls",),
        ("browser", "create"),
        ("land", "batch", "11111111-2222-4333-8444-555555555555", "--to", str(lake), "--timeout", "5"),
    ]
    for command in commands:
        run = weblake_command(*command)
        assert run.code in (0, 1), run.err
    for run in weblake_command.ran:
        for form in forms():
            assert form not in run.out.encode(), run.out
            assert form not in run.err.encode(), run.err
    assert any(lake.rglob("*.parquet"))
    assert holding(tmp_path) == []  # the lake, its ledger, and the service's own database


def test_a_key_that_is_refused_is_not_shown_either(weblake_command: Any, site: str, tmp_path: Path) -> None:
    weblake_command.env["WEBLAKE_API_KEY"] = CANARY + "-wrong"
    run = weblake_command("batch", f"{site}/1", "--to", str(tmp_path / "lake"), "--json")
    assert run.code == 1
    assert run.json["error"]["type"] == "AuthenticationFailed"
    assert "WEBLAKE_API_KEY" in run.json["error"]["hint"]
    assert CANARY not in run.out + run.err


@pytest.mark.parametrize("form", range(len(forms())))
def test_the_search_finds_a_planted_key(form: int, tmp_path: Path) -> None:
    planted = tmp_path / "log.txt"
    planted.write_bytes(b"something " + forms()[form] + b" something")
    assert holding(tmp_path) == [planted]
