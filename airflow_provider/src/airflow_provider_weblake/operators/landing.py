"""The common flow of every operator that buys pages: blocking or deferred, first run, retry or Clear.

    which generation -> landed already? -> intent, start, job id on record -> over? -> (defer) -> land -> receipt

Each run begins at the first step and follows the ledger of the dataset, so a worker may be killed at any point.
`weblake.orchestration.place` defines the effects of a Clear and of a retry.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

from airflow_provider_weblake.features import AirflowTaskTimeout, conf, has_asset_partitions
from airflow_provider_weblake.lineage import partitions_of
from airflow_provider_weblake.links.weblake import JOB_URL_KEY, WeblakeJobLink
from airflow_provider_weblake.operators.base import DatasetOperator, mapping_of, number_of, refuse_none, required_number
from airflow_provider_weblake.operators.killing import KillHandler
from airflow_provider_weblake.remedies import in_airflow_terms
from airflow_provider_weblake.retry_policy import policy_applied
from airflow_provider_weblake.storage import can_defer
from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger
from weblake import errors, orchestration

if TYPE_CHECKING:
    from airflow.sdk import Context, ObjectStoragePath

    from weblake import Client
    from weblake.orchestration import Dataset, Intent, Job, LandedLoad, LoadRequest, Terms

#: Seconds by which Airflow's timeout of the deferral follows the trigger's own deadline; it only acts if the trigger
#: fails.
TIMEOUT_MARGIN_S = 900.0
#: Seconds after the start in which the service may not find the job yet.
UNSEEN_S = 10.0
#: Seconds in which a job that was started elsewhere is asked about after the deadline: it may have ended by now.
LAST_POLL_S = 10.0
#: Seconds before a triggerer that could not use the connection reads it again: a worker, which can use it, would
#: otherwise be started every quarter of a minute, for each task, until the job ends.
RECONNECT_S = 600.0


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one execution of a task."""

    dataset: Dataset
    request: LoadRequest
    terms: Terms


class LandingOperator(DatasetOperator):
    """Lands one load, paid once; base class of the operators for jobs and pages.

    :param partition: Path keys and values in place of `load_date`, such as `{"day": "{{ ds }}"}`; a later load of this
        task with the same values takes the earlier one's place (templated).
    :param allow_partial: Stores the available pages of a load whose counts do not add up, with `complete: false`.
    :param missing_ratio: The share of submitted URLs that may be missing, from 0 to 1; default 0.
    :param fail_ratio: The share that may have failed before the load is refused; default 1, so that failed pages are
        rows of `page_errors` and no failure.
    :param max_credits: Refuses to start what would cost more, lowers the limit of a crawl, and cancels a job that
        passes it (templated). Default: no limit.
    :param report_changes: Adds to the receipt how many pages are `new`, `changed` and `gone` since the landing before.
        The small columns of all documents of the dataset are read. Default False.
    :param asset_partitions: Puts the load's partition values on the events of outlet assets. Airflow then starts only
        consumers with a partitioned timetable; default False.
    """

    template_fields: Sequence[str] = (*DatasetOperator.template_fields, "partition", "max_credits")
    template_fields_renderers: ClassVar[dict[str, str]] = {"partition": "json", "options": "json"}
    operator_extra_links = (WeblakeJobLink(),)

    def __init__(
        self,
        *,
        to: str | ObjectStoragePath,
        partition: Mapping[str, str] | None = None,
        allow_partial: bool = False,
        missing_ratio: float = 0.0,
        fail_ratio: float = 1.0,
        max_credits: float | str | None = None,
        report_changes: bool = False,
        asset_partitions: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(to=to, **kwargs)  # type: ignore[arg-type]
        if asset_partitions and not has_asset_partitions():
            raise errors.InvalidOption(
                "asset_partitions=True needs Airflow 3.3: the events of this release have no partition keys.",
                hint="Leave it out; the event's extra has the files of the load, with their partition.",
            )
        self.asset_partitions = asset_partitions
        self.partition = partition
        self.allow_partial = allow_partial
        self.missing_ratio = missing_ratio
        self.fail_ratio = fail_ratio
        self.max_credits = max_credits
        self.report_changes = report_changes
        #: The load that this execution returns.
        self._to_return: Load | None = None

    @abstractmethod
    def load_request(self) -> LoadRequest:
        """Return the load request, made from the rendered fields."""

    @policy_applied
    def execute(self, context: Context) -> dict[str, object]:
        """Land the load and return its receipt."""
        with self.service() as client:
            load = self.prepare(context, client)
            self.log.info("Load %s begins: a %s.", load.request.load_id, load.request.kind)
            landing = orchestration.land(client, load.dataset, load.request, load.terms)
            self._report_landed_job(context, load.dataset, landing)
            return self.finish(context, load, landing)

    @in_airflow_terms()
    def post_execute(self, context: Context, result: object = None) -> None:
        """Record that the task returns its load: a Clear after it pays.

        Airflow calls this after `execute` and after the DAG's own `post_execute` function, whose failure is one of the
        task. A subclass that has this method calls it last.
        """
        if self._to_return is not None:
            orchestration.record_returned(self._to_return.dataset, self._to_return.request)

    def prepare(self, context: Context, client: Client, generation: int | None = None) -> Load:
        """Return the load that this execution is for."""
        terms, dataset, task = self.terms(), self.dataset(), task_of(context)
        try:
            request = self.load_request()
        except errors.WeblakeError as error:
            # Such as a list of URLs that is gone or has changed. The job that was started with it is paid for.
            found = orchestration.recorded_request(client, dataset, task, terms, generation)
            if found is None:
                raise
            self.log.warning("%s The job of load %s was started before, and lands.", error, found.load_id)
            return Load(dataset, found, terms)
        return Load(dataset, orchestration.place(client, dataset, request, task, terms, generation), terms)

    def terms(self) -> Terms:
        """Return the operator's tolerances and limits in the form of the core."""
        return orchestration.Terms(
            allow_partial=self.allow_partial,
            missing_ratio=required_number("missing_ratio", self.missing_ratio),
            fail_ratio=required_number("fail_ratio", self.fail_ratio),
            max_credits=number_of("max_credits", self.max_credits),
        )

    def naming(self) -> orchestration.Naming:
        """Return the partition in the form of the core: every value is text, as templates leave it."""
        keys = {key: str(value) for key, value in mapping_of("partition", self.partition or None).items()}
        for key, value in keys.items():
            refuse_none(f"The value of the partition key {key!r}", value)
        return orchestration.Naming(partition=keys or None)

    def finish(self, context: Context, load: Load, landing: LandedLoad) -> dict[str, object]:
        """Report a landed load to the log, the task's assets and XCom; return the receipt."""
        receipt = landing.receipt.to_dict()
        if landing.landed_at is not None:
            self.log.info("Load %s had landed before, at %s.", landing.receipt.load_id, landing.landed_at)
        self._to_return = load
        if self.report_changes and not landing.receipt.nothing_due:
            try:
                receipt |= orchestration.counts_of_load(load.dataset, landing.receipt.load_id)
            except errors.WeblakeError as error:  # what was landed is safe
                self.log.warning("The receipt has no changes: %s `weblake changes` shows them later.", error)
        # The event of the end of a load that lands now has logged the rest of its receipt.
        logged = ("fresh", "new", "changed", "gone", "files") if landing.landed_at is None else receipt
        self.log.info("Landed: %s", json.dumps({name: receipt[name] for name in logged if name in receipt}))
        return self.report_landed(context, receipt, partitions_of(receipt) if self.asset_partitions else ())

    def _report_landed_job(self, context: Context, dataset: Dataset, landing: LandedLoad) -> None:
        """Report the job of a landed load: Airflow has deleted the XComs of an earlier try."""
        receipt = landing.receipt
        intent = orchestration.LoadState(dataset, receipt.load_id).intent
        if intent is not None and receipt.job_id is not None:
            self._report_job(context, intent, receipt.kind, receipt.job_id)

    def _report_job(self, context: Context, intent: Intent, kind: str, job_id: str) -> None:
        # Only the embedded service says that it replays a start.
        url = self.hook.job_url(kind, job_id, has_console=bool(intent.replay))
        if url:  # a parsed file may have none
            self.log.info("Job %s of load %s: %s", job_id, intent.load_id, url)
            context["ti"].xcom_push(key="job_id", value=job_id)
            context["ti"].xcom_push(key=JOB_URL_KEY, value=url)


class JobOperator(LandingOperator):
    """Lands a job of the service, waiting in the triggerer or in the worker.

    :param deadline: How long the job may take from its start, all retries included; then it is cancelled and what it
        had scraped is kept as a refused load. Default 24 hours; `execution_timeout` shortens it.
    :param poll_interval: Seconds between status polls at most; they begin sooner and are spread. Default 30.
    :param deferrable: Waits in the triggerer and holds no worker; default `[operators] default_deferrable`.
    :param wait_for_completion: With False the task ends when the job runs, and returns its id; land it with
        WeblakeLandOperator, and with a `partition`: without one, clearing both tasks after a success adds the new job's
        file and keeps the old one.
    :param cancel_on_kill: Cancels the job when the task is marked failed, cleared or timed out; a triggerer or worker
        that is restarted never does. Default True.
    """

    #: Whether the job is this task's, so that its deadline ends it.
    owns_job = True

    def __init__(
        self,
        *,
        deadline: timedelta | float = timedelta(hours=24),
        poll_interval: float = 30.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        wait_for_completion: bool = True,
        cancel_on_kill: bool = True,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.deadline = deadline
        self.poll_interval = poll_interval
        self.deferrable = deferrable
        self.wait_for_completion = wait_for_completion
        self.cancel_on_kill = cancel_on_kill
        self._kill_handler: KillHandler | None = None
        #: Whether Airflow has stopped this process before the job was known.
        self._stopped = False
        #: Whether the triggerer could not ask about the job.
        self._triggerer_failed = False
        #: The event of the trigger, and the id of the job that it has waited for; empty without one.
        self._event: Mapping[str, object] = {}
        self._awaited_job: str | None = None

    @policy_applied
    def execute(self, context: Context) -> dict[str, object]:
        """Start the job unless an earlier run did, wait for it, land it, and return the receipt."""
        return self._run(context)

    @policy_applied
    def execute_complete(
        self,
        context: Context,
        event: Mapping[str, object],
        generation: int | None = None,
        job_id: str | None = None,
    ) -> dict[str, object]:
        """Continue after the trigger and return the receipt; the event may be outdated, so the job is checked again."""
        self.log.info("The trigger says: %s", json.dumps(event))
        self._triggerer_failed = event.get("status") == "unknown"
        self._event, self._awaited_job = event, job_id
        return self._run(context, generation)

    @policy_applied
    def execute_after_pause(self, context: Context, event: object, paused_since: float) -> dict[str, object]:
        """Start again after a pause for which a busy service has asked, where Airflow has no retry policies."""
        return self._run(context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, object] | None, context: Context
    ) -> dict[str, object]:
        """Resume as Airflow does, and also cancel the paid job if the trigger never fired."""
        given = next_kwargs or {}
        if next_method == TRIGGER_FAIL_REPR and given.get("error") == TriggerFailureReason.TRIGGER_TIMEOUT:
            job_id = given.get("job_id")
            event = {"status": "deadline", "said_by": "the scheduler"}
            return self.execute_complete(context, event, job_id=None if job_id is None else str(job_id))
        result: dict[str, object] = super().resume_execution(next_method, next_kwargs, context)
        return result

    def on_kill(self) -> None:
        """Cancel the job if Airflow reports that it is not wanted any more; a job being started, when it is known."""
        self._stopped = True
        # Airflow also stops a task that has succeeded and whose callbacks take too long: another task lands its job.
        if self._kill_handler is not None and self._to_return is None:
            self._kill_handler.decide()

    def terms(self) -> Terms:
        """Return the terms of every load, and the deadline."""
        given = self.deadline
        limit = given.total_seconds() if isinstance(given, timedelta) else required_number("deadline", given)
        if self.execution_timeout is not None:
            limit = min(limit, self.execution_timeout.total_seconds())
        terms = super().terms()
        return replace(
            terms,
            max_credits=terms.max_credits if self.owns_job else None,  # over it, the core would cancel the job
            timeout_s=limit,
            ends_job=self.owns_job,
            poll_s=required_number("poll_interval", self.poll_interval),
        )

    def _run(self, context: Context, generation: int | None = None) -> dict[str, object]:
        with self.service() as client:
            load = self.prepare(context, client, generation)
            landing = orchestration.find_landed(load.dataset, load.request, load.terms)
            if landing is not None:
                self._report_landed_job(context, load.dataset, landing)
                return self.finish(context, load, landing)
            self._refuse_another_root(load)
            # Without `until` a call gives up after a minute; longer pauses are left to the retry policy.
            started_load = orchestration.start_load(
                client,
                load.dataset,
                load.request,
                max_credits=load.terms.max_credits,
                ends_at=time.monotonic() + load.terms.timeout_s,
            )
            intent, job, _ = started_load
            self._report_started(context, intent, job)
            if not self.wait_for_completion:
                self._to_return = load
                return {"load_id": job.load_id, "kind": job.kind, "job_id": job.job_id, "status": "started"}
            ends_at = job.at_seconds() + load.terms.timeout_s
            may_defer = self.deferrable and can_defer(self.weblake_conn_id, self.log)
            if may_defer and time.time() < ends_at and self._is_running(client, load, job):
                self._wait_in_triggerer(load, job, ends_at)
            terms = load.terms
            if not self.owns_job:  # its time runs over all tries, too, and only the waiting ends with it
                terms = replace(terms, timeout_s=max(LAST_POLL_S, ends_at - time.time()), reads_late=True)
            self._record_limit(load, job)
            try:
                landing = orchestration.land(client, load.dataset, load.request, terms, started_load=started_load)
            except AirflowTaskTimeout:
                if self._kill_handler is None or not self.owns_job:
                    raise
                orchestration.record_stopped(load.dataset, load.request.load_id, load.terms)
                self._kill_handler.decide()  # cancels the job
            else:
                return self.finish(context, load, landing)
        # As after the deadline: a retry would pay for another job, and what this one has scraped would be lost.
        with self.service() as client:  # a new one, because the timeout may have interrupted the other anywhere
            landing = orchestration.land(client, load.dataset, load.request, load.terms, started_load=started_load)
            return self.finish(context, load, landing)

    def _refuse_another_root(self, load: Load) -> None:
        """Raise AskPerson if the job that the task has waited for is not on record, before another one is paid."""
        if self._awaited_job is None or load.request.start is None:
            return
        if orchestration.LoadState(load.dataset, load.request.load_id).job is None:
            raise errors.AskPerson(
                f"This task has started job {self._awaited_job}, and it is not on record in {load.dataset.url}.",
                hint="Give `to` the value that it had at the start, the same in each try, and clear the task. To use "
                "this root, land the job with WeblakeLandOperator: clearing the task pays for another one.",
            )

    def _record_limit(self, load: Load, job: Job) -> None:
        """Record at which limit the trigger has cancelled the job, if it has."""
        status, used = self._event.get("status"), self._event.get("credits_used")
        if not self.owns_job or self._event.get("job_id") != job.job_id:
            return
        if status == "deadline":
            orchestration.record_stopped(load.dataset, load.request.load_id, load.terms)
        elif status == "over_budget" and isinstance(used, int | float):
            orchestration.record_stopped(load.dataset, load.request.load_id, load.terms, float(used))

    def _report_started(self, context: Context, intent: Intent, job: Job) -> None:
        """Put the job's id and page into XCom and the log at once, while the task still waits."""
        if self.cancel_on_kill:
            ref = orchestration.JobRef(job.kind, job.job_id)
            self._kill_handler = KillHandler(ref, self.hook, context["ti"], self.log)
            if self._stopped:
                self._kill_handler.decide()
        self._report_job(context, intent, job.kind, job.job_id)

    def _is_running(self, client: Client, load: Load, job: Job) -> bool:
        """Return whether the job still runs; one check here avoids a deferral for a job that has ended."""
        try:
            head = client.run(orchestration.get_status(orchestration.JobRef(job.kind, job.job_id), client.retry))
        except errors.JobGone:
            return job.age_s() < UNSEEN_S
        except errors.RetryLater:
            return True  # the trigger waits longer than a worker does
        return not orchestration.is_over(head, load.terms.max_credits)

    def _wait_in_triggerer(self, load: Load, job: Job, ends_at: float) -> None:
        assert load.request.slot is not None  # it has been placed
        if self._triggerer_failed:
            self.log.warning(
                "The triggerer cannot ask about the job, and this worker can. Does it have the connection %r, with "
                "the same key? The triggerer's log of this task says why. It tries again in %.0f s.",
                *(self.weblake_conn_id, RECONNECT_S),
            )
        self.defer(
            trigger=WeblakeJobTrigger(
                weblake_conn_id=self.weblake_conn_id,
                kind=job.kind,
                job_id=job.job_id,
                deadline=ends_at,
                max_credits=load.terms.max_credits,
                poll_interval=load.terms.poll_s,
                owns_job=self.owns_job,
                cancel_on_kill=self.cancel_on_kill,
                reconnect_s=RECONNECT_S if self._triggerer_failed else None,
            ),
            method_name="execute_complete",
            kwargs={"generation": load.request.slot.generation, "job_id": job.job_id},
            timeout=timedelta(seconds=ends_at - time.time() + TIMEOUT_MARGIN_S),
        )


def task_of(context: Context) -> orchestration.Task:
    """Return the identity of the running task, from which loads are named.

    A retry keeps the task instance's `max_tries`, and a Clear raises it: that distinguishes the two.
    """
    ti = context["ti"]
    map_index = -1 if ti.map_index is None else ti.map_index
    occasion = f"max_tries={ti.max_tries}"
    return orchestration.Task(("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id, occasion, records_return=True)
