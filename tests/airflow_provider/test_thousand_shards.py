"""Tests of row O7 of the fault catalogue: a thousand mapped tasks, with Airflow's own expansion and TriggerRunner.

A thousand jobs are not scraped here: the tests cover what a thousand tasks share (one client, one budget of retries,
one table of XComs), and that their retries are spread.

Under `system` a quarter of them, and the thousand under `nightly`.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from airflow.sdk import DAG, task
from async_jobs import count_requests, start, trigger
from catalogue import proves
from dag_runs import Run, returned
from job_trigger_runner import UNKNOWN_JOB, Runner, run

from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
from airflow_provider_weblake.triggers import weblake as triggers
from airflow_provider_weblake.url_shards import UrlShard, read_urls_or_shard, url_shards
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    from gated_site import GatedSite

SHARDS = 1000
many = pytest.mark.parametrize("many", [250, pytest.param(SHARDS, marks=pytest.mark.nightly)])
#: Bytes of one shard in the list that goes through XCom.
SHARD = 600


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def in_time(done: Callable[[], bool]) -> None:
    """Waits; a thousand of anything take their time on a busy machine."""
    deadline = time.monotonic() + 150
    while not done():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.1)


@pytest.mark.system
@proves(
    "O7",
    at="src/weblake/loads/urls/shards.py",
    line="digest=digest.text(),",
    becomes="digest=digest.text(), urls=[url],",
    case="250",
)
@many
def test_o7_a_thousand_shards_are_mapped_without_urls_in_xcom(run_dag: Run, tmp_path: Path, many: int) -> None:
    urls = [f"https://shards.example/{number}" for number in range(5 * many)]
    listed = tmp_path / "urls.txt"
    listed.write_text("\n".join(urls))
    with DAG("a_thousand_shards", schedule=None) as dag:

        @task
        def cut() -> list[UrlShard]:
            return url_shards(listed, shards=many)

        WeblakeBatchScrapeOperator.partial(task_id="scrape", to=str(tmp_path / "lake")).expand(urls=cut())

    found = run_dag(dag, mark_success_pattern="scrape")
    assert found.state == "success"
    mapped = [ti.map_index for ti in found.get_task_instances() if ti.task_id == "scrape"]
    assert sorted(mapped) == list(range(many))
    shards = returned(found, "cut")
    assert max(len(json.dumps(shard)) for shard in shards) < SHARD
    assert "https://shards.example" not in json.dumps(shards)
    assert [url for shard in shards for url in read_urls_or_shard(shard)] == urls


@pytest.mark.system
@proves(
    "O7",
    at="airflow_provider/src/airflow_provider_weblake/hooks/shared.py",
    line="shared = mine.clients.get(endpoint)",
    becomes="shared = None",
    case="250",
)
@many
def test_o7_a_thousand_jobs_wait_with_the_sockets_and_the_memory_of_one(
    weblake_connection: WeblakeService, site: GatedSite, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(triggers, "FIRST_S", 0.05)

    async def story(runner: Runner) -> None:
        job_id = await start(weblake_connection, *site.held(1))
        files, memory = len(os.listdir("/proc/self/fd")), resident()
        tasks = [runner.start(trigger(job_id, poll_interval=120.0)) for _ in range(many)]
        await in_time(lambda: count_requests(weblake_connection, "GET", job_id) >= many)
        # Both ends of each connection are in this process, and so is all that it logs of a thousand requests.
        assert len(os.listdir("/proc/self/fd")) - files < 300
        assert resident() - memory < 128 << 20
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks, timeout=30)

    run(story)


@proves(
    "O7",
    at="airflow_provider/src/airflow_provider_weblake/triggers/weblake.py",
    line="spread = 1 + SPREAD * random.random()",
    becomes="spread = 1.0",
)
def test_o7_jobs_that_were_deferred_together_are_not_polled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def story() -> None:
        for _ in range(SHARDS):
            await trigger(UNKNOWN_JOB, poll_interval=30.0)._pause(30.0)

    monkeypatch.setattr(triggers, "asyncio", SimpleNamespace(sleep=sleep))
    asyncio.run(story())
    assert 30 <= min(pauses) <= max(pauses) <= 45
    in_one_second = max(sum(begin <= each < begin + 1 for each in pauses) for begin in range(30, 45))
    assert in_one_second < SHARDS / 5
