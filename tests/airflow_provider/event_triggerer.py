"""A test double of a triggerer's runner and its supervisor, around Airflow's own shared streams and state accessors.

Imports airflow, so a test module imports it after conftest.py has set Airflow's home.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    AssetStateStoreResult,
    ErrorResponse,
    GetAssetStateStoreByName,
    SetAssetStateStoreByName,
)
from airflow.sdk.execution_time.context import AssetStateStoreAccessors
from airflow.triggers.base import BaseEventTrigger
from airflow.triggers.shared_stream import SharedStreamManager
from async_jobs import until

from airflow_provider_weblake.triggers import events, watching
from airflow_provider_weblake.triggers.events import WeblakeJobsCompletedTrigger
from weblake.testing import WeblakeService

#: A poll interval that tests can wait for.
POLL_S = 0.05


class Supervisor:
    """A test double of a triggerer's supervisor: answers the messages of Airflow's accessors from a dict."""

    def __init__(self) -> None:
        self.state: dict[tuple[str, str], Any] = {}
        self.writes = 0
        self.broken = False

    async def asend(self, message: object) -> object:
        await asyncio.sleep(0)
        if self.broken:
            raise ConnectionResetError("the supervisor is gone")
        if isinstance(message, GetAssetStateStoreByName):
            value = self.state.get((message.name, message.key))
            if value is None:
                return ErrorResponse(error="ASSET_STORE_NOT_FOUND")
            return AssetStateStoreResult(value=json.loads(value))
        if isinstance(message, SetAssetStateStoreByName):
            self.writes += 1
            self.state[message.name, message.key] = json.dumps(message.value)
            return None
        return None  # masks of secrets

    def send(self, message: object) -> object:
        raise AssertionError(f"a synchronous call on the event loop: {type(message).__name__}")

    def of(self, asset: str) -> list[dict[str, Any]]:
        return [json.loads(value) for (name, _), value in self.state.items() if name == asset]


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch, weblake_connection: WeblakeService) -> Supervisor:
    """The other end of the accessors, with quick polls and a connection to the embedded service."""
    monkeypatch.setattr(watching, "MIN_INTERVAL_S", POLL_S)
    supervisor = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    return supervisor


class Triggerer:
    """Runs watchers as Airflow's TriggerRunner does: one shared stream manager; stored events are confirmed."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.manager = SharedStreamManager()
        self.fired: list[tuple[int, dict[str, Any]]] = []
        self.failed: dict[int, BaseException] = {}
        self._confirms = confirms
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def watch(self, trigger: BaseEventTrigger, *assets: str) -> int:
        number = len(self._tasks) + 1
        classpath, kwargs = trigger.serialize()
        module, _, name = classpath.rpartition(".")
        assert module == events.__name__
        running: BaseEventTrigger = getattr(events, name)(**json.loads(json.dumps(kwargs)))
        if assets:
            running.asset_state_store = AssetStateStoreAccessors([Asset(name=each) for each in assets])
        self._tasks[number] = asyncio.create_task(self._run(number, running))
        return number

    async def _run(self, number: int, trigger: BaseEventTrigger) -> None:
        key = trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=number, trigger=trigger, key=key)
        try:
            async for event in trigger.filter_shared_stream(stream):
                json.dumps(event.payload)
                seq = self.manager.bind_pending_event(trigger_id=number, key=key)
                assert seq is not None, "not in Airflow's ack mode"
                self.fired.append((number, event.payload))
                if self._confirms:
                    asyncio.get_running_loop().call_later(0.01, self.manager.confirm_persisted, [seq])
        except Exception as error:  # noqa: BLE001 - as the runner does
            self.failed[number] = error
        finally:
            await self.manager.unsubscribe(number, key)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.manager.stop_all()


@asynccontextmanager
async def triggerer(**options: Any) -> AsyncIterator[Triggerer]:
    running = Triggerer(**options)
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def one_watcher(supervisor: Supervisor, trigger: BaseEventTrigger, asset: str) -> AsyncIterator[Triggerer]:
    """Run a triggerer with one watcher of an asset, from the first state that it stores on."""
    async with triggerer() as running:
        running.watch(trigger, asset)
        await until(lambda: supervisor.of(asset), watched=running)
        yield running


async def wait_for_polls(service: WeblakeService, more: int, *, path: str = "/v2/team/activity") -> None:
    """Wait until the service has received `more` further requests for the path."""
    before = count_calls(service, path)
    await until(lambda: count_calls(service, path) >= before + more)


def count_calls(service: WeblakeService, path: str) -> int:
    """Return how many requests for this path the service has received."""
    return len([request for request in service.requests() if str(request["path"]).partition("?")[0] == path])


def batches(**options: Any) -> WeblakeJobsCompletedTrigger:
    """Return a watcher of batches with a short poll interval."""
    return WeblakeJobsCompletedTrigger(poll_interval=POLL_S, **options)
