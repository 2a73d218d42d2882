"""Tests of the example DAGs: parsed as a DAG processor does it, and run by Airflow on the embedded service."""

from __future__ import annotations

import json
import struct
import warnings
from base64 import b64decode
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from browser_lab import require_chromium
from dag_runs import Run, returned, states

import airflow_provider_weblake
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    from gated_site import GatedSite

pytestmark = pytest.mark.system

FOLDER = Path(airflow_provider_weblake.__file__).parent / "example_dags"
#: Links to the same files, and to the example of another guest.
AT_THE_ROOT = Path(__file__).parents[2] / "example_dags"
DAGS = {
    "nightly_batch_scrape": ["nightly_batch_scrape"],
    "site_crawl_by_day": ["site_crawl_by_day", "site_crawl_report"],
    "usage_with_budget": ["usage_with_budget"],
    "million_url_shards": ["million_url_shards"],
    "due_pages_nightly": ["due_pages_nightly"],
    "scrape_then_interact": ["scrape_then_interact"],
    "screenshot_capture": ["screenshot_capture"],
    "warehouse_ingestion": ["warehouse_ingestion"],
}
NIGHT = datetime(2026, 11, 20, tzinfo=timezone.utc)


def read(file: Path) -> Any:
    """The bag of one file, as a DAG processor reads it."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(str(file), bundle_name="dags-folder")


def read_and_listen(file: Path) -> tuple[Any, list[str]]:
    """The bag of one file, and the warnings that reading it gave."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        bag = read(file)
    ours = [str(each.message) for each in heard if each.filename == str(file)]
    return bag, [*ours, *(text for texts in bag.captured_warnings.values() for text in texts)]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the root of the examples, which has a warehouse beside it."""
    monkeypatch.setenv("WEBLAKE_ROOT", str(tmp_path / "lake"))
    monkeypatch.setenv("WEBLAKE_WAREHOUSE", str(tmp_path / "warehouse.duckdb"))
    return tmp_path / "lake"


@pytest.fixture
def run(lake: Path, run_dag: Run, weblake_connection: WeblakeService) -> Run:
    """Runs a DAG of a file, with values for its params; `max_tries` above the file's own is what a Clear leaves."""

    def run(file: str, dag_id: str = "", *, max_tries: int | None = None, **kwargs: Any) -> Any:
        dag = read(FOLDER / f"{file}.py").dags[dag_id or file]
        for task in dag.tasks:
            task.retries = task.retries if max_tries is None else max_tries
        params = kwargs.pop("params", {})
        return run_dag(dag, run_conf=params, **kwargs)

    return run


@pytest.fixture
def nightly(run: Run, tmp_path: Path, site: GatedSite) -> Run:
    """Runs the nightly scrape of a list."""

    def nightly(urls: list[str], night: datetime = NIGHT, **kwargs: Any) -> Any:
        pq.write_table(pa.table({"url": urls, "id": [*range(len(urls))]}), tmp_path / "urls.parquet")
        params = {"urls": str(tmp_path / "urls.parquet")} | kwargs.pop("params", {})
        return run("nightly_batch_scrape", logical_date=night, run_after=night, params=params, **kwargs)

    return nightly


def files(lake: Path, table: str = "documents") -> list[str]:
    return sorted(str(path.parent.relative_to(lake)) for path in lake.glob(f"{table}/**/*.parquet"))


def urls_in(lake: Path) -> set[str]:
    rows = duckdb.execute("SELECT url FROM read_parquet(?)", [f"{lake}/documents/**/*.parquet"]).fetchall()
    return {url for (url,) in rows}


def warehouse(lake: Path, sql: str) -> list[Any]:
    with duckdb.connect(str(lake.parent / "warehouse.duckdb"), read_only=True) as db:
        return db.execute(sql).fetchall()


# Parsed


def test_the_examples_are_in_the_package_and_linked_at_the_root() -> None:
    assert {path.stem for path in FOLDER.glob("[!_]*.py")} == set(DAGS)
    links = {path.stem: path.resolve() for path in AT_THE_ROOT.glob("*.py")}
    assert links == {name: (FOLDER / f"{name}.py").resolve() for name in DAGS}


@pytest.mark.parametrize("file", DAGS)
def test_a_file_is_parsed_without_a_warning_and_serialised(file: str, airflow_db: None) -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    bag, heard = read_and_listen(FOLDER / f"{file}.py")
    assert not bag.import_errors
    assert heard == []
    assert sorted(bag.dags) == sorted(DAGS[file])
    for dag in bag.dags.values():
        assert dag.doc_md
        again = DagSerialization.deserialize_dag(json.loads(json.dumps(DagSerialization.serialize_dag(dag))))
        assert sorted(again.task_dict) == sorted(dag.task_dict)


# Run


def test_a_crawl_starts_the_dag_that_reads_its_receipt(
    run: Run, lake: Path, site: GatedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.models import DagModel, dagrun
    from airflow.models.asset import AssetDagRunQueue, AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(read(FOLDER / "site_crawl_by_day.py"), "dags-folder", None)
    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == "site_crawl_report").values(is_paused=False))
    crawled = run("site_crawl_by_day", params={"site": f"{site.url}/"})
    assert states(crawled) == {"crawl": "success"}
    receipt = returned(crawled, "crawl")
    assert receipt["stored"] == 6
    with create_session() as session:
        queued = session.scalars(select(AssetDagRunQueue.target_dag_id)).all()
        event = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == crawled.run_id)).one()
        assert event.extra["load_id"] == receipt["load_id"]
    assert "site_crawl_report" in queued, "the scheduler starts it from this queue"

    # What the scheduler does with the queue: the run is given the events that it was started by.
    create = dagrun.get_or_create_dagrun

    def with_events(*, session: Any, **kwargs: Any) -> Any:
        made = create(session=session, **kwargs)
        made.consumed_asset_events.append(session.merge(event))
        session.commit()
        return made

    monkeypatch.setattr(dagrun, "get_or_create_dagrun", with_events)
    judged = run("site_crawl_by_day", "site_crawl_report", logical_date=None)
    assert states(judged) == {"judge": "success"}
    (told,) = returned(judged, "judge")
    assert told == {name: receipt[name] for name in ("load_id", "stored", "failed", "files")}
    strict = run("site_crawl_by_day", "site_crawl_report", logical_date=None, params={"most_failed": -1})
    assert states(strict) == {"judge": "failed"}


def test_a_night_pays_for_the_pages_of_the_map_that_are_due(
    run: Run, lake: Path, site: GatedSite, weblake_connection: WeblakeService
) -> None:
    params = {"site": f"{site.url}/", "urls": str(lake.parent / "urls.txt")}
    nights = [run("due_pages_nightly", params=params, logical_date=NIGHT.replace(day=day)) for day in (20, 21)]
    assert [states(each) for each in nights] == [{"map": "success", "scrape": "success"}] * 2
    first, second = (returned(each, "scrape") for each in nights)
    assert first["requested"] == first["submitted"] == returned(nights[0], "map")["count"]
    assert (second["requested"], second["fresh"], second["submitted"]) == (first["requested"], first["stored"], 0)
    assert (second["complete"], second["job_id"], second["files"]) == (True, None, [])
    assert weblake_connection.counts()["batch_scrape_started"] == 1


def test_usage_lands_and_only_a_month_over_its_budget_alerts(
    run: Run, lake: Path, site: GatedSite, weblake_connection: WeblakeService
) -> None:
    with weblake_connection.client() as client:
        for url in site.pages(3):
            client.scrape(url)
    for budget, alert in ((2, "success"), (1000, "skipped")):
        ran = run("usage_with_budget", params={"budget": budget})
        done = dict.fromkeys(("usage", "usage_by_key", "activity", "over_budget"), "success")
        assert states(ran) == {**done, "alert": alert}
        told = "3 credits are used this month, over the budget of 2." if alert == "success" else None
        assert returned(ran, "alert") == told
    used = duckdb.execute(
        "SELECT total_credits FROM read_parquet(?)", [f"{lake}/usage_periods/report=credits/**/*.parquet"]
    ).fetchall()
    assert used == [(3.0,)]
    assert len(files(lake, "usage_periods")) == 2
    calls = duckdb.execute("SELECT endpoint FROM read_parquet(?)", [f"{lake}/activity/**/*.parquet"]).fetchall()
    assert calls == [("scrape",)] * 3


def test_each_shard_is_a_load_of_its_own_and_no_url_goes_through_xcom(
    run: Run, lake: Path, site: GatedSite, tmp_path: Path, weblake_connection: WeblakeService
) -> None:
    pq.write_table(pa.table({"url": site.pages(8)}), tmp_path / "list.parquet")
    ran = run("million_url_shards", params={"urls": str(tmp_path / "list.parquet"), "per_shard": 3}, logical_date=NIGHT)
    assert set(states(ran).values()) == {"success"}
    shards = returned(ran, "cut")
    assert [shard["count"] for shard in shards] == [3, 3, 2]
    assert site.url not in json.dumps(shards)
    receipts = [returned(ran, "scrape", map_index=index) for index in range(3)]
    assert [receipt["stored"] for receipt in receipts] == [3, 3, 2]
    assert len({receipt["load_id"] for receipt in receipts}) == 3
    assert returned(ran, "total")["stored"] == 8
    assert files(lake) == ["documents/load_date=2026-11-20"] * 3
    assert urls_in(lake) == set(site.pages(8))
    assert weblake_connection.counts()["batch_scrape_started"] == 3


@pytest.mark.weblake_service(code_execution=True)
def test_code_runs_in_the_browser_that_holds_the_page(
    run: Run, lake: Path, site: GatedSite, weblake_connection: WeblakeService
) -> None:
    ran = run("scrape_then_interact", params={"url": site.pages(1)[0]}, logical_date=NIGHT)
    assert states(ran) == {"scrape": "success", "interact": "success"}
    told = returned(ran, "interact")
    assert (told["result"], told["stopped"], told["exit_code"]) == ("page 0", True, 0)
    assert told["scrape_id"] == returned(ran, "scrape")["job_id"]
    assert told["credits_billed"] >= 1
    assert urls_in(lake) == set(site.pages(1))


def test_pictures_land_and_become_files_of_the_day(
    run: Run, lake: Path, tmp_path: Path, site: GatedSite, weblake_connection: WeblakeService
) -> None:
    require_chromium()

    def photographed(urls: list[str], **kwargs: Any) -> Any:
        pq.write_table(pa.table({"url": urls}), tmp_path / "urls.parquet")
        params = {"urls": str(tmp_path / "urls.parquet")}
        return run("screenshot_capture", logical_date=NIGHT, run_after=NIGHT, params=params, **kwargs)

    first = photographed([*site.pages(2), f"{site.url}/page/1?a=b"])
    assert states(first) == {"scrape": "success", "write_files": "success"}
    load_id = returned(first, "scrape")["load_id"]
    assert returned(first, "write_files") == {"load_id": load_id, "pictures": 3, "without": 0}
    day = lake / "pictures" / "load_date=2026-11-20"
    before = {path.name: path.read_bytes() for path in day.iterdir()}
    host = site.url.partition("://")[2].replace(".", "-").replace(":", "-")
    assert sorted(name.rpartition("-")[0] for name in before) == [
        f"{host}-page-0",
        f"{host}-page-1",
        f"{host}-page-1-a-b",
    ]
    landed = duckdb.execute("SELECT screenshot FROM read_parquet(?)", [f"{lake}/documents/**/*.parquet"]).fetchall()
    assert sorted(before.values()) == sorted(b64decode(uri.partition(",")[2]) for (uri,) in landed)
    for data in before.values():
        assert data.startswith(b"\x89PNG")
        assert struct.unpack(">II", data[16:24]) == (1280, 800)

    # A Clear buys again, here with a shorter list: what its load does not have is gone from the day.
    cleared = photographed(site.pages(1), max_tries=9)
    assert returned(cleared, "write_files")["pictures"] == 1
    files_left = [path for path in (lake / "pictures").rglob("*") if path.is_file()]
    assert [(path.parent, path.name.rpartition("-")[0]) for path in files_left] == [(day, f"{host}-page-0")]


def test_the_nightly_scrape_replaces_the_load_of_its_day_and_the_warehouse_follows(
    nightly: Run, run: Run, lake: Path, site: GatedSite, weblake_connection: WeblakeService
) -> None:
    urls = [*site.pages(3), site.pages(1)[0], f"{site.url}/nothing-here"]
    first = returned(nightly(urls), "scrape")
    assert (first["submitted"], first["complete"]) == (5, True)
    assert urls_in(lake) == set(urls)
    (columns,) = duckdb.execute(
        "SELECT count(*), count(markdown), count(links) FROM read_parquet(?)", [f"{lake}/documents/**/*.parquet"]
    ).fetchall()
    assert columns == (first["stored"],) * 3
    assert returned(run("warehouse_ingestion"), "ingest") == {"loads": 1, "rows": first["stored"], "replaced": 0}

    # A retry of the same run buys nothing, and brings nothing.
    assert returned(nightly(urls), "scrape")["load_id"] == first["load_id"]
    assert returned(run("warehouse_ingestion"), "ingest") == {"loads": 0, "rows": 0, "replaced": 0}

    # A Clear buys again: its load takes the place of the first, here as in the lake.
    second = returned(nightly(site.pages(2, first=7), max_tries=9), "scrape")
    assert second["load_id"] != first["load_id"]
    assert weblake_connection.counts()["batch_scrape_started"] == 2
    other = returned(nightly(site.pages(1), datetime(2026, 11, 21, tzinfo=timezone.utc)), "scrape")
    assert files(lake) == ["documents/load_date=2026-11-20", "documents/load_date=2026-11-21"]
    assert returned(run("warehouse_ingestion"), "ingest") == {"loads": 2, "rows": 3, "replaced": 1}
    rows = warehouse(lake, "SELECT load_id, url FROM pages ORDER BY url")
    assert rows == [(other["load_id"], site.pages(1)[0]), *((second["load_id"], url) for url in site.pages(2, first=7))]
    assert warehouse(lake, "SELECT load_id, stored FROM loads ORDER BY stored") == [
        (other["load_id"], 1),
        (second["load_id"], 2),
    ]
