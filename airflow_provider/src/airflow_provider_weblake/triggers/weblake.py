"""Waits for one job on the triggerer's event loop. Imports: hooks.shared, wording; weblake without Arrow.

A triggerer that is restarted finds in the arguments all that it needs: ids, numbers and the connection's name. Nothing
here decides about money but the two limits that a task was given, and a kill by a person.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from airflow_provider_weblake.hooks.shared import shared_client
from airflow_provider_weblake.triggers.events import WeblakeJobsCompletedTrigger, WeblakeUsagePeriodTrigger
from weblake import errors, orchestration

if TYPE_CHECKING:
    from pydantic import JsonValue

    from weblake import AsyncClient

__all__ = ["WeblakeJobTrigger", "WeblakeJobsCompletedTrigger", "WeblakeUsagePeriodTrigger"]

#: Seconds before the first poll: a trigger that fires at once can meet the scheduler still busy with the deferral
#: (apache/airflow#72716). The operator has looked before it deferred.
FIRST_S = 5.0
#: Seconds in which a cancel has to be over; Airflow gives `on_kill` thirty.
CANCEL_S = 20.0
#: Seconds after which even a trigger without a deadline gives up: Airflow's own timeout comes long before.
NO_DEADLINE_S = 30 * 24 * 3600.0
#: Seconds in which a job may not be found yet.
UNSEEN_S = 30.0


class WeblakeJobTrigger(BaseTrigger):
    """Fires once, when a job has ended, its deadline has come, its credits are used up, or it cannot be asked about.

    The event is a small dict: `status` (completed, failed, cancelled, deadline, over_budget, gone or unknown), `kind`,
    `job_id`, `completed`, `total`, `credits_used`. Trouble that may pass is waited out up to the deadline.

    :param weblake_conn_id: The connection.
    :param kind: batch_scrape or crawl.
    :param job_id: The job's UUID.
    :param deadline: Seconds since 1970 at which waiting ends; None leaves that to the deferral's own timeout.
    :param max_credits: What the job may use.
    :param poll_interval: Seconds between polls at most.
    :param owns_job: Whether the job is cancelled at its deadline and over its budget.
    :param cancel_on_kill: Whether it is cancelled when a person marks or clears the deferred task.
    :param ends_task: Whether a completed job ends the task with success, without a worker.
    """

    def __init__(
        self,
        *,
        weblake_conn_id: str,
        kind: str,
        job_id: str,
        deadline: float | None = None,
        max_credits: float | None = None,
        poll_interval: float = 30.0,
        owns_job: bool = False,
        cancel_on_kill: bool = False,
        ends_task: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weblake_conn_id = weblake_conn_id
        self.kind = kind
        self.job_id = job_id
        self.deadline = deadline
        self.max_credits = max_credits
        self.poll_interval = poll_interval
        self.owns_job = owns_job
        self.cancel_on_kill = cancel_on_kill
        self.ends_task = ends_task

    def serialize(self) -> tuple[str, dict[str, object]]:
        """Ids, numbers and the connection's name."""
        return (
            "airflow_provider_weblake.triggers.weblake.WeblakeJobTrigger",
            {
                "weblake_conn_id": self.weblake_conn_id,
                "kind": self.kind,
                "job_id": self.job_id,
                "deadline": self.deadline,
                "max_credits": self.max_credits,
                "poll_interval": self.poll_interval,
                "owns_job": self.owns_job,
                "cancel_on_kill": self.cancel_on_kill,
                "ends_task": self.ends_task,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Waits, and yields the one event."""
        event = await self._wait()
        if self.ends_task and event["status"] == "completed":
            yield TaskSuccessEvent(xcoms={"return_value": event})
        else:
            yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Cancels the job of a task that a person marked or cleared; a restart of the triggerer does not come here."""
        if not self.cancel_on_kill:
            return
        async with shared_client(self.weblake_conn_id) as client:
            await self._cancel(client, "its task was marked or cleared")

    @property
    def _job(self) -> orchestration.JobRef:
        return orchestration.JobRef(self.kind, self.job_id)

    async def _wait(self) -> dict[str, JsonValue]:
        ends_at = time.time() + NO_DEADLINE_S if self.deadline is None else self.deadline
        until = time.monotonic() + ends_at - time.time()
        head: dict[str, object] = {}
        async with shared_client(self.weblake_conn_id) as client:
            await asyncio.sleep(min(FIRST_S, self.poll_interval, max(0.0, ends_at - time.time())))
            while True:
                try:
                    head = await client.run(self._flow(client, until, head))
                    return self._event(str(head.get("status")).lower(), head)
                except orchestration.OverBudget:
                    return await self._stop(client, "over_budget", head)
                except errors.DeadlineExceeded:
                    return await self._stop(client, "deadline", head)
                except errors.JobGone:
                    return self._event("gone", head)
                except errors.RetryLater as error:
                    self.log.warning("%s cannot be asked about now: %s", self._job.words, error)
                    await asyncio.sleep(min(self.poll_interval, max(0.0, ends_at - time.time())))
                except errors.WeblakeError as error:
                    self.log.warning("%s cannot be asked about: %s", self._job.words, error)
                    return self._event("unknown", head)

    def _flow(
        self, client: AsyncClient, until: float, head: dict[str, object]
    ) -> orchestration.Flow[dict[str, object]]:
        """The wait; `head` holds the last reply's counts whatever happens."""

        def seen(found: Mapping[str, object]) -> None:
            if found.get("status") != head.get("status"):
                self.log.info("%s is %s.", self._job.words, found.get("status"))
            head.update(found)

        return orchestration.wait(
            self._job,
            client.retry,
            until=until,
            unseen_s=UNSEEN_S if not head else 0.0,
            poll_s=self.poll_interval,
            max_credits=self.max_credits if self.owns_job else None,
            progress=seen,
        )

    async def _stop(self, client: AsyncClient, why: str, head: Mapping[str, object]) -> dict[str, JsonValue]:
        if self.owns_job:
            await self._cancel(client, why)
        return self._event(why, head)

    async def _cancel(self, client: AsyncClient, why: str) -> None:
        try:
            await asyncio.wait_for(client.run(orchestration.cancel(self._job, client.retry)), CANCEL_S)
        except (errors.WeblakeError, TimeoutError) as error:
            self.log.warning("%s is to be cancelled (%s), and could not be: %s", self._job.words, why, error)
        else:
            self.log.info("Cancelled %s: %s.", self._job.words, why)

    def _event(self, status: str, head: Mapping[str, object]) -> dict[str, JsonValue]:
        return event_of(self._job, status, head)


def event_of(job: orchestration.JobRef, status: str, head: Mapping[str, object]) -> dict[str, JsonValue]:
    """What is told of a job: its end and its counts, no text. Airflow logs and stores every event as it is."""
    return {
        "status": status,
        "kind": job.kind,
        "job_id": job.job_id,
        "completed": _number(head.get("completed")),
        "total": _number(head.get("total")),
        "credits_used": _number(head.get("creditsUsed")),
    }


def _number(value: object) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
