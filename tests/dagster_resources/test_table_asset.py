"""Tests of the asset of a Delta Lake or Iceberg table, downstream of the loads."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from gated_site import GatedSite
from in_process import Bench

from dagster_weblake import BatchScrapeRequest, build_table_asset, build_weblake_assets
from weblake import tables
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

pytestmark = pytest.mark.system


def test_a_table_is_materialized_after_the_loads(bench: Bench, site: GatedSite) -> None:
    pages = build_weblake_assets("pages", BatchScrapeRequest(urls=[f"{site.url}/page/{n}" for n in range(2)]))
    table = build_table_asset("pages_table", deps=["pages"], table_format="delta")
    assert bench.run(pages).success
    unregistered = bench.run([table])
    assert not unregistered.success
    assert unregistered.retries() == []
    tables.add(bench.root, "delta")
    found = bench.run([table]).metadata("pages_table")
    assert found["dagster/uri"] == f"{bench.root}/delta/documents"
    assert (found["dagster/row_count"], found["weblake/loads_added"], found["weblake/table_version"]) == (2, 1, "1")
    assert (found["dagster/table_name"], found["weblake/loads_removed"]) == ("documents", 0)
    written = DeltaTable(Path(bench.root) / "delta" / "documents")
    assert written.to_pyarrow_table().num_rows == 2
    columns = [column.name for column in found["dagster/column_schema"].columns]
    assert sorted(columns) == sorted(field.name for field in written.schema().fields)
    assert {"markdown", "load_date"} < set(columns)
    again = bench.run([table]).metadata("pages_table")
    assert (again["weblake/loads_added"], again["dagster/row_count"]) == (0, 2)


@pytest.mark.parametrize("given", ["text", "variable"])
def test_a_catalog_that_returns_its_settings_shows_no_secret(
    bench: Bench, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    canary = f"canary-{secrets.token_hex(12)}"
    monkeypatch.setenv("TEST_SECRET", canary)
    received: list[str] = []

    def tells(request: LoopbackRequest) -> LoopbackResponse:
        received.append(f"{dict(request.headers)} {request.body!r}")
        error = {"message": f"no: {request.body!r} {dict(request.headers)}", "type": "Down", "code": 503}
        return LoopbackResponse(503, json.dumps({"error": error}).encode(), {"Content-Type": "application/json"})

    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    assert bench.run(build_weblake_assets("pages", BatchScrapeRequest(urls=[f"{site.url}/page/1"]))).success
    tables.add(bench.root, "iceberg", catalog="lake", identifier="web.documents", table_options=options)
    secret = canary if given == "text" else dg.EnvVar("TEST_SECRET")
    with LoopbackServer(tells) as server:
        options = {"type": "rest", "uri": server.url, "token": secret, "header.X-Api-Token": secret}
        table = build_table_asset("t", deps=["pages"], table_format="iceberg", table_options=options, retry_policy=None)
        run = bench.run([table])
    assert canary in received[0]
    assert "The Iceberg catalog 'lake' cannot be used" in str(run.failure().description)
    assert "***" in str(run.failure().description)
    assert [
        path.name
        for path in (tmp_path / "dagster").rglob("*")
        if path.is_file() and canary.encode() in path.read_bytes()
    ] == []


def test_a_table_that_is_temporarily_unreadable_is_synced_by_the_retry(bench: Bench, site: GatedSite) -> None:
    pages = build_weblake_assets("pages", BatchScrapeRequest(urls=[f"{site.url}/page/1"]))
    assert bench.run(pages).success
    tables.add(bench.root, "delta")
    log, away = Path(bench.root) / "delta" / "documents" / "_delta_log", Path(bench.root) / "away"
    log.rename(away)

    policy = dg.RetryPolicy(max_retries=1, delay=0)
    table = build_table_asset("pages_table", deps=["pages"], table_format="delta", retry_policy=policy)
    tries: list[int] = []
    real = tables.sync

    def sync(*args: Any, **kwargs: Any) -> Any:
        tries.append(1)
        if len(tries) == 2:
            away.rename(log)
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(tables, "sync", sync)
        run = bench.run([table])
    assert run.success
    assert len(tries) == 2
    assert run.metadata("pages_table")["weblake/loads_added"] == 1


def test_several_tables_have_an_asset_each(
    bench: Bench, site: GatedSite, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert bench.run(build_weblake_assets("pages", BatchScrapeRequest(urls=[f"{site.url}/page/1"]))).success
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    tables.add(bench.root, "delta")
    tables.add(bench.root, "iceberg", catalog="lake", identifier="web.documents", table_options=options)
    both = build_table_asset("both", deps=["pages"], table_options=options)
    assert not bench.run([both]).success
    assert "Give table_format and table_name" in capfd.readouterr().err
    spec = dg.AssetSpec(["lake", "documents"], group_name="lake")
    one = build_table_asset(spec, deps=["pages"], table_name="web.documents", table_options=options)
    assert one.specs_by_key[spec.key].group_name == "lake"
    assert bench.run([one]).metadata("lake/documents")["dagster/row_count"] == 1
