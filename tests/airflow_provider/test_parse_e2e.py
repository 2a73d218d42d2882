"""Tests of WeblakeParseOperator: the landed files, and what was paid, also after failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
from dag_runs import Run, returned, run_one

from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

DOCUMENTS = Path(__file__).parents[1] / "service" / "documents"


def rows(lake: Path, what: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select {what} from '{lake}/documents/**/*.parquet' order by url").fetchall()


def paid(service: WeblakeService) -> tuple[int, float]:
    """Files that were parsed, and the credits that they cost."""
    with service.client() as client:
        (period,) = client.historical_credit_usage().periods
    return service.counts().get("parse_started", 0), period.total_credits or 0


def test_mapped_files_land_each_as_a_load(run_dag: Run, weblake_connection: WeblakeService, tmp_path: Path) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeParseOperator

    names = ["gauges.xlsx", "tides.docx", "tides.pdf"]
    lake = tmp_path / "lake"

    def make() -> object:
        return WeblakeParseOperator.partial(
            task_id="land", to=str(lake), partition={"day": "2026-11-21"}, options={"formats": ["markdown", "links"]}
        ).expand(file=[str(DOCUMENTS / name) for name in names])

    run = run_one(run_dag, make)
    assert run.state == "success"
    receipts = [returned(run, "land", map_index=at) for at in range(3)]
    assert [(one["kind"], one["stored"], one["credits_used"]) for one in receipts] == [
        ("parse", 1, 1.0),
        ("parse", 1, 1.0),
        ("parse", 1, 2.0),
    ]
    found = rows(lake, "url, status_code, markdown like '%spring tide%', links, day::varchar, job_id")
    almanac = ["https://example.com/almanac?year=2026"]
    assert [row[:5] for row in found] == [
        ("file:///gauges.xlsx", 200, False, [], "2026-11-21"),
        ("file:///tides.docx", 200, True, almanac, "2026-11-21"),
        ("file:///tides.pdf", 200, True, almanac, "2026-11-21"),
    ]
    assert [row[5] for row in found] == [one["job_id"] for one in receipts]
    assert paid(weblake_connection) == (3, 4)
