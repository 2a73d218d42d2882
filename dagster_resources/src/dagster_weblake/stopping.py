"""The decision whether to cancel a job when Dagster stops the step that waits for it.

Dagster interrupts a step when a user terminates its run or the run's time is up, and also when the machine is taken
away (a pod is evicted, a worker shuts down). Only the first two are a reason to cancel a paid job: after the others a
retry continues with it. The signal is the same, so the run's status is read: CANCELING, now or before it failed, means
that a user or the time limit ended the run. Dagster retries a run that was over its time limit if `run_retries` permit
it: then its job goes on as well.

A step body has to be synchronous: Dagster 1.13 never resumes an async one after the interrupt, so that it could not
cancel anything.

Dagster raises the interrupt in the handler of the signal. Python discards an error that is raised in a finalizer or in
the callback of a weak reference, so that an interrupt at such a moment would be lost and the step would wait on. Some
executors (Celery) do not tell a step at all that its run was terminated, and may begin one after that. The step
therefore checks whether it has to stop when it begins, and at each poll of a job.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.run_retries import terminations, will_retry
from weblake import orchestration
from weblake.errors import WeblakeError

if TYPE_CHECKING:
    import weblake
    from weblake.orchestration import Dataset, JobRef, LoadRequest

#: Seconds in which an interrupted start is looked up again: a pod has thirty until it is killed.
FIND_S = 15.0
#: Seconds between two reads of the run's status, a query of Dagster's database by each step that waits.
STATUS_CHECK_S = 30.0
#: Jobs that are cancelled at the same time: a run over many partitions has as little time for all of them as for one.
PARALLEL_CANCELS = 16
_CANCELED = (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)
#: The signals of which Dagster makes interrupts.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
    _interrupted: bool = False
    #: When the run's status was read last, by the monotonic clock.
    _checked_at: float = field(default_factory=time.monotonic)

    @contextmanager
    def watching(self) -> Iterator[InterruptHandler]:
        """Return a context manager that decides about the jobs if its block is interrupted, and re-raises."""
        try:
            with self._signals_recorded():
                self._check_run()  # it may have waited in a queue
                yield self
        except dg.DagsterExecutionInterruptedError as interrupt:
            if self._cancel_if_terminated():
                raise RunTerminated(str(interrupt)) from interrupt
            raise

    def check(self) -> None:
        """Raise if the step has to stop: by a signal that has not ended the block, or because its run was terminated.

        Raises:
            dagster.DagsterExecutionInterruptedError: The step is being stopped.
        """
        if self._interrupted:
            raise dg.DagsterExecutionInterruptedError()
        if time.monotonic() - self._checked_at >= STATUS_CHECK_S:
            self._check_run()

    def _check_run(self) -> None:
        """Raise as `check` if the run was terminated, whatever the time of the last check."""
        self._checked_at = time.monotonic()
        if self._is_terminated(self._run()):
            raise dg.DagsterExecutionInterruptedError()

    def _run(self) -> dg.DagsterRun | None:
        run: dg.DagsterRun | None = self.context.instance.get_run_by_id(self.context.run.run_id)
        return run

    def _is_terminated(self, run: dg.DagsterRun | None) -> bool:
        """Return whether a person or its time limit has ended the run."""
        if run is None:
            return False
        if run.status != dg.DagsterRunStatus.FAILURE:
            return run.status in _CANCELED
        # The daemon reports a run that is over its time limit as failed when it has sent the signal.
        return bool(terminations(self.context.instance, run))

    @contextmanager
    def _signals_recorded(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():  # Dagster does not interrupt other threads either
            yield
            return
        handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}

        def record(number: int, frame: FrameType | None) -> None:
            self._interrupted = True
            handlers[signal.Signals(number)](number, frame)

        try:
            for number in handlers:
                signal.signal(number, record)
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _cancel_if_terminated(self) -> bool:
        """Cancel the open jobs if the run was terminated and is not retried, and return whether it was terminated."""
        run = self._run()
        if run is None or not self._is_terminated(run):
            status = "unknown" if run is None else run.status.value
            self._leave(
                f"This step is being stopped, and its run was not terminated (its status is {status}): "
                "its jobs go on, and a retry lands them."
            )
            return False
        if will_retry(self.context.instance, run):
            self._leave("This step is being stopped, and Dagster retries its run: its jobs go on for the retry.")
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
        return True

    def _leave(self, message: str) -> None:
        """Report that the open jobs go on, if there are any."""
        if self.open:
            self.context.log.warning(message)

    def _cancel(self, client: weblake.Client, load_id: str, load_request: LoadRequest | None) -> tuple[int, str] | None:
        """Cancel the job of a load, if it has one, and return the level and text of the message to log."""
        try:
            job = self._job(client, load_id, load_request)
            if job is None:
                return None
            if isinstance(job, str):
                return logging.WARNING, job
            cancelled = client.run(orchestration.cancel(job, client.retry))
            done = orchestration.describe_cancel(job, cancelled=cancelled)
            return logging.INFO, f"The {done}: its run was terminated."
        except WeblakeError as error:
            return logging.WARNING, f"The job of load {load_id} could not be cancelled: {error}"

    def _job(self, client: weblake.Client, load_id: str, load_request: LoadRequest | None) -> JobRef | str | None:
        """Return the job of a load; if its start was interrupted, repeat it at a service that replays starts.

        At another service that job cannot be known now: then a message is returned in its place.
        """
        state = orchestration.LoadState(self.dataset, load_id)
        job = state.job
        if job is None and load_request is not None and load_request.start is not None:
            intent, last = state.intent, state.last_start
            if intent is None or last is None or last.void:
                return None
            if not intent.replay:
                return (
                    f"The start of load {load_id} was being answered: its job may run. "
                    "A re-execution from failure finds it."
                )
            _, job, _ = orchestration.start_load(client, self.dataset, load_request, until=time.monotonic() + FIND_S)
        return (
            None
            if job is None or job.kind not in orchestration.JOB_KINDS
            else orchestration.JobRef(job.kind, job.job_id)
        )
