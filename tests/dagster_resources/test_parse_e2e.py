"""Tests of ParseRequest: the landed files, their metadata, and what was paid."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
from in_process import Bench

from dagster_weblake import ParseRequest, build_weblake_assets

pytestmark = pytest.mark.system

DOCUMENTS = Path(__file__).parents[1] / "service" / "documents"
FILES = dg.StaticPartitionsDefinition(["tides.docx", "tides.pdf", "gauges.xls"])


def rows(bench: Bench, what: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select {what} from '{bench.root}/documents/**/*.parquet' order by url").fetchall()


def credits_of(bench: Bench) -> float:
    with bench.service.client() as client:
        (period,) = client.historical_credit_usage().periods
    return period.total_credits or 0


def test_one_file_a_partition_lands_with_its_cost(bench: Bench) -> None:
    request = ParseRequest(file=f"{DOCUMENTS}/{{partition_key}}", options={"formats": ["markdown", "links"]})
    asset = build_weblake_assets("files", request, partitions_def=FILES, backfill_policy=dg.BackfillPolicy.single_run())
    run = bench.run(asset, partitions=("tides.docx", "gauges.xls"))
    assert run.success
    assert [url for (url,) in rows(bench, "url")] == ["file:///gauges.xls", "file:///tides.docx", "file:///tides.pdf"]
    assert run.metadata("files", "tides.pdf")["weblake/credits_used"] == 2.0
    assert run.metadata("files", "tides.docx")["weblake/stored"] == 1
    assert (bench.started, credits_of(bench)) == (3, 4)


def test_a_partition_that_is_materialised_again_is_replaced(bench: Bench) -> None:
    request = ParseRequest(file=f"{DOCUMENTS}/{{partition_key}}")
    asset = build_weblake_assets("files", request, partitions_def=FILES)
    for partition in ("tides.pdf", "tides.docx", "tides.pdf"):
        assert bench.run(asset, partition=partition).success
    assert bench.rows() == 2
    assert (bench.started, credits_of(bench)) == (3, 5)


@pytest.mark.parametrize("effect", [{"drop_after": True}, {"garbage": True}], ids=str)
def test_a_lost_response_is_repeated_and_paid_once(bench: Bench, effect: Mapping[str, object]) -> None:
    bench.service.faults({"match": {"method": "POST", "path": "/v2/parse$"}, "times": 1, "effect": effect})
    asset = build_weblake_assets(
        "tides", ParseRequest(file=str(DOCUMENTS / "tides.pdf")), retry_policy=dg.RetryPolicy(max_retries=2)
    )
    assert bench.run(asset).success
    assert (bench.rows(), bench.started, credits_of(bench)) == (1, 1, 2)


def test_an_unusable_file_is_reported_and_not_retried(bench: Bench) -> None:
    asset = build_weblake_assets(
        "locked", ParseRequest(file=str(DOCUMENTS / "encrypted.pdf")), retry_policy=dg.RetryPolicy(max_retries=3)
    )
    run = bench.run(asset)
    assert not run.success
    assert "protected with a password" in str(run.failure().description)
    assert run.retries() == []
    assert (bench.rows(), bench.started) == (0, 1)
