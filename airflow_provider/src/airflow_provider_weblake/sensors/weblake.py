"""Sensors for jobs that were started elsewhere; they never cancel a job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.triggers.base import StartTriggerArgs

from airflow_provider_weblake.features import TASKS_IN_TRIGGERER, AirflowException, AirflowFailException, conf
from airflow_provider_weblake.hooks.weblake import WeblakeHook
from airflow_provider_weblake.links.weblake import JOB_URL_KEY, WeblakeJobLink
from airflow_provider_weblake.retry_policy import WeblakeRetryPolicy, policy_applied, policy_argument
from airflow_provider_weblake.storage import can_defer
from airflow_provider_weblake.triggers.stored import check_interval, event_of
from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger
from weblake import errors, orchestration

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_weblake.features import RetryPolicy

#: Template variables that need a request to Airflow to be rendered, during which the triggerer's event loop would
#: block.
_LOOKUPS = ("xcom_pull", "var.", "conn.", "ti.", "task_instance.")


class JobSensor(BaseSensorOperator):
    """Waits until a job that was started elsewhere has completed.

    Deferrable, it starts in the triggerer and ends there (since Airflow 3.3): it never takes a worker's slot unless the
    job fails or its id has to be looked up first. It buys nothing and cancels nothing, also if the task is killed. A
    job that failed, was cancelled or is unknown fails the task without retries (or skips it, with `soft_fail`).

    Returns a small dict: status, kind, job_id, completed, total, credits_used.

    :param job_id: The job's UUID (templated).
    :param weblake_conn_id: The connection (templated).
    :param poke_interval: Seconds between status polls at most; default 30.
    :param timeout: Seconds until the sensor gives up; default `[sensors] default_timeout`.
    :param deferrable: Waits in the triggerer; default `[operators] default_deferrable`.
    :param start_from_trigger: Whether a deferrable sensor begins in the triggerer. By default it does if the id is a
        text that needs no look-up (XCom, Variable) to be rendered. Before Airflow 3.3 it begins in a worker.
    :param retry_policy: The policy that decides which failures are retried; default :class:`WeblakeRetryPolicy`.
    """

    #: The kind of job, as the core names it.
    kind: ClassVar[str]

    template_fields: Sequence[str] = ("job_id", "weblake_conn_id")
    ui_color = "#e5f1f4"
    operator_extra_links = (WeblakeJobLink(),)
    start_trigger_args = StartTriggerArgs(
        trigger_cls="airflow_provider_weblake.triggers.weblake.WeblakeJobTrigger", next_method="execute_complete"
    )
    start_from_trigger = False

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        orchestration.document(cls)

    def __init__(
        self,
        *,
        job_id: str,
        weblake_conn_id: str = WeblakeHook.default_conn_name,
        poke_interval: timedelta | float = 30.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        start_from_trigger: bool | None = None,
        retry_policy: RetryPolicy | None = None,
        **kwargs: object,
    ) -> None:
        policy = retry_policy or WeblakeRetryPolicy()
        super().__init__(poke_interval=poke_interval, **policy_argument(policy), **kwargs)  # type: ignore[arg-type]
        check_interval("poke_interval", self.poke_interval)
        self.retry_policy = policy
        self.job_id = job_id
        self.weblake_conn_id = weblake_conn_id
        self.deferrable = deferrable
        self._looked = False
        #: Seconds that the service named in the last poll.
        self._named = 0.0
        if start_from_trigger is None:
            start_from_trigger = isinstance(job_id, str) and not any(word in job_id for word in _LOOKUPS)
        self.start_from_trigger = deferrable and start_from_trigger and TASKS_IN_TRIGGERER
        if self.start_from_trigger:
            # Replaced instead of changed, because the object belongs to the class.
            self.start_trigger_args = dataclasses.replace(
                self.start_trigger_args,
                trigger_kwargs=self._trigger_arguments(job_id),
                timeout=timedelta(seconds=self.timeout),
            )

    @policy_applied
    def execute(self, context: Context) -> object:
        """Wait in the worker, or defer to the triggerer."""
        job_id = self._id()
        url = WeblakeHook(self.weblake_conn_id).job_url(self.kind, job_id)
        context["ti"].xcom_push(key=JOB_URL_KEY, value=url)
        if not self.deferrable or not can_defer(self.weblake_conn_id, self.log):
            return super().execute(context)
        self.defer(
            trigger=WeblakeJobTrigger(**self._trigger_arguments(job_id)),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    @cached_property
    def _progress(self) -> orchestration.ProgressLog:
        return orchestration.ProgressLog(self.log.log)

    def poke(self, context: Context) -> PokeReturnValue:
        """Poll the job once."""
        self._named = 0.0
        job = orchestration.JobRef(self.kind, self._id())
        with WeblakeHook(self.weblake_conn_id).get_conn() as client:
            # A job that has just been started may not be found yet.
            first = not self._looked and not (self.reschedule and context["ti"].get_first_reschedule_date(context))
            self._looked = True
            try:
                head = client.run(orchestration.get_status(job, client.retry.observed_by(self._progress)))
            except errors.JobGone as error:
                if not first:
                    raise AirflowFailException(str(error)) from error
                self.log.info("Not there yet: %s", error)
                return PokeReturnValue(is_done=False)
            except errors.RetryLater as error:
                self._progress.log_trouble(f"{job} cannot be asked about now: {error}")
                self._named = orchestration.named_pause(error)
                return PokeReturnValue(is_done=False)
        if not orchestration.is_over(head):
            return PokeReturnValue(is_done=False)
        self._judge(str(head.get("status")).lower())
        return PokeReturnValue(is_done=True, xcom_value=event_of(job, "completed", head))

    def _get_next_poke_interval(self, started_at: Any, run_duration: Callable[[], float], poke_count: int) -> float:
        """Return the seconds until the next poll: those that the service named, within the timeout, if they are more.

        In both modes Airflow calls this after a poll, in the same process; in reschedule mode it stores the result.
        """
        usual = super()._get_next_poke_interval(started_at, run_duration, poke_count)
        named = min(self._named, self.timeout - run_duration())
        if named > usual:
            self.log.info("The service named a time to wait: it is asked again in %.0f s.", named)
        return max(usual, named)

    @policy_applied
    def execute_complete(self, context: Context, event: Mapping[str, object] | str) -> object:
        """Finish after a trigger that could not end the task itself: the job did not complete."""
        unknown = isinstance(event, Mapping) and event.get("status") == "unknown"
        if unknown and not can_defer(self.weblake_conn_id, self.log):
            return super().execute(context)
        if isinstance(event, Mapping):
            self._id()  # names a text that is no id, which a trigger cannot watch
            self._judge(str(event.get("status")))
            return event
        return self.poke(context).xcom_value  # `dag.test()` passes on only the status of such a trigger

    def _trigger_arguments(self, job_id: str) -> dict[str, Any]:
        return {
            "weblake_conn_id": self.weblake_conn_id,
            "kind": self.kind,
            "job_id": job_id,
            "poll_interval": self.poke_interval,
            "ends_task": TASKS_IN_TRIGGERER,
        }

    def _judge(self, status: str) -> None:
        if status == "completed":
            return
        job = orchestration.JobRef(self.kind, str(self.job_id))
        if status in ("failed", "cancelled", "gone"):
            if status == "gone":
                raise AirflowFailException(
                    f"The {job} is unknown to the service, expired, or of another team. Results are kept for about a "
                    f"day; check the job's id and the connection {self.weblake_conn_id!r}."
                )
            raise AirflowFailException(f"The {job} ended as {status}.")
        raise AirflowException(f"The {job} could not be watched ({status}); the trigger's log says why.")

    def _id(self) -> str:
        return orchestration.existing_job_request(self.kind, str(self.job_id).strip()).job_id or ""


class WeblakeBatchScrapeSensor(JobSensor):
    """Waits until a batch scrape that was started elsewhere has completed."""

    kind = "batch_scrape"


class WeblakeCrawlSensor(JobSensor):
    """Waits until a crawl that was started elsewhere has completed."""

    kind = "crawl"
