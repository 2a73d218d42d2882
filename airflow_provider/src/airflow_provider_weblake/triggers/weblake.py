"""The trigger that waits for one job on the triggerer's event loop.

A restarted triggerer finds all that it needs in the arguments: ids, numbers and the connection's name. Only two limits
of the task, and a kill by a user, make this trigger cancel a job.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from airflow_provider_weblake.features import TRIGGERS_HEAR_KILLS
from airflow_provider_weblake.hooks.shared import shared_client
from airflow_provider_weblake.remedies import in_airflow_terms
from airflow_provider_weblake.task_state import ACTIVE_STATES, astate_of
from airflow_provider_weblake.triggers.events import WeblakeJobsCompletedTrigger, WeblakeUsagePeriodTrigger
from airflow_provider_weblake.triggers.stored import check_interval, error_text, event_of, serialized
from weblake import errors, events, orchestration

if TYPE_CHECKING:
    from weblake import AsyncClient

__all__ = ["WeblakeJobTrigger", "WeblakeJobsCompletedTrigger", "WeblakeUsagePeriodTrigger"]

#: Seconds before the first poll, and between the first two: a trigger that fires at once can meet the scheduler still
#: busy with the deferral (apache/airflow#72716), and the operator has polled before it deferred.
FIRST_S = 5.0
#: The maximum addition to a pause, as a share of it: all jobs of a restarted triggerer begin at the same moment.
SPREAD = 0.5
#: Seconds in which a cancel has to be over; Airflow gives `on_kill` thirty.
CANCEL_S = 20.0
#: Seconds in which Airflow has to return the task's state: a triggerer's first request makes it load its API.
ANSWER_S = 60.0
#: Seconds after which a trigger without a deadline gives up, too: Airflow's own timeout comes long before.
NO_DEADLINE_S = 30 * 24 * 3600.0
#: Seconds after the start in which "not found" is tolerated.
UNSEEN_S = 30.0

#: Cancels in progress. An event loop keeps only weak references to its tasks.
_KILLING: set[asyncio.Task[None]] = set()


@dataclass(kw_only=True, eq=False, repr=False)
class WeblakeJobTrigger(BaseTrigger):
    """Fires once, when a job has ended, its deadline has come, its credits are used up, or it cannot be asked about.

    The event is a small dict: `status` (completed, failed, cancelled, deadline, over_budget, gone or unknown), `kind`,
    `job_id`, `completed`, `total`, `credits_used`. Temporary errors are retried up to the deadline; after other errors,
    such as a refused key, the connection is read anew, and the status is `unknown` if that does not help.

    :param weblake_conn_id: The connection.
    :param kind: batch_scrape or crawl.
    :param job_id: The job's UUID.
    :param deadline: Seconds since 1970 at which waiting ends; None leaves that to the deferral's own timeout.
    :param max_credits: The credits that the job may use.
    :param poll_interval: Seconds between polls at most.
    :param owns_job: Whether the job is cancelled at its deadline and over its budget.
    :param cancel_on_kill: Whether it is cancelled when a person marks or clears the deferred task.
    :param ends_task: Whether a completed job ends the task with success, without a worker.
    :param reconnect_s: Seconds before a connection that cannot be used is read again; None for a few. After that a
        worker checks it.
    """

    weblake_conn_id: str
    kind: str
    job_id: str
    deadline: float | None = None
    max_credits: float | None = None
    poll_interval: float = 30.0
    owns_job: bool = False
    cancel_on_kill: bool = False
    ends_task: bool = False
    reconnect_s: float | None = None

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        check_interval("poll_interval", self.poll_interval)
        #: The counts of the last response; and whether one came since the connection was read.
        self._head: dict[str, object] = {}
        self._answered = False
        self._progress = orchestration.ProgressLog(self.log.log)

    def serialize(self) -> tuple[str, dict[str, object]]:
        """Return the class path and the arguments: ids, numbers and the connection's name."""
        return serialized(self)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the job, and yield the one event."""
        try:
            with in_airflow_terms():
                status = await self._end()
        except asyncio.CancelledError as cancelled:
            if not TRIGGERS_HEAR_KILLS and self._may_be_killed(cancelled):
                await self.on_kill()
            raise
        event = event_of(self._job, status, self._head)
        if self.ends_task and status == "completed":
            yield TaskSuccessEvent(xcoms={"return_value": event})
        else:
            yield TriggerEvent(event)

    async def on_kill(self) -> None:
        """Cancel the job of a task that a person marked or cleared; not called when a triggerer restarts.

        Airflow also calls it for a triggerer that was unresponsive for a while: it has given the triggers to another
        one, and stops them here as if a person had. A task that was cleared may also have taken its job up again by
        now. So Airflow is asked for the state first, and a job that is still waited for elsewhere continues.
        """
        if not self.cancel_on_kill:
            return
        # Airflow repeats its cancel every second until this trigger is gone, and each one interrupts what is awaited
        # here: a slow cancel request to the service would never be sent.
        with in_airflow_terms():
            killing = asyncio.create_task(self._kill(), name=f"cancel {self._job}")
        _KILLING.add(killing)
        killing.add_done_callback(_KILLING.discard)
        await asyncio.shield(killing)

    def _may_be_killed(self, cancelled: asyncio.CancelledError) -> bool:
        """Return whether a user may be the reason of a cancel, where Airflow does not say (before 3.3).

        A triggerer that shuts down gives a reason, and a deferral that has timed out goes on in a worker.
        """
        timeout: datetime | None = getattr(self, "timeout_after", None)
        if timeout is not None and timeout.tzinfo is None:
            timeout = timeout.replace(tzinfo=timezone.utc)
        return not cancelled.args and (timeout is None or timeout > datetime.now(timezone.utc))

    @property
    def _job(self) -> orchestration.JobRef:
        return orchestration.JobRef(self.kind, self.job_id.strip())  # a template may leave a line break

    async def _end(self) -> str:
        """Return how the waiting ended: the job's final status, or one of the trigger's own."""
        until = time.monotonic() + self._left()
        soon = min(FIRST_S, self.poll_interval)
        await self._pause(soon)
        asked_twice = False
        while True:
            try:
                async with shared_client(self.weblake_conn_id) as client:
                    return await self._watch(client, until)
            except Exception as error:  # noqa: BLE001  # an error here would fail the task, and its job would go on
                if isinstance(error.__context__, asyncio.CancelledError):
                    raise error.__context__ from None  # the trigger is stopped; only its client could not be closed
                # A key may have been changed, or the connection may be unreadable for a moment. If that persists, a
                # worker checks it: it names the error, or continues if only the triggerer is at fault.
                self.log.warning("%s cannot be asked about: %s", self._job, error_text(error))
                if asked_twice and not self._answered:
                    return "unknown"
                asked_twice, self._answered = True, False
                await self._pause(soon if self.reconnect_s is None else self.reconnect_s)

    async def _watch(self, client: AsyncClient, until: float) -> str:
        """Poll until the end with this client; raise errors that another poll will not resolve."""
        first = FIRST_S
        while True:
            try:
                head = await client.run(
                    orchestration.wait(
                        self._job,
                        client.retry.observed_by(self._observe),
                        until=until,
                        unseen_s=0.0 if self._head else UNSEEN_S,
                        first_s=min(first, self.poll_interval),
                        poll_s=self.poll_interval,
                        max_credits=self.max_credits if self.owns_job else None,
                        until_deadline=True,
                    )
                )
                return str(head.get("status")).lower()
            except orchestration.OverBudget:
                return await self._stop("over_budget")
            except errors.DeadlineExceeded:
                return await self._stop("deadline")
            except errors.JobGone:
                return "gone"
            except errors.RetryLater as error:
                self._progress.log_trouble(f"{self._job} cannot be asked about now; it is asked again: {error}")
                first = self.poll_interval
                await self._pause(self.poll_interval)

    def _observe(self, event: events.Event) -> None:
        """Log an event, and keep the counts of a poll."""
        self._progress(event)
        if isinstance(event, events.StatusPolled):
            self._answered = True
            counts = {"completed": event.completed, "total": event.total, "creditsUsed": event.credits_used}
            self._head |= {name: count for name, count in counts.items() if count is not None}

    async def _stop(self, why: str) -> str:
        if self.owns_job:
            await self._cancel(why)
        return why

    async def _kill(self) -> None:
        """Cancel the job unless its task still uses it, or Airflow does not answer."""
        try:
            assert self.task_instance is not None
            async with asyncio.timeout(ANSWER_S):
                state = await astate_of(self.task_instance)
        except Exception as error:  # noqa: BLE001  # after any error: without an answer nothing is cancelled
            self.log.warning("This trigger is stopped, and Airflow does not say why: %s goes on.", self._job)
            self.log.debug("The state of the task is not known: %s", type(error).__name__)
            return
        if state in ACTIVE_STATES:
            self.log.info("This trigger is stopped, and its task is %s: %s goes on.", state, self._job)
        else:
            await self._cancel("its task was marked or cleared")

    async def _cancel(self, why: str) -> None:
        """Cancel the job; log a cancel that fails or takes too long."""
        try:
            async with asyncio.timeout(CANCEL_S), shared_client(self.weblake_conn_id) as client:
                cancelled = await client.run(orchestration.cancel(self._job, client.retry))
        except Exception as error:  # noqa: BLE001  # the secrets backend of the connection has errors of its own
            said = f"no answer within {CANCEL_S:g} s" if isinstance(error, TimeoutError) else error_text(error)
            self.log.warning("%s is to be cancelled (%s), and could not be: %s", self._job, why, said)
        else:
            self.log.info("The %s: %s.", orchestration.describe_cancel(self._job, cancelled=cancelled), why)

    def _left(self) -> float:
        """Return the seconds to the deadline."""
        return NO_DEADLINE_S if self.deadline is None else max(0.0, self.deadline - time.time())

    async def _pause(self, seconds: float) -> None:
        """Sleep for a time plus jitter; never beyond the deadline."""
        spread = 1 + SPREAD * random.random()  # noqa: S311  # jitter, no secret
        await asyncio.sleep(min(seconds * spread, self._left()))
