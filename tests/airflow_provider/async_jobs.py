"""Helpers that start jobs and run triggers on an event loop, and wait for their results.

Imports nothing that only some releases of Airflow have. A test module imports it after conftest.py has set Airflow's
home.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger
from weblake.testing import WeblakeService

#: Time limit of a wait, in seconds.
TIMEOUT_S = 60.0


@dataclass
class Waiting:
    """The task instance that is deferred, as a triggerer knows it."""

    id: str = "00000000-0000-7000-8000-000000000000"
    dag_id: str = "dag"
    task_id: str = "land"
    run_id: str = "run"
    map_index: int = -1
    try_number: int = 1
    context_carrier: None = None


class Watched(Protocol):
    """An object whose failures end a wait."""

    failed: Mapping[int, BaseException]


async def until(what: Callable[[], object], *, watched: Watched | None = None) -> None:
    """Wait until `what` returns a true value; fail after TIMEOUT_S or when `watched` has failed."""
    ends = time.monotonic() + TIMEOUT_S
    while not what():
        assert watched is None or not watched.failed, watched.failed
        assert time.monotonic() < ends, "the condition did not become true"
        await asyncio.sleep(0.02)


def run_in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 4 * TIMEOUT_S))


async def start(service: WeblakeService, *urls: str) -> str:
    """Starts a batch and returns its id; a page that is held does not end by itself before the test lets it go."""
    with service.client() as client:
        reply = await asyncio.to_thread(client.start_batch_scrape, list(urls), timeout=240_000)
    assert reply.id
    return str(reply.id)


async def land(service: WeblakeService, *urls: str) -> str:
    """Starts a batch, waits until it has completed and returns its id."""
    job_id = await start(service, *urls)
    with service.client() as client:
        ends = time.monotonic() + TIMEOUT_S
        while (await asyncio.to_thread(client.get_batch_scrape, job_id)).status != "completed":
            assert time.monotonic() < ends
            await asyncio.sleep(0.02)
    return job_id


def trigger(job_id: str, **options: Any) -> WeblakeJobTrigger:
    given = {"weblake_conn_id": "weblake_default", "kind": "batch_scrape", "poll_interval": 0.1}
    return WeblakeJobTrigger(job_id=job_id, **{**given, **options})


def count_requests(service: WeblakeService, method: str, job_id: str = "") -> int:
    return len([r for r in service.requests() if r["method"] == method and job_id in str(r["path"])])


async def status_of(service: WeblakeService, job_id: str) -> str:
    with service.client() as client:
        return str((await asyncio.to_thread(client.get_batch_scrape, job_id)).status)


def connect(monkeypatch: pytest.MonkeyPatch, url: str, key: str) -> None:
    connection = {"conn_type": "weblake", "host": url, "password": key}
    monkeypatch.setenv("AIRFLOW_CONN_WEBLAKE_DEFAULT", json.dumps(connection))
