"""Job triggers run as Airflow's triggerer runs them, on an event loop that must be empty afterwards.

Imports airflow, so a test module imports it after conftest.py has set Airflow's home.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import pytest
from airflow.jobs import triggerer_job_runner
from airflow.jobs.triggerer_job_runner import TriggerRunner
from airflow.models.trigger import Trigger
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection, GetTaskStates, TaskStatesResult
from airflow.triggers.base import TriggerEvent
from async_jobs import Waiting, in_loop, trigger, until

from airflow_provider_weblake.hooks import shared
from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger

STATUS = {"method": "GET", "path": "/v2/batch/scrape/"}
CANCEL = {"method": "DELETE", "path": "/v2/batch/scrape/"}
NOBODY = "00000000-0000-4000-8000-000000000000"
#: What the triggerer sends with the cancel of a task that a person marked or cleared; nothing before Airflow 3.3.
BY_A_PERSON = getattr(triggerer_job_runner, "_USER_ACTION_CANCEL_MSG", None)
#: What it sends when it shuts down; nothing since Airflow 3.3.
BY_A_SHUTDOWN = None if BY_A_PERSON else "EOF - shutting down"


class Runner:
    """Airflow's runner of triggers: each trigger goes through what a database keeps of it.

    It is its supervisor, too, and answers what state the task of all its triggers is in.
    """

    def __init__(self) -> None:
        self._runner = TriggerRunner()
        #: What Airflow has the task for: None where it was cleared; an exception where Airflow does not answer.
        self.state: str | Exception | None = None

    def send(self, message: object) -> object:
        """What the triggerer's supervisor answers."""
        if isinstance(message, GetConnection):  # those of the tests are in the environment
            return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)
        if not isinstance(message, GetTaskStates):
            return None  # masks of secrets
        if isinstance(self.state, Exception):
            raise self.state
        assert message.run_ids is not None
        assert message.task_ids is not None
        return TaskStatesResult(task_states={message.run_ids[0]: {message.task_ids[0]: self.state}})

    async def asend(self, message: object) -> object:
        return self.send(message)

    def start(self, trigger: WeblakeJobTrigger) -> asyncio.Task[None]:
        classpath, kwargs = trigger.serialize()
        kept = Trigger._decrypt_kwargs(Trigger(classpath=classpath, kwargs=kwargs).encrypted_kwargs)
        number = len(self._runner.triggers) + 1
        module, _, name = classpath.rpartition(".")
        running = getattr(import_module(module), name)(**kept)
        running.task_instance = Waiting()
        running.timeout_after = None
        self._runner.triggers[number] = {"name": f"number {number}", "events": 0, "is_watcher": False}  # type: ignore[typeddict-item]
        task = asyncio.create_task(self._runner.run_trigger(number, running), name=f"trigger {number}")
        self._runner.triggers[number]["task"] = task
        return task

    @property
    def fired(self) -> list[TriggerEvent]:
        # Before Airflow 3.3, an entry is a pair.
        return [entry[1] if isinstance(entry, tuple) else entry.event for entry in self._runner.events]


@asynccontextmanager
async def nothing_left() -> AsyncIterator[Runner]:
    """A runner, after which neither a task nor a client is left on this loop."""
    before, runner = asyncio.all_tasks(), Runner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_runner, "SUPERVISOR_COMMS", runner, raising=False)
        yield runner
    await until(lambda: asyncio.all_tasks() <= before)
    mine = shared._LOOPS.get(asyncio.get_running_loop())
    assert mine is None or (not mine.clients and not mine.reads)


def run(story: Callable[[Runner], Awaitable[None]]) -> None:
    async def main() -> None:
        async with nothing_left() as runner:
            await story(runner)

    in_loop(main)


async def fire(runner: Runner, job_id: str, **options: Any) -> dict[str, Any]:
    """Runs a trigger to its event."""
    await asyncio.wait_for(runner.start(trigger(job_id, **options)), 60)
    (event,) = runner.fired
    payload = event.payload
    assert isinstance(payload, dict)
    return payload
