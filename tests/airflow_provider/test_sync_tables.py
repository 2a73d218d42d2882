"""Tests of `sync_tables=True`: a landing task also syncs the tables of its dataset, and never fails because of one."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Asset, AssetAlias, BaseOperator
from dag_runs import Run, returned, run_one, task_logs
from test_airflow_storage import connected as connected  # the fixture
from test_report_operators import events

import weblake
from weblake import tables
from weblake.errors import AskPerson, StorageRefused
from weblake.testing import WeblakeService
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

pytestmark = pytest.mark.system

if TYPE_CHECKING:
    from gated_site import GatedSite


@pytest.fixture
def canary() -> str:
    return f"canary-{secrets.token_hex(16)}"


@pytest.fixture
def root(weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path) -> Path:
    """A dataset with a load and a Delta Lake table."""
    root = tmp_path / "lake"
    with weblake_connection.client() as client:
        weblake.land_batch(site.pages(1), to=root, client=client)
    tables.add(root, "delta")
    return root


def add_iceberg(root: Path, folder: Path) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    tables.add(root, "iceberg", catalog="lake", identifier="web.documents", table_options=options)


def connect(monkeypatch: pytest.MonkeyPatch, **fields: object) -> str:
    """Defines the Airflow connection of a catalog; returns its id."""
    name = f"catalog_{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    return name


def scraping(root: Path, site: GatedSite, **more: Any) -> Callable[[], BaseOperator]:
    from airflow_provider_weblake.operators.weblake import WeblakeScrapeOperator

    return lambda: WeblakeScrapeOperator(
        task_id="land", url=f"{site.url}/page/2", to=str(root), sync_tables=True, **more
    )


def test_a_load_is_in_the_table_when_its_task_has_succeeded(
    run_dag: Run, root: Path, site: GatedSite, weblake_connection: WeblakeService
) -> None:
    alias = AssetAlias(f"lake-{uuid.uuid4().hex}")
    table = Asset(f"file://{root}/delta/documents")
    run = run_one(run_dag, scraping(root, site, outlets=[alias, table]))
    assert run.state == "success"
    receipt = returned(run, "land")
    (synced,) = receipt["tables"]
    assert "tables_error" not in receipt
    assert (synced["format"], synced["table"], synced["identifier"]) == ("delta", "documents", None)
    assert (synced["added"], synced["removed"], synced["rows"], synced["table_rows"]) == (2, 0, 2, 2)
    assert receipt["load_id"] in synced["load_ids"]
    assert tables.status(root)[0].in_step
    told = events(run)
    assert told[table.uri]["tables"] == [synced]
    assert told[table.uri]["load_id"] == receipt["load_id"]
    assert set(told) == {table.uri, f"weblake://file{root}/documents"}
    assert len(json.dumps(receipt)) < 2048


def test_a_deferred_task_syncs_when_it_has_landed(
    run_dag: Run, root: Path, site: GatedSite, deferred_jobs: list[str]
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    urls = site.held(2)
    run = run_one(
        run_dag,
        lambda: WeblakeBatchScrapeOperator(
            task_id="land",
            urls=urls,
            to=str(root),
            options={"timeout": 240_000},
            deferrable=True,
            poll_interval=0.3,
            sync_tables=True,
        ),
    )
    assert run.state == "success"
    receipt = returned(run, "land")
    assert deferred_jobs == [receipt["job_id"]]
    assert receipt["tables"][0]["table_rows"] == 3
    assert tables.status(root)[0].in_step


def test_a_try_that_finds_the_load_landed_syncs_it(
    run_dag: Run, root: Path, site: GatedSite, weblake_connection: WeblakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from airflow_provider_weblake import table_sync

    real, tries = table_sync.sync_after_landing, list[int]()

    def killed_at_first(*args: Any, **kwargs: Any) -> dict[str, object]:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionResetError("The worker was lost after the landing and before the sync.")
        return real(*args, **kwargs)

    monkeypatch.setattr(table_sync, "sync_after_landing", killed_at_first)
    run = run_one(run_dag, scraping(root, site, retries=1, retry_delay=timedelta(0)))
    assert (run.state, len(tries)) == ("success", 2)
    receipt = returned(run, "land")
    assert receipt["load_id"] in receipt["tables"][0]["load_ids"]
    assert weblake_connection.counts()["scrape_started"] == 1


def test_a_dataset_without_tables_is_left_alone(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = run_one(run_dag, scraping(tmp_path / "plain", site, catalog_conn_id="nowhere"))
    assert run.state == "success"
    assert {"tables", "tables_error"}.isdisjoint(returned(run, "land"))
    assert "WeblakeTableSyncOperator" not in task_logs(capfd)


def test_a_catalog_that_is_down_fails_no_landing_and_shows_no_secret(
    run_dag: Run,
    root: Path,
    site: GatedSite,
    tmp_path: Path,
    canary: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The catalog says what it was asked with, as a careless one does."""
    from airflow.models.renderedtifields import RenderedTaskInstanceFields
    from airflow.utils.session import create_session
    from sqlalchemy import select

    add_iceberg(root, tmp_path)

    def tells(request: LoopbackRequest) -> LoopbackResponse:
        error = {"message": f"no: {request.body!r} {dict(request.headers)}", "type": "Down", "code": 503}
        return LoopbackResponse(503, json.dumps({"error": error}).encode(), {"Content-Type": "application/json"})

    asset = Asset(f"x-lake-{uuid.uuid4().hex}")
    with LoopbackServer(tells) as server:
        extra = {"header.X-Api-Token": canary, "warehouse": "lake"}
        conn_id = connect(
            monkeypatch, conn_type="iceberg", host=server.url, login="client", password=canary, extra=extra
        )
        run = run_one(run_dag, scraping(root, site, catalog_conn_id=conn_id, outlets=[asset]))
    assert run.state == "success"
    receipt = returned(run, "land")
    assert [(each["format"], each["added"]) for each in receipt["tables"]] == [("delta", 2)]
    assert "Iceberg catalog" in receipt["tables_error"]
    assert "client_secret=***" in receipt["tables_error"]
    extra_told = events(run)[asset.uri]
    assert extra_told["tables_error"] == receipt["tables_error"]
    text = task_logs(capfd)
    assert "Sync them later with WeblakeTableSyncOperator" in text
    with create_session() as session:
        rendered = session.scalars(
            select(RenderedTaskInstanceFields.rendered_fields).where(RenderedTaskInstanceFields.dag_id == run.dag_id)
        ).all()
    assert conn_id in json.dumps(rendered)
    for place in (text, json.dumps(receipt), json.dumps(extra_told), json.dumps(rendered)):
        assert canary[:12] not in place


def test_a_truncated_secret_is_not_shown(canary: str) -> None:
    from weblake.orchestration import without_secrets

    for length in (8, 12, len(canary)):
        text = f"client_secret={canary[:length]}. Check its settings, {canary}."
        assert without_secrets(text, [canary, "x"]) == "client_secret=***. Check its settings, ***."
    assert without_secrets("A can is no canary.", [canary]) == "A can is no canary."


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts requests and never responds."""
    import threading

    ended = threading.Event()

    def waits(request: LoopbackRequest) -> LoopbackResponse:
        ended.wait(60)
        return LoopbackResponse(503)

    with LoopbackServer(waits) as server:
        yield server.url
        ended.set()


def test_a_catalog_that_never_responds_holds_a_landing_for_some_time_only(
    airflow_db: None, root: Path, tmp_path: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.execution_time.timeout import timeout

    from airflow_provider_weblake import table_sync

    add_iceberg(root, tmp_path)
    conn_id = connect(monkeypatch, conn_type="generic", host=silent)
    with timeout(0.2):
        told = table_sync.sync_after_landing(str(root), conn_id)
    assert told == {"tables": [], "tables_error": "The task's execution_timeout ended the sync."}
    monkeypatch.setattr(table_sync, "WAIT_S", 0.2)
    told = table_sync.sync_after_landing(str(root), conn_id)
    assert told["tables_error"] == "The sync has not ended within 0 seconds."


def test_a_connection_has_the_properties_of_a_catalog(
    airflow_db: None, canary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_provider_weblake.table_sync import catalog_settings, error_text

    extra = {"warehouse": "lake", "rest.sigv4-enabled": False, "nested": {"client_secret": f"{canary}-nested"}}
    fields = {"host": "https://lake.example.com/", "login": "client", "password": canary, "extra": extra}
    assert catalog_settings(connect(monkeypatch, conn_type="iceberg", **fields)) == {
        "type": "rest",
        "uri": "https://lake.example.com",
        "credential": f"client:{canary}",
        "warehouse": "lake",
        "rest.sigv4-enabled": "False",
        "nested": {"client_secret": f"{canary}-nested"},
    }
    assert error_text(ValueError(f"{canary} client:{canary} {canary}-nested")).count(canary) == 0

    database = f"postgresql://user:{canary}-db@db.example.com/catalog"
    sql = connect(monkeypatch, conn_type="generic", login="u", password="p", extra={"type": "sql", "uri": database})
    assert catalog_settings(sql) == {"type": "sql", "uri": database}, "login and password are of REST catalogs only"
    assert canary not in error_text(ValueError(f"{database} False"))
    assert error_text(ValueError("False")) == "ValueError: False"
    with pytest.raises(AskPerson, match="no Airflow connection 'nowhere', which catalog_conn_id names"):
        catalog_settings("nowhere")


def test_the_roots_connection_has_settings_for_the_table_libraries(
    airflow_db: None, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_weblake.table_sync import error_text, storage_settings

    options = {"GOOGLE_SERVICE_ACCOUNT_KEY": canary, "timeout": 30}
    conn_id = connect(monkeypatch, conn_type="google_cloud_platform", extra={"table_options": options})
    found = storage_settings(ObjectStoragePath(f"gs://{conn_id}@bucket/lake"))
    assert found == {"GOOGLE_SERVICE_ACCOUNT_KEY": canary, "timeout": "30"}
    assert canary not in error_text(ValueError(canary))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("GOOGLE_SERVICE_ACCOUNT_KEY", '{{"private_key": "{}", "token_uri": "https://oauth2.example.com/token"}}'),
        ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=a;AccountKey={};BlobEndpoint=http://127.0.0.1:10000/a"),
        ("AZURE_STORAGE_SAS_KEY", "{}"),
        ("header.X-Api-Key", "{}"),
        ("credential", "client:colon:{}"),
    ],
)
def test_a_secret_that_contains_urls_is_masked_as_a_whole_and_in_parts(
    airflow_db: None, canary: str, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    from airflow.sdk import ObjectStoragePath

    from airflow_provider_weblake.table_sync import error_text, storage_settings

    value = form.format(canary)
    conn_id = connect(monkeypatch, conn_type="google_cloud_platform", extra={"table_options": {name: value}})
    assert storage_settings(ObjectStoragePath(f"gs://{conn_id}@bucket/lake")) == {name: value}
    for text in (value, canary if name != "credential" else f"colon:{canary}"):
        assert canary not in error_text(ValueError(f"denied: {text}"))
    assert storage_settings("gs://bucket/lake") == {}


def land(service: WeblakeService, site: GatedSite, root: Any, number: int) -> str:
    with service.client() as client:
        return weblake.land_batch([f"{site.url}/page/{number}"], to=root, client=client).load_id


def test_the_sync_operator_syncs_what_it_can_and_retries_the_rest(
    run_dag: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from datetime import timedelta

    from airflow_provider_weblake.operators.weblake import WeblakeTableSyncOperator

    add_iceberg(root, tmp_path)
    database = tmp_path / "catalog.db"
    database.rename(tmp_path / "elsewhere.db")
    extra = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"file://{tmp_path}/warehouse"}
    conn_id = connect(monkeypatch, conn_type="iceberg", extra=extra)
    tries: list[int] = []

    def repaired_before_the_second(context: Any) -> None:
        tries.append(context["ti"].try_number)
        if len(tries) == 2:
            assert tables.status(root, format="delta")[0].in_step
            (tmp_path / "elsewhere.db").replace(database)

    alias = AssetAlias(f"tables-{uuid.uuid4().hex}")
    run = run_one(
        run_dag,
        lambda: WeblakeTableSyncOperator(
            task_id="sync",
            to=str(root),
            catalog_conn_id=conn_id,
            retries=2,
            retry_delay=timedelta(0),
            pre_execute=repaired_before_the_second,
            outlets=[alias],
        ),
    )
    assert (run.state, tries) == ("success", [1, 2])
    told = returned(run, "sync")["tables"]
    assert [(each["format"], each["identifier"], each["added"]) for each in told] == [
        ("delta", None, 0),
        ("iceberg", "web.documents", 1),
    ]
    ((uri, extra_told),) = events(run).items()
    assert (uri, extra_told) == (told[1]["location"], {"tables": [told[1]]}), "only the table that has changed"


def test_a_table_that_cannot_be_used_is_retried_as_the_task_is_configured() -> None:
    from airflow.sdk import RetryDecision

    from airflow_provider_weblake.retry_policy import TableSyncRetryPolicy, WeblakeRetryPolicy

    policy = TableSyncRetryPolicy.deserialize(TableSyncRetryPolicy().serialize())
    assert policy.evaluate(StorageRefused("down"), 1, 3) == RetryDecision.default()
    assert policy.evaluate(AskPerson("who"), 1, 3) == WeblakeRetryPolicy().evaluate(AskPerson("who"), 1, 3)


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
