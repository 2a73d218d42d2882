"""The page "What complete means": what the command line says of a crawl that stopped at its limit, and of a 404."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from command_in_process import run_command
from page_blocks import codes

import weblake

if TYPE_CHECKING:
    from weblake.testing import WeblakeService, WeblakeSite

PAGE = (Path(__file__).parents[2] / "docs" / "site" / "explanation" / "complete.md").read_text()


@pytest.mark.parametrize(("limit", "lines"), [(3, True), (100, False)])
def test_the_command_line_says_that_a_crawl_stopped_at_its_limit(
    limit: int, lines: bool, weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path
) -> None:
    shown = codes(PAGE, "text")[0].split()
    command = ["crawl", weblake_site.url, "--limit", str(limit), "--to", str(tmp_path)]
    code, out, err = run_command(command, weblake_service.environment())
    assert code == 0, err
    assert ("limit reached" in out) == lines
    assert (" ".join(shown) in " ".join(out.split())) == lines


def test_a_page_that_answers_404_is_a_row_and_the_load_is_complete(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path
) -> None:
    urls = [weblake_site.urls()[0], f"{weblake_site.url}/no-such-page", "ftp://a.test/x"]
    receipt = weblake.land_batch(urls, to=tmp_path, client=weblake_service.client())
    assert (receipt.complete, receipt.stored, receipt.rejected) == (True, 2, 1)
    assert weblake.read(tmp_path).to_table()["status_code"].to_pylist() == [200, 404]
    assert weblake.read(tmp_path, "page_errors").to_table()["outcome"].to_pylist() == ["rejected"]
    assert weblake.read(tmp_path).latest().count_rows() == 1
