"""Runs the programs of docs/site/tasks/failed-pages.md on a dataset with failed, rejected and short pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_in_process import run_command
from page_blocks import codes

import weblake

if TYPE_CHECKING:
    from weblake.testing import WeblakeService, WeblakeSite

TEXT = (Path(__file__).parents[2] / "docs/site/tasks/failed-pages.md").read_text()
LIST, BY_REASON, AGAIN, STRICT, SHORT = codes(TEXT, "python")


@pytest.fixture
def urls(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """A page, a page that fails with SCRAPE_SITE_ERROR, one of no host, and a URL that is rejected."""
    monkeypatch.chdir(tmp_path)
    for name, value in weblake_service.environment().items():
        monkeypatch.setenv(name, value)
    return [weblake_site.urls()[0], "http://127.0.0.1:1/closed", "http://no-such-host.invalid/", "ftp://a.test/x"]


def run(code: str) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(code, "failed-pages.md", "exec"), names)
    return names


def test_the_programs_show_the_failures_and_repeat_the_chosen_ones(
    urls: list[str], weblake_site: WeblakeSite, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = weblake.land_batch(urls, to="lake")
    assert (receipt.stored, receipt.failed, receipt.rejected) == (1, 2, 1)
    run(LIST)
    shown = capsys.readouterr().out
    assert all(url in shown for url in urls[1:])
    code, out, err = run_command(["errors", "batch", str(receipt.job_id), "--json"], {})
    assert code == 0, err
    assert urls[1] in out
    assert "SCRAPE_DNS_RESOLUTION_ERROR" in shown
    run(BY_REASON)
    assert "rejected" in capsys.readouterr().out
    with pytest.raises(weblake.errors.WeblakeError):  # no page of the list could be stored this time either
        run(AGAIN)
    assert weblake.read("lake", "page_errors").to_table()["url"].to_pylist().count(urls[1]) == 2
    assert weblake.read("lake", "page_errors").to_table()["url"].to_pylist().count(urls[2]) == 1
    run(SHORT)


def test_refresh_after_never_sends_only_what_is_not_there(urls: list[str], weblake_service: WeblakeService) -> None:
    Path("urls.txt").write_text("\n".join(urls[:2]))
    commands = re.findall(r"^weblake batch .*$", TEXT, re.MULTILINE)
    assert len(commands) == 2
    first, second = [run_command(command.split()[1:], {}) for command in commands]
    assert first[0] == 0, first
    assert second[0] == 1, second  # the page that fails has failed again; the other one was not sent
    assert weblake_service.counts()["pages_billed"] == 1


def test_a_load_over_its_tolerance_is_published_without_payment(
    urls: list[str], weblake_service: WeblakeService, capsys: pytest.CaptureFixture[str]
) -> None:
    run(STRICT.replace("https://example.org/gone", urls[1]).replace("https://example.org/", urls[0]))
    assert capsys.readouterr().out
    assert weblake.read("lake").count_rows() == weblake_service.counts()["pages_billed"] == 1
