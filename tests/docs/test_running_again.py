"""The commands of the page "Run it again", each with the rows and the credits in the comment below it."""

from __future__ import annotations

import ast
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from command_in_process import run_command
from page_blocks import blocks

import weblake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weblake.testing import WeblakeService, WeblakeSite

PAGE = Path(__file__).parents[2] / "docs" / "site" / "explanation" / "running-again.md"
BLOCKS = [(block.language, block.code) for block in blocks(PAGE.read_text())]
TOTALS = re.compile(r"# (\d+) rows(?:, (\d+) credits)?")


def steps(language: str, code: str, environment: dict[str, str]) -> Iterator[tuple[str, re.Match[str] | None]]:
    """Run a block step by step; yield each step after it was run, with the totals in the line below it."""
    lines = [*code.splitlines(), ""]
    if language == "sh":
        for number, line in enumerate(lines):
            if line.startswith("weblake "):
                assert run_command(shlex.split(line)[1:], environment)[0] == 0, line
                yield line, TOTALS.match(lines[number + 1])
        return
    names: dict[str, object] = {}
    for statement in ast.parse(code).body:
        with mock.patch.dict(os.environ, environment):
            exec(compile(ast.Module([statement], []), str(PAGE), "exec"), names)
        yield lines[statement.lineno - 1], TOTALS.match(lines[statement.end_lineno or 0])


@pytest.mark.parametrize(("language", "code"), BLOCKS, ids=[f"{n}-{block[0]}" for n, block in enumerate(BLOCKS)])
def test_each_command_stores_and_costs_what_the_page_says(
    language: str,
    code: str,
    weblake_service: WeblakeService,
    weblake_site: WeblakeSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    urls = weblake_site.urls()[:3]
    Path("urls.txt").write_text("\n".join(urls))
    Path("two.txt").write_text("\n".join(urls[:2]))
    checked = 0
    for step, totals in steps(language, code, weblake_service.environment()):
        if totals is not None:
            rows, credits = totals.groups()
            files = list(Path("lake/documents").glob("*=*/*.parquet"))
            assert (weblake.read("lake").count_rows() if files else 0) == int(rows), step
            assert credits is None or weblake_service.counts()["pages_billed"] == int(credits), step
            checked += 1
    assert checked == len(TOTALS.findall(code)) >= 2


def test_a_new_load_brings_the_cached_page_unless_max_age_is_0(
    weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path
) -> None:
    """The warning of the page: a copy of up to two days, for the full price."""
    url, client, digests = weblake_site.urls()[0], weblake_service.client(), set()
    for change, options in (("", {}), ("/", {}), ("", {"max_age": 0})):
        if change:
            weblake_site.change(change)
        receipt = weblake.land_batch([url], to=tmp_path, client=client, new=True, **options)  # type: ignore[arg-type]
        digests.add(*weblake.read(tmp_path, loads=[receipt.load_id]).to_table()["content_sha256"].to_pylist())
        assert len(digests) == (2 if options else 1)
    assert weblake_service.counts()["pages_billed"] == 3
