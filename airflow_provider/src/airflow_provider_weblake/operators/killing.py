"""The decision whether to cancel a job when Airflow stops the worker that waits for it.

Airflow stops a task's process when a user marks or clears the task, when its time is up, when another worker has taken
it over, and when the machine itself shuts down. Only the first two are a reason to cancel a paid job: after the others
a retry continues with it. The process gets the same signal for all of them, so this module asks Airflow for the state.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_provider_weblake.features import AirflowTaskTimeout
from airflow_provider_weblake.task_state import state_of
from weblake import errors, orchestration

if TYPE_CHECKING:
    from airflow.sdk._shared.logging.types import Logger
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from airflow_provider_weblake.hooks.weblake import WeblakeHook
    from weblake.orchestration import JobRef

#: Seconds in which Airflow has to return the task's state: it kills this process five seconds after the signal.
ANSWER_S = 3.0

#: States that a user, or the time limit of the run, has set; None is a task that was cleared.
CANCELLING_STATES = frozenset({"failed", "upstream_failed", "success", "skipped", "removed", "restarting", None})


class KillHandler:
    """Cancels a job when its task is killed for good.

    Created when the job is known: in the signal handler, nothing may be looked up that needs a lock which the
    interrupted code may hold.
    """

    def __init__(self, job: JobRef, hook: WeblakeHook, ti: RuntimeTaskInstanceProtocol, log: Logger) -> None:
        self._job = job
        self._client = hook.get_conn()  # a separate client, connected only if it is used
        self._ti = ti
        self._log = log

    def decide(self) -> None:
        """Cancel the job, or leave it to the run that takes the task over; never raise."""
        if isinstance(sys.exc_info()[1], AirflowTaskTimeout):
            self._cancel("its execution_timeout has passed")
            return
        asking = ThreadPoolExecutor(1)  # in a thread, since the interrupted code may be sending a request
        try:
            state = asking.submit(state_of, self._ti).result(ANSWER_S)
        except Exception as error:  # noqa: BLE001  # after any error: without an answer nothing is cancelled
            self._log.warning("This task is being stopped, and Airflow does not say why: %s goes on.", self._job)
            self._log.debug("The state of the task is not known: %s", type(error).__name__)
            return
        finally:
            asking.shutdown(wait=False)
        if state in CANCELLING_STATES:
            self._cancel(f"its task is {state or 'cleared'}")
        else:
            self._log.info("This task is stopped as %s: %s goes on, and a retry lands it.", state, self._job)

    def _cancel(self, why: str) -> None:
        try:
            cancelled = self._client.run(orchestration.cancel(self._job, self._client.retry))
        except errors.WeblakeError as error:
            self._log.warning("%s is not wanted (%s) and could not be cancelled: %s", self._job, why, error)
        else:
            self._log.info("The %s: %s.", orchestration.describe_cancel(self._job, cancelled=cancelled), why)
