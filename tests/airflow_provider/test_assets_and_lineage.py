"""Tests that a table has one asset URI, and that assets and lineage tools are notified of what a load changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.utils.utils import translate_airflow_asset
from airflow.sdk import Asset, AssetAlias, BaseOperator, ObjectStoragePath
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.serde import Serde

from airflow_provider_weblake import lineage
from airflow_provider_weblake.assets.jobs import weblake_jobs_asset
from airflow_provider_weblake.assets.weblake import TABLES, openlineage_name, weblake_asset
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from airflow.sdk import DAG, Context

RECEIPT: dict[str, object] = {
    "load_id": "0123456789abcdef",
    "kind": "crawl",
    "job_id": "0a1b2c3d-0000-4000-8000-000000000000",
    "stored": 3,
    "credits_used": 3.0,
    "files": [
        {"path": "page_errors/day=2026-11-21/0123456789abcdef-00000.parquet", "rows": 1, "bytes": 50},
        {"path": "documents/day=2026-11-21/0123456789abcdef-00000.parquet", "rows": 3, "bytes": 100},
    ],
}


@pytest.mark.parametrize(
    ("root", "uri"),
    [
        ("s3://lake/web", "weblake://s3/lake/web/documents"),
        ("s3://aws_default@lake/web", "weblake://s3/lake/web/documents"),
        ("s3a://lake//web/./x/../", "weblake://s3/lake/web/documents"),
        ("gs://lake/web", "weblake://gs/lake/web/documents"),
        ("abfss://azure@lake/web", "weblake://abfs/lake/web/documents"),
        ("abfs://azure@lake@acc.dfs.example.net/web", "weblake://abfs/lake@acc.dfs.example.net/web/documents"),
        ("/data/lake", "weblake://file/data/lake/documents"),
        ("file:///data/lake", "weblake://file/data/lake/documents"),
        (Path("/data/lake"), "weblake://file/data/lake/documents"),
        ("/data/a b/100%/x#y?z/ü", "weblake://file/data/a%20b/100%25/x%23y%3Fz/%C3%BC/documents"),
    ],
)
def test_a_table_has_one_uri(root: str | Path, uri: str) -> None:
    asset = weblake_asset(root)
    assert (asset.uri, asset.name) == (uri, uri)
    assert asset.normalized_uri == uri
    again = Asset(uri=uri)
    assert again.uri == uri
    assert again == asset


def test_an_object_storage_path_has_the_same_uri(tmp_path: Path) -> None:
    assert weblake_asset(ObjectStoragePath(f"file://{tmp_path}")) == weblake_asset(str(tmp_path))
    assert weblake_asset(ObjectStoragePath("s3://lake/web"), "activity").uri == "weblake://s3/lake/web/activity"


@pytest.mark.parametrize(
    ("written", "uri"),
    [
        ("WEBLAKE://S3/lake/web/documents/", "weblake://s3/lake/web/documents"),
        ("weblake://conn@s3/lake/web/documents", "weblake://s3/lake/web/documents"),
        ("weblake://s3/conn@lake/web/documents#part", "weblake://s3/lake/web/documents"),
        ("weblake://file//data/./x/%2e%2e/lake/documents", "weblake://file/data/lake/documents"),
        ("weblake://gcs/lake/documents", "weblake://gs/lake/documents"),
    ],
)
def test_a_uri_is_normalised(written: str, uri: str) -> None:
    assert Asset(uri=written).uri == uri


def test_a_password_in_a_uri_is_removed() -> None:
    with pytest.warns(UserWarning, match="should not contain a password"):
        asset = Asset(name="docs", uri="weblake://someone:test-key@s3/lake/documents")
    assert asset.uri == "weblake://s3/lake/documents"


@pytest.mark.parametrize(
    "written",
    [
        "weblake://s3/lake/web",
        "weblake://s3/documents",
        "weblake://ftp/lake/documents",
        "weblake://file/documents",
        "weblake://s3/../documents",
        "weblake://s3/lake/documents?sig=test-key",
    ],
)
def test_a_uri_that_names_no_table_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not a table of a weblake dataset") as caught:
        Asset(uri=written)
    assert "test-key" not in str(caught.value)
    assert "weblake://<s3|gs|abfs|file>/" in str(caught.value)


@pytest.mark.parametrize(
    ("root", "table", "words"),
    [
        ("lake", "documents", "relative path"),
        ("memory://lake", "documents", "memory://"),
        ("s3://lake/web", "pages", "not a table"),
    ],
)
def test_a_root_without_a_shareable_uri_is_refused(root: str, table: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        weblake_asset(root, table)


def test_the_tables_are_the_cores() -> None:
    from weblake.arrow.schemas import TABLES as CORES

    assert tuple(CORES) == TABLES


@pytest.mark.parametrize(
    ("root", "namespace", "name"),
    [
        ("s3://conn@lake/web", "s3://lake", "web/documents"),
        ("s3://lake", "s3://lake", "documents"),
        ("gs://lake/a b", "gs://lake", "a b/documents"),
        ("abfs://lake/web", "abfs://lake", "web/documents"),
        ("abfs://lake@acc.dfs.example.net/web", "abfss://lake@acc.dfs.example.net", "web/documents"),
        ("/data/lake", "file", "/data/lake/documents"),
    ],
)
def test_openlineage_gets_the_standard_name_of_the_storage(root: str, namespace: str, name: str) -> None:
    asset = weblake_asset(root)
    assert openlineage_name(asset.uri) == (namespace, name)
    dataset = translate_airflow_asset(asset, None)
    assert dataset is not None
    assert (dataset.namespace, dataset.name) == (namespace, name)


class LandedLoad(BaseOperator):
    """A task that has landed RECEIPT."""

    def __init__(self, *, to: str | None = None, partitions: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.to = to
        self.partitions = partitions

    def execute(self, context: Context) -> None:
        partitions = lineage.partitions_of(RECEIPT) if self.partitions else ()
        lineage.outlets_changed(context, RECEIPT, self.to, partitions=partitions)


def run_beside(dag: DAG, *consumers: DAG) -> None:
    """Runs one DAG while the others wait for its assets."""
    from airflow.configuration import conf
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(conf.get("core", "dags_folder"), bundle_name="dags-folder")
    for one in (dag, *consumers):
        bag.bag_dag(one)
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        for model in session.query(DagModel).filter(DagModel.dag_id.in_([one.dag_id for one in consumers])):
            model.is_paused = False
    assert dag.test().state == "success"


def events_of(dag_id: str) -> dict[tuple[str, str], tuple[str | None, dict[str, Any]]]:
    """By task and address: partition key and extra."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        found = session.query(AssetEvent).filter(AssetEvent.source_dag_id == dag_id)
        return {(str(e.source_task_id), str(e.uri)): (e.partition_key, dict(e.extra)) for e in found}


def queued() -> set[str]:
    """The DAGs that an event has started or is about to start."""
    from airflow.models.asset import AssetDagRunQueue, AssetPartitionDagRun
    from airflow.utils.session import create_session

    with create_session() as session:
        plain = {str(row.target_dag_id) for row in session.query(AssetDagRunQueue)}
        return plain | {f"{row.target_dag_id} {row.partition_key}" for row in session.query(AssetPartitionDagRun)}


def test_outlets_carry_the_receipt_and_aliases_the_tables(airflow_db: None, tmp_path: Path) -> None:
    from airflow.sdk import DAG

    root = str(tmp_path)
    asset, other = weblake_asset(root), Asset("something_else")
    with DAG("lineage_receipts", schedule=None) as dag:
        LandedLoad(task_id="plain", outlets=[asset, other])
        LandedLoad(task_id="alias", to=root, outlets=[AssetAlias("lineage_alias")])
        LandedLoad(task_id="lost", to="memory://x", outlets=[AssetAlias("lineage_alias")])
        LandedLoad(task_id="unknown", outlets=[Asset.ref(name="lineage_no_such_asset")])
    with DAG("lineage_consumer", schedule=[asset]) as consumer:
        BaseOperator(task_id="consume")
    run_beside(dag, consumer)
    errors = weblake_asset(root, "page_errors")
    assert events_of("lineage_receipts") == {
        ("plain", asset.uri): (None, RECEIPT),
        ("plain", other.uri): (None, RECEIPT),
        ("alias", asset.uri): (None, RECEIPT),
        ("alias", errors.uri): (None, RECEIPT),
    }
    assert "lineage_consumer" in queued()


def test_events_have_partition_keys_on_request_only(airflow_db: None, tmp_path: Path) -> None:
    """Airflow 3.3 tells an event with a partition key to partitioned timetables, and to nobody else."""
    from airflow.sdk import DAG, PartitionedAssetTimetable

    asset = weblake_asset(str(tmp_path))
    with DAG("lineage_partitions", schedule=None) as dag:
        LandedLoad(task_id="land", partitions=True, outlets=[asset])
    with DAG("lineage_by_partition", schedule=PartitionedAssetTimetable(assets=asset)) as by_partition:
        BaseOperator(task_id="consume")
    with DAG("lineage_plainly", schedule=[asset]) as plainly:
        BaseOperator(task_id="consume")
    run_beside(dag, by_partition, plainly)
    assert events_of("lineage_partitions") == {("land", asset.uri): ("2026-11-21", RECEIPT)}
    assert {name for name in queued() if name.startswith(("lineage_by_", "lineage_plainly"))} == {
        "lineage_by_partition 2026-11-21"
    }


def test_partition_keys_come_from_the_folders() -> None:
    assert lineage.partitions_of(RECEIPT) == ["2026-11-21"]
    paths = ["documents/country=de/day=2026-11-21/a.parquet", "documents/country=a%2Fb/day=1/b.parquet", "x.parquet"]
    assert lineage.partitions_of({"files": [{"path": path} for path in paths]}) == ["de|2026-11-21", "a/b|1"]
    assert lineage.partitions_of({}) == []


def facets_of(receipt: Mapping[str, object], root: str, hosts: list[str]) -> dict[str, Any]:
    """An event as it goes over the wire, after Airflow's own check of what operators return."""
    found = lineage.openlineage_of(receipt, root, hosts)
    checked = ExtractorManager().validate_task_metadata(found)
    assert checked is not None
    event = RunEvent(
        eventTime="2026-11-21T00:00:00Z",
        eventType=RunState.COMPLETE,
        run=Run(runId="01a1feaf-f491-71cf-8bb9-bcf42653781b", facets=checked.run_facets),
        job=Job(namespace="airflow", name="dag.task", facets=checked.job_facets),
        inputs=checked.inputs,
        outputs=checked.outputs,
        producer="https://example.com/weblake",
    )
    sent: dict[str, Any] = json.loads(Serde.to_json(event))
    return sent


def test_openlineage_gets_rows_bytes_columns_hosts_and_job() -> None:
    sent = facets_of(
        RECEIPT, "s3://conn@lake/web", ["https://a.example.com/x?y=1", "b.example.com", "https://a.example.com"]
    )
    assert [(i["namespace"], i["name"]) for i in sent["inputs"]] == [
        ("https://a.example.com", "/"),
        ("https://b.example.com", "/"),
    ]
    documents, errors = sent["outputs"]
    assert (documents["namespace"], documents["name"]) == ("s3://lake", "web/documents")
    assert (errors["namespace"], errors["name"]) == ("s3://lake", "web/page_errors")
    statistics = documents["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (3, 100, 1)
    columns = {column["name"]: column["type"] for column in documents["facets"]["schema"]["fields"]}
    assert columns["markdown"] == "large_string"
    assert columns["loaded_at"] == "timestamp[us, tz=UTC]"
    assert [column["name"] for column in errors["facets"]["schema"]["fields"]][-2:] == ["error", "occurred_at"]
    query = sent["run"]["facets"]["externalQuery"]
    assert (query["externalQueryId"], query["source"]) == (RECEIPT["job_id"], "weblake")


def test_hosts_are_listed_once_and_fifty_at_most() -> None:
    million = (f"https://user:test-key@h{n % 60}.example.com:8443/page/{n}" for n in range(1_000_000))
    found = lineage.hosts_of(million)
    assert found[:2] == ["h0.example.com:8443", "h1.example.com:8443"]
    assert len(found) == lineage.MAX_HOSTS
    assert next(million) == "https://user:test-key@h50.example.com:8443/page/50"  # it did not read on
    assert lineage.hosts_of(["http://[::1]:80/x", "", "https://", "http://[bad", "/path"]) == ["[::1]:80"]


def test_without_the_openlineage_provider_no_lineage_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.openlineage.extractors", None)
    assert lineage.openlineage_of(RECEIPT, "/data/lake") is None


@pytest.mark.parametrize(("kind", "conn_id"), [("scrape", "weblake_default"), ("crawl", "a/b"), ("crawl", "")])
def test_an_asset_of_jobs_that_a_uri_cannot_name_is_refused(kind: str, conn_id: str) -> None:
    with pytest.raises(InvalidOption):
        weblake_jobs_asset(kind, conn_id)


def test_an_asset_of_jobs_keeps_its_uri_and_may_have_a_name() -> None:
    asset = weblake_jobs_asset("crawl", "Service_1", name="crawls", group="web")
    assert (asset.name, asset.uri, asset.group) == ("crawls", "x-weblake://jobs/Service_1/crawl", "web")
    assert weblake_jobs_asset().name == "x-weblake://jobs/weblake_default/batch_scrape"
