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
from async_jobs import Waiting, run_in_loop, trigger, until

from airflow_provider_weblake.hooks import shared
from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger

STATUS = {"method": "GET", "path": "/v2/batch/scrape/"}
CANCEL = {"method": "DELETE", "path": "/v2/batch/scrape/"}
UNKNOWN_JOB = "00000000-0000-4000-8000-000000000000"
#: Message with which the triggerer cancels the trigger of a task that a user marked or cleared (since Airflow 3.3).
USER_CANCEL = getattr(triggerer_job_runner, "_USER_ACTION_CANCEL_MSG", None)
#: Message with which it cancels triggers when it shuts down (before Airflow 3.3).
SHUTDOWN_CANCEL = None if USER_CANCEL else "EOF - shutting down"


class Runner:
    """Airflow's TriggerRunner, whose triggers are serialised and deserialised as in the database.

    It is also the supervisor of the runner, and returns the state of the task of all its triggers.
    """

    def __init__(self) -> None:
        self._runner = TriggerRunner()
        #: The state of the task in Airflow: None if it was cleared; an exception if Airflow does not respond.
        self.state: str | Exception | None = None

    def send(self, message: object) -> object:
        """Return the response of the triggerer's supervisor to a message."""
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
async def runner_without_leaks() -> AsyncIterator[Runner]:
    """Yield a runner, and check afterwards that neither a task nor a client is left on this event loop."""
    before, runner = asyncio.all_tasks(), Runner()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_runner, "SUPERVISOR_COMMS", runner, raising=False)
        yield runner
    mine = shared._LOOPS.get(asyncio.get_running_loop())
    # The callback that removes a read runs after its task has ended.
    await until(lambda: asyncio.all_tasks() <= before and (mine is None or not (mine.clients or mine.reads)))


def run(story: Callable[[Runner], Awaitable[None]]) -> None:
    async def main() -> None:
        async with runner_without_leaks() as runner:
            await story(runner)

    run_in_loop(main)


async def fire(runner: Runner, job_id: str, **options: Any) -> dict[str, Any]:
    """Run a trigger to its event, and return the payload of the event."""
    await asyncio.wait_for(runner.start(trigger(job_id, **options)), 60)
    (event,) = runner.fired
    payload = event.payload
    assert isinstance(payload, dict)
    return payload
