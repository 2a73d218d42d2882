"""Tests of the operator that syncs the tables of a dataset, run by Airflow itself with `dag.test()`."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from dag_runs import Run, returned, run_one, task_logs
from gated_site import GatedSite
from test_airflow_storage import connected as connected  # the fixture
from test_report_operators import events

import weblake
from weblake import tables
from weblake.testing import WeblakeService


def land(service: WeblakeService, site: GatedSite, root: Any, number: int) -> str:
    with service.client() as client:
        return weblake.land_batch([f"{site.url}/page/{number}"], to=root, client=client).load_id


def test_landed_loads_are_committed_and_the_asset_is_updated(
    run_dag: Run, weblake_service: WeblakeService, site: GatedSite, tmp_path: Path
) -> None:
    from airflow_provider_weblake.assets.weblake import weblake_asset
    from airflow_provider_weblake.operators.weblake import WeblakeTableSyncOperator

    root = tmp_path / "lake"
    first = land(weblake_service, site, root, 1)
    tables.add(root, "delta")
    asset = weblake_asset(root, name=f"table-{uuid.uuid4().hex}")

    def make() -> Any:
        return WeblakeTableSyncOperator(
            task_id="sync", to="{{ params.root }}", params={"root": str(root)}, outlets=[asset]
        )

    run = run_one(run_dag, make)
    assert run.state == "success"
    (told,) = returned(run, "sync")["tables"]
    assert (told["format"], told["added"], told["removed"], told["rows"]) == ("delta", 1, 0, 1)
    assert told["load_ids"] == [first]
    assert events(run)[asset.uri]["tables"][0]["version"] == told["version"]
    assert tables.status(root)[0].in_step


@pytest.mark.system
def test_the_sync_reaches_a_bucket_through_the_connection_of_the_root(
    run_dag: Run,
    weblake_service: WeblakeService,
    site: GatedSite,
    connected: str,
    s3_endpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeTableSyncOperator
    from airflow_provider_weblake.storage import root_path
    from airflow_provider_weblake.table_sync import catalog_settings, storage_settings

    root = root_path(connected)
    load_id = land(weblake_service, site, root, 1)
    extra = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    connection = {"conn_type": "iceberg", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_CATALOG", json.dumps(connection))
    options = {**storage_settings(root), **catalog_settings("catalog")}
    tables.add(root, "delta", table_options=options)
    tables.add(root, "iceberg", catalog="lake", identifier="web.documents", table_options=options)

    def make() -> Any:
        return WeblakeTableSyncOperator(task_id="sync", to=connected, catalog_conn_id="catalog")

    run = run_one(run_dag, make)
    assert run.state == "success"
    told = returned(run, "sync")["tables"]
    assert [(each["format"], each["added"], each["load_ids"]) for each in told] == [
        ("delta", 1, [load_id]),
        ("iceberg", 1, [load_id]),
    ]


def test_a_dataset_without_tables_is_an_error_with_a_remedy(
    run_dag: Run, weblake_service: WeblakeService, site: GatedSite, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeTableSyncOperator

    land(weblake_service, site, tmp_path / "lake", 1)
    for wrong in ({}, {"catalog_conn_id": "nowhere"}):
        run = run_one(
            run_dag, lambda wrong=wrong: WeblakeTableSyncOperator(task_id="s", to=str(tmp_path / "lake"), **wrong)
        )
        assert run.state == "failed"
    text = task_logs(capfd)
    assert "has no Delta Lake or Iceberg table. Add one with weblake.tables.add." in text
    assert "There is no Airflow connection 'nowhere'" in text
