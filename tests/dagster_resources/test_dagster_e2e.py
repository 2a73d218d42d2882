"""Tests of the promises in a real Dagster: webserver, daemon, run workers and step processes.

Every test counts the starts at the service, because these are paid for.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from catalogue import proves
from dagster_lab import DagsterLab
from gated_site import GatedSite
from secret_search import in_files

from weblake import Client
from weblake_service.config import ServiceKey
from weblake_service.server import LocalService

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
NO_RETRY = {"dagster/max_retries": "0"}
#: Run configuration of backfills: the steps run in the run's worker, which saves a process for each.
IN_PROCESS = {"execution": {"config": {"in_process": {}}}}


@dataclass
class Environment:
    """Dagster, the service, the site and the dataset."""

    dagster: DagsterLab
    service: LocalService
    site: GatedSite
    root: Path

    def config(self, asset: str, *, kind: str = "held", count: int = 2) -> dict[str, Any]:
        return {"ops": {asset: {"config": {"kind": kind, "count": count}}}}

    def jobs(self) -> list[tuple[str, str]]:
        """The batch jobs, newest first, with what has become of them."""
        with Client(self.service.url, self.service.key) as client:
            entries = client.list_activity(endpoint="batch_scrape", limit=100).data
            return [(str(entry.id), str(client.get_batch_scrape(str(entry.id)).status)) for entry in entries]

    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    def rows(self, load_id: str) -> int:
        found = list(self.root.glob(f"documents/**/{load_id}-*.parquet"))
        if not found:
            return 0
        with duckdb.connect() as database:
            return int(database.execute(f"select count(*) from read_parquet('{found[0]}')").fetchall()[0][0])

    def running_jobs(self, before: int, more: int = 1) -> None:
        """Waits until so many more jobs have been started and are on record."""
        self.dagster.until("jobs on record", lambda: self.started() == before + more and self._on_record(more))

    def _on_record(self, newest: int) -> bool:
        records = [path.read_text() for path in self.root.glob("_weblake/ledger/*.job.json")]
        return all(any(job in record for record in records) for job, _ in self.jobs()[:newest])

    def of(self, asset: str, run_id: str) -> dict[str, Any]:
        """The metadata of what a run materialised."""
        (found,) = [each for each in self.dagster.materializations(asset) if each.run_id == run_id]
        metadata: dict[str, Any] = found.metadata
        return metadata


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    home, root = tmp_path_factory.mktemp("dagster"), tmp_path_factory.mktemp("lake")
    keys = [f"canary-{secrets.token_hex(16)}" for _ in range(2)]
    with ExitStack() as stack:
        site = GatedSite()
        stack.callback(site.close)
        service = stack.enter_context(
            LocalService(keys=[ServiceKey(keys[0]), ServiceKey(keys[1], name="other")], allow_private=True)
        )
        env = {
            "WEBLAKE_BASE_URL": service.url,
            "WEBLAKE_API_KEY": keys[0],
            "E2E_OTHER_KEY": keys[1],
            "E2E_SITE": site.url,
            "E2E_ROOT": str(root),
        }
        many = {"concurrency": {"runs": {"max_concurrent_runs": 6}, "pools": {"default_limit": 2}}}
        with DagsterLab(home, HERE / "e2e_definitions.py", env, instance=many) as lab:
            environment = Environment(lab, service, site, root)
            yield environment
            assert [[*lab.grep(key), *in_files([root], key)] for key in keys] == [[], []]


@pytest.fixture
def held(environment: Environment) -> Iterator[Callable[[], None]]:
    """Holds the pages of this test back until it lets them go."""
    environment.site.held(1)
    yield environment.site.release
    environment.site.release()


# The other key stands in the code as text.
@proves(
    "4.3",
    at="dagster_resources/src/dagster_weblake/secret_config.py",
    line="return placeholder",
    becomes="return value",
)
def test_a_crawl_is_materialised_checked_and_read_and_no_key_is_kept(environment: Environment) -> None:
    dagster = environment.dagster
    first = dagster.launch(["docs"])
    assert dagster.wait_status(first, {"SUCCESS"}) == "SUCCESS"
    found = environment.of("docs", first)
    assert found["dagster/row_count"] == environment.rows(found["weblake/load_id"]) == 4
    assert found["dagster/uri"].startswith(f"file://{environment.root}/documents/load_date=")
    assert "| url | title |" in found["preview"]
    checks = dagster.asset_checks("docs")
    assert set(checks.values()) == {"SUCCEEDED"}, checks
    assert len(checks) >= 5
    pages = dagster.launch(["held"], run_config=environment.config("held", kind="page", count=3))
    dagster.wait_status(pages, {"SUCCESS"})
    dagster.wait_status(dagster.launch(["usage"]), {"SUCCESS"})
    assert dagster.materializations("usage")[0].metadata["weblake/credits"] > 0
    reading = dagster.launch(["titles"])
    assert dagster.wait_status(reading, {"SUCCESS"}) == "SUCCESS"
    for name in ("WEBLAKE_API_KEY", "E2E_OTHER_KEY"):
        key = dagster.environment()[name]
        assert dagster.grep(key) == in_files([environment.root], key) == []
    assert dagster.grep(found["weblake/job_id"]), "the search finds what a run tells"


@proves(
    "3.6",
    at="dagster_resources/src/dagster_weblake/sensors/collect.py",
    line="if job.is_late(now) or _is_over(job, answers, now):",
    becomes="if False:",
)
def test_no_process_waits_for_a_job_that_a_sensor_watches(environment: Environment, held: Callable[[], None]) -> None:
    dagster, before = environment.dagster, environment.started()
    run = dagster.launch(["later_job"], run_config=environment.config("later_job"))
    dagster.wait_status(run, {"SUCCESS"})
    started = environment.of("later_job", run)
    assert not dagster.runs(statuses=["STARTED"])  # the job runs, and no process of Dagster's does
    since, ticks = time.time(), lambda: dagster.ticks("later_collect")
    dagster.until("a tick that leaves it", lambda: any(tick["timestamp"] > since for tick in ticks()))
    assert dagster.materializations("later") == []
    held()
    (collected,) = dagster.wait_sensor_runs("later_collect")
    dagster.wait_status(collected, {"SUCCESS"})
    assert environment.of("later", collected)["weblake/load_id"] == started["weblake/load_id"]
    assert (environment.rows(started["weblake/load_id"]), environment.started() - before) == (2, 1)


def test_a_backfill_re_executed_from_failure_lands_the_jobs_of_the_first_one(environment: Environment) -> None:
    """One asset has a run for each of its partitions, the other one run for both."""
    dagster, before = environment.dagster, environment.started()
    unreadable = {"match": {"method": "GET", "path": "/v2/batch/scrape/"}, "times": None, "effect": {"status": 401}}
    environment.service.faults(unreadable)
    backfill = dagster.backfill(["parts", "spans"], ["a", "b"], IN_PROCESS, NO_RETRY)
    try:
        assert dagster.wait_backfill(backfill) == "COMPLETED_FAILED"
    finally:
        environment.service.faults()
    assert environment.started() - before == 4
    again = dagster.reexecute_backfill(backfill)
    assert dagster.wait_backfill(again) == "COMPLETED_SUCCESS"
    runs = dagster.runs({"dagster/backfill": again})
    assert [run.parent for run in runs] == [None] * 3
    loads = {each.metadata["weblake/load_id"] for key in ("parts", "spans") for each in dagster.materializations(key)}
    assert (len(loads), environment.started() - before) == (4, 4)
    assert [environment.rows(load_id) for load_id in loads] == [1] * 4


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/stopping.py",
    line="except dg.DagsterExecutionInterruptedError as interrupt:",
    becomes="except ZeroDivisionError as interrupt:",
)
def test_terminating_a_run_cancels_its_job(environment: Environment, held: Callable[[], None]) -> None:
    dagster, before = environment.dagster, environment.started()
    run = dagster.launch(["held"], run_config=environment.config("held"))
    environment.running_jobs(before)
    dagster.terminate(run)
    dagster.until("the job to be cancelled", lambda: environment.jobs()[0][1] == "cancelled")
    dagster.wait_status(run, {"CANCELED"})
    again = dagster.reexecute(run)  # a person wants it after all: it is bought again
    held()
    dagster.wait_status(again, {"SUCCESS"})
    assert environment.started() - before == 2


@proves(
    "O9",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="root, asked = self.run.root_run_id or self.run.run_id, self._requested_by",
    becomes="root, asked = self.run.run_id, self._requested_by",
)
def test_o9_after_a_killed_worker_the_next_one_lands_the_same_job(
    environment: Environment, held: Callable[[], None]
) -> None:
    """One that is evicted: test_stopping.py."""
    dagster, before = environment.dagster, environment.started()
    run = dagster.launch(["held"], run_config=environment.config("held"))
    environment.running_jobs(before)
    (job_id, status), *_ = environment.jobs()
    assert status == "scraping"
    dagster.kill_run(run)
    dagster.wait_status(run, {"FAILURE"})
    assert environment.jobs()[0] == (job_id, "scraping")
    retry = dagster.wait_retry(run)
    held()
    dagster.wait_status(retry.run_id, {"SUCCESS"})
    found = environment.of("held", retry.run_id)
    assert (found["weblake/job_id"], environment.started() - before) == (job_id, 1)
    assert environment.rows(found["weblake/load_id"]) == 2


@proves(
    "3.5",
    at="dagster_resources/src/dagster_weblake/identity.py",
    line="if run.parent_run_id is None or not _continues_parent(run):",
    becomes="if run.parent_run_id is None:",
)
def test_re_executing_all_steps_after_success_pays_again_and_replaces_the_load(environment: Environment) -> None:
    dagster, before = environment.dagster, environment.started()
    run = dagster.launch(["held"], run_config=environment.config("held", kind="page"), tags=NO_RETRY)
    dagster.wait_status(run, {"SUCCESS"})
    again = dagster.reexecute(run, "ALL_STEPS")
    dagster.wait_status(again, {"SUCCESS"})
    one, two = (environment.of("held", each)["weblake/load_id"] for each in (run, again))
    assert one != two
    assert (environment.rows(one), environment.rows(two)) == (0, 2)  # it took the earlier one's place
    assert environment.started() - before == 2
