"""The decision whether to cancel a job when Dagster stops the step that waits for it.

Dagster interrupts a step when a user terminates its run or the run's time is up, and also when the machine is taken
away (a pod is evicted, a worker shuts down). Only the first two are a reason to cancel a paid job: after the others a
retry continues with it. The signal is the same, so the run's events are read. A user and the time limit are not told
apart, although Dagster may retry a run that was over its time limit: that retry pays for another job.

A step body has to be synchronous: Dagster 1.13 never resumes an async one after the interrupt, so that it could not
cancel anything.

Some executors (Celery) do not tell a step that its run was terminated, and may begin one after that. Python discards an
interrupt that is raised in a finalizer. The step therefore reads the events when it begins, and while it waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from weblake import orchestration
from weblake.errors import OutcomeUnknown, WeblakeError

if TYPE_CHECKING:
    import weblake
    from weblake.orchestration import Dataset, JobRef, LoadRequest

#: Seconds in which an interrupted start is looked up again: a pod has thirty until it is killed.
FIND_S = 15.0
#: Seconds between two looks at the run's events, a query of Dagster's database by each step that waits.
CHECK_S = 30.0
#: Jobs that are cancelled at the same time: a run over many partitions has as little time for all of them as for one.
PARALLEL_CANCELS = 16
#: The events of a run that a user, its time limit or its launcher has terminated.
_TERMINATIONS = {dg.DagsterEventType.RUN_CANCELING, dg.DagsterEventType.RUN_CANCELED}


class RunTerminated(dg.DagsterError, dg.DagsterExecutionInterruptedError):
    """The interrupt of a step whose run was terminated.

    Dagster applies the retry policy of a step to its interrupts, and in one process (the in-process executor) the retry
    would run, and pay for another job. An error of Dagster's own class is not retried.
    """


# The multiprocess executor knows an interrupt of a child process by this name.
RunTerminated.__name__ = dg.DagsterExecutionInterruptedError.__name__


@dataclass(slots=True)
class InterruptHandler:
    """Cancels the jobs of a step when they are not wanted any more."""

    context: dg.AssetExecutionContext
    #: Makes a separate client: the interrupted one may be in the middle of a response.
    connect: Callable[[], weblake.Client]
    dataset: Dataset
    #: The requests that are being landed, by load id; None for a load that another step has started.
    open: dict[str, LoadRequest | None] = field(default_factory=dict)
    #: The time of the last look at the run's events, by the monotonic clock.
    _checked_at: float = field(default_factory=time.monotonic)

    @contextmanager
    def watching(self) -> Iterator[InterruptHandler]:
        """Return a context manager that decides about the jobs if its block is interrupted, and re-raises."""
        try:
            self.check_now()  # it may have waited in a queue
            yield self
        except dg.DagsterExecutionInterruptedError as interrupt:
            if self._cancel_if_terminated():
                raise RunTerminated(str(interrupt)) from interrupt
            raise

    def check(self) -> None:
        """Look whether the run was terminated, if the last time was some time ago; raise as `check_now`."""
        if time.monotonic() - self._checked_at >= CHECK_S:
            self.check_now()

    def check_now(self) -> None:
        """Raise if the run was terminated.

        Raises:
            dagster.DagsterExecutionInterruptedError: It was.
        """
        self._checked_at = time.monotonic()
        if self._is_terminated():
            raise dg.DagsterExecutionInterruptedError()

    def _is_terminated(self) -> bool:
        """Return whether a user or its time limit has ended the run: the event is stored before the step is told."""
        run_id, instance = self.context.run.run_id, self.context.instance
        return bool(instance.get_records_for_run(run_id, of_type=_TERMINATIONS, limit=1).records)

    def _cancel_if_terminated(self) -> bool:
        """Cancel the open jobs if the run was terminated, and return whether it was."""
        terminated = self._is_terminated()
        if self.open and not terminated:
            self.context.log.warning(
                "This step is being stopped, and its run was not terminated: its jobs go on, and a retry lands them."
            )
        elif self.open:
            # The threads go on if a second signal interrupts this one.
            with self.connect() as client, ThreadPoolExecutor(PARALLEL_CANCELS) as threads:
                cancels = [
                    threads.submit(copy_context().run, self._cancel, client, load_id, load_request)
                    for load_id, load_request in self.open.items()
                ]
                for done in as_completed(cancels):
                    if message := done.result():
                        self.context.log.log(*message)
        return terminated

    def _cancel(self, client: weblake.Client, load_id: str, load_request: LoadRequest | None) -> tuple[int, str] | None:
        """Cancel the job of a load, if it has one, and return the level and text of the message to log."""
        try:
            job = self._job(client, load_id, load_request)
            if job is None:
                return None
            cancelled = client.run(orchestration.cancel(job, client.retry))
            done = orchestration.describe_cancel(job, cancelled=cancelled)
            return logging.INFO, f"The {done}: its run was terminated."
        except WeblakeError as error:
            return logging.WARNING, f"The job of load {load_id} could not be cancelled: {error}"

    def _job(self, client: weblake.Client, load_id: str, load_request: LoadRequest | None) -> JobRef | None:
        """Return the job of a load; if its start was interrupted, repeat it at a service that replays starts.

        Raises:
            OutcomeUnknown: The service is another one, at which that job cannot be known now.
        """
        state = orchestration.LoadState(self.dataset, load_id)
        job = state.job
        if job is None and load_request is not None and load_request.start is not None:
            intent, last = state.intent, state.last_start
            if intent is None or last is None or last.void:
                return None
            if not intent.replay:
                raise OutcomeUnknown("Its start was being answered.", hint="A re-execution from failure finds the job.")
            _, job, _ = orchestration.start_load(client, self.dataset, load_request, until=time.monotonic() + FIND_S)
        if job is None or job.kind not in orchestration.JOB_KINDS:
            return None
        return orchestration.JobRef(job.kind, job.job_id)
