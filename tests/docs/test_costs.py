"""Runs the examples of docs/site/tasks/costs.md, and compares its prices with those that limit a load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest
from command_in_process import run_command
from page_blocks import codes

from weblake.loads import load_request

if TYPE_CHECKING:
    from weblake.testing import WeblakeService, WeblakeSite

TEXT = (Path(__file__).parents[2] / "docs/site/tasks/costs.md").read_text()


def block(language: str, start: str) -> str:
    """Return the block of this language whose text contains `start`."""
    (found,) = [code for code in codes(TEXT, language) if start in code]
    return str(found)


def test_the_commands_bound_a_crawl_and_report_the_month(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = block("sh", "--max-credits").splitlines() + block("sh", "--by-api-key --to lake").splitlines()
    for command in commands:
        arguments = command.replace("https://example.org/", weblake_site.url).split()
        code, out, err = run_command(arguments[1:], weblake_service.environment())
        assert code == 0, (out, err)
    ((_, credits),) = duckdb.sql(block("sql", "sum(total_credits)")).fetchall()
    assert credits == weblake_service.counts()["pages_billed"] > 0


def test_a_list_over_its_limit_is_not_started(
    weblake_service: WeblakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in weblake_service.environment().items():
        monkeypatch.setenv(name, value)
    exec(compile(block("python", "CreditsExhausted"), "costs.md", "exec"), {})
    assert "100" in capsys.readouterr().out
    assert "pages_billed" not in weblake_service.counts()


@pytest.mark.parametrize(
    ("row", "price"),
    [
        ("a page, in markdown", load_request.PAGE),
        ("the format `json`", load_request.JSON_EXTRACTION),
        ("`zero_data_retention`", load_request.ZERO_DATA_RETENTION),
        ("`proxy: enhanced`", load_request.PROXY_ENHANCED),
        ("`lockdown`", load_request.LOCKDOWN_HIT),
    ],
)
def test_the_prices_are_those_that_limit_a_load(row: str, price: float) -> None:
    (cell,) = re.findall(rf"^\| {re.escape(row)}[^|]*\| ([^|]*) \|$", TEXT, re.MULTILINE)
    assert re.findall(r"\d+", cell)[0] == f"{price:g}"
