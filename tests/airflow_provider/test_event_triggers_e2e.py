"""Tests of watchers and the webhook how-to in a real Airflow: scheduler, triggerer, DAG processor, API server."""

from __future__ import annotations

import json
import secrets
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from airflow_lab import AirflowLab
from gated_site import GatedSite
from page_blocks import codes
from test_webhook_receiver import receiver

import weblake
from weblake_service.config import ServiceConfig
from weblake_service.server import LocalService

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "site" / "airflow" / "assets-and-webhooks.md"
#: The asset of the DAG that lands.
BATCHES = "x-weblake://jobs/weblake_default/batch_scrape"


@dataclass
class Bench:
    """A service, an Airflow with the DAGs of these tests, and what happens between them."""

    service: LocalService
    lab: AirflowLab
    root: Path
    secret: str

    def batch(self, urls: list[str], **options: Any) -> str:
        with weblake.Client(base_url=self.service.url, api_key=self.service.key) as client:
            return str(client.start_batch_scrape(urls, **options).id)

    def asset(self, name: str) -> int:
        found = self.lab.api("GET", "/assets", params={"name_pattern": name})["assets"]
        return int(next(each["id"] for each in found if each["name"] == name))

    def events(self, name: str) -> list[dict[str, Any]]:
        """The extras of an asset's events, oldest first."""
        # Not by the API: it answers 500 while a run that an event has made is queued, for that has no start date yet.
        with closing(sqlite3.connect(f"file:{self.lab.home}/airflow.db?mode=ro", uri=True, timeout=240)) as db:
            found = db.execute("SELECT extra FROM asset_event WHERE asset_id = ? ORDER BY id", (self.asset(name),))
            return [json.loads(extra) for (extra,) in found]

    def noted(self, name: str) -> list[dict[str, Any]]:
        """Return the state that watchers store with an asset."""
        states = self.lab.api("GET", f"/assets/{self.asset(name)}/state-store")["asset_state_store"]
        return [value if isinstance(value := state["value"], dict) else json.loads(value) for state in states]

    def runs(self) -> str:
        """Return the runs of the DAG that lands."""
        found = self.lab.api("GET", "/dags/land_announced_jobs/dagRuns")["dag_runs"]
        return "\n".join(self.lab.describe("land_announced_jobs", run["dag_run_id"]) for run in found)

    def until(self, what: str, done: Any, timeout: float = 240) -> Any:
        triggerer = self.lab.home / "processes" / "triggerer.log"
        return self.lab.until(what, done, timeout, lambda: triggerer.read_text(errors="replace")[-6000:])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    home = tmp_path_factory.mktemp("events")
    dags = home / "dags"
    shutil.copytree(HERE / "dags_events", dags, ignore=shutil.ignore_patterns("__pycache__"))
    (dags / "land_announced_jobs.py").write_text(codes(PAGE.read_text(), "python")[1])
    secret = secrets.token_hex(16)
    with LocalService(config=ServiceConfig(webhook_secret=secret)) as service:
        connection = {"conn_type": "weblake", "host": service.url, "password": service.key}
        env = {
            "AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection),
            "WEBLAKE_ROOT": str(home / "lake"),
            # Airflow runs the watchers of DAGs that are not paused, from the next parse on; the lab parses once.
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        }
        with AirflowLab(home / "airflow", dags, env) as lab:
            lab.wait_for_dags({"on_batches", "on_both", "land_announced_jobs"})
            yield Bench(service, lab, home / "lake", secret)


def test_a_batch_that_completes_elsewhere_runs_a_dag_and_a_killed_triggerer_loses_none(
    bench: Bench, site: GatedSite
) -> None:
    lab = bench.lab

    def told() -> Counter[str]:
        """How often each job was told, without those of the other test."""
        ids = [event["payload"]["job_id"] for event in bench.events("batches_done")]
        return Counter(job_id for job_id in ids if job_id in ours)

    ours: set[str] = set()
    bench.until("the watchers' first notes", lambda: bench.noted("batches_done") and bench.noted("also_done"))
    bench.until("the usage watcher's note", lambda: bench.noted("usage_closed"))
    first = bench.batch(site.pages(2))
    ours.add(first)
    bench.until("the first event", told)
    bench.until("its note", lambda: first in bench.noted("batches_done")[0]["over"])
    held = bench.batch(site.held(1), timeout=240_000)
    bench.until("the running job's note", lambda: held in bench.noted("batches_done")[0]["pending"])
    lab.kill_triggerer()
    site.release()
    while_dead = bench.batch(site.pages(1, first=3))
    lab.start_triggerer()
    ours |= {held, while_dead}
    bench.until("the events after the kill", lambda: len(told()) == 3)
    bench.until("their notes", lambda: {held, while_dead} <= bench.noted("batches_done")[0]["over"].keys())
    assert told() == dict.fromkeys(ours, 1)
    assert {event["payload"]["status"] for event in bench.events("batches_done")} == {"completed"}
    # The two assets are watched by one trigger; jobs of other tests may end between the two reads.
    bench.until("the same events of both", lambda: bench.events("also_done") == bench.events("batches_done"))
    # Their notes are written one after the other.
    bench.until("the same note with both", lambda: bench.noted("also_done") == bench.noted("batches_done"))
    consumed: set[str] = set()

    def all_consumed() -> bool:
        for run in lab.api("GET", "/dags/on_batches/dagRuns")["dag_runs"]:
            if run["state"] == "success":
                seen = lab.xcom("on_batches", run["dag_run_id"], "seen")
                consumed.update(payload["job_id"] for payload in seen)
        return consumed >= ours

    bench.until("the DAG to have run for every job", all_consumed)
    assert lab.grep(bench.service.key) == []


def landed_rows(bench: Bench, jobs: set[str]) -> list[tuple[str, int]]:
    """The loads of these jobs: id and number of rows."""
    files = (bench.root / "documents").glob("**/*.parquet")
    columns = [pq.read_table(file, columns=["job_id"]).column(0).to_pylist() for file in files]
    return sorted((column[0], len(column)) for column in columns if column[0] in jobs)


def test_a_webhook_of_the_service_runs_the_dag_that_lands_the_job_once(bench: Bench, site: GatedSite) -> None:
    """Through the receiver of the how-to."""
    lab, login = bench.lab, {"AIRFLOW_USERNAME": "admin", "AIRFLOW_PASSWORD": "admin"}
    with receiver("airflow", lab.url, bench.secret, **login) as url:
        hook = {"url": url, "events": ["started", "page", "completed"]}
        sizes = {bench.batch(site.pages(3), webhook=hook): 3, bench.batch(site.pages(1, first=7), webhook=hook): 1}
        lab.until("both jobs to be landed", lambda: len(landed_rows(bench, {*sizes})) == 2, why=bench.runs)
    lab.until("the DAG to have remembered", lambda: lab.api("GET", "/variables")["variables"], why=bench.runs)
    assert landed_rows(bench, {*sizes}) == sorted(sizes.items())
    event = bench.events(BATCHES)[0]
    assert {event["kind"], event["status"]} == {"batch_scrape", "completed"}
    assert event["job_id"] in sizes
    assert lab.grep(bench.secret) == []
