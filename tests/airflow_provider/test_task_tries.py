"""Tests of task tries and trigger events, run by Airflow itself: rows O1 and O8 of the fault catalogue.

An event only says that the job has to be checked: it may be lost, old, or false.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import BaseOperator
from airflow.triggers.base import TriggerEvent
from catalogue import proves
from dag_runs import Run, returned, run_one, task_logs

from weblake import orchestration
from weblake.errors import AskPerson, CreditsExhausted, DeadlineExceeded, JobEnded, WeblakeError
from weblake.testing import WeblakeService

pytestmark = pytest.mark.system

if TYPE_CHECKING:
    from gated_site import GatedSite

MakeOperator = Callable[..., BaseOperator]


@pytest.fixture
def batch(tmp_path: Path) -> MakeOperator:
    """Makes the task that lands a batch below this test's folder."""
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    def make(urls: list[str], **more: Any) -> BaseOperator:
        return WeblakeBatchScrapeOperator(
            task_id="land",
            urls=urls,
            to=str(tmp_path / "lake"),
            options={"timeout": 240_000},  # a page that is held does not end by itself before the test lets it go
            poll_interval=0.3,
            retry_delay=timedelta(0),
            **more,
        )

    return make


@proves(
    "O1",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='f"max_tries={ti.max_tries}"',
    becomes='f"try_number={ti.try_number}"',
)
@proves(
    "O1",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line='("airflow", ti.dag_id, ti.task_id, map_index), ti.run_id',
    becomes='("airflow", ti.dag_id, ti.task_id, map_index, ti.try_number), ti.run_id',
)
def test_o1_a_try_after_one_that_landed_finds_its_load(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, batch: MakeOperator
) -> None:
    tries: list[int] = []

    def dies_after_it(context: Any, result: object = None) -> None:
        tries.append(context["ti"].try_number)
        if len(tries) == 1:
            raise ConnectionResetError("The worker was lost before it could say that it had landed.")

    run = run_one(run_dag, lambda: batch(site.pages(2), retries=2, post_execute=dies_after_it))
    assert (run.state, tries) == ("success", [1, 2])
    receipt = returned(run, "land")
    assert receipt["stored"] == 2
    assert weblake_connection.counts()["batch_scrape_started"] == 1
    # Airflow deletes the XComs of the earlier try.
    assert returned(run, "land", "job_id") == receipt["job_id"]
    page = f"{weblake_connection.url}/console/jobs/{receipt['job_id']}"
    assert returned(run, "land", "weblake_job_url") == page
    ledger = orchestration.open_dataset(batch([]).to).ledger  # type: ignore[attr-defined]
    assert ledger.returned(receipt["load_id"]) is not None, "a Clear after it pays"


@proves(
    "O2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="ti.run_id, occasion, records_return=True)",
    becomes="ti.run_id, occasion)",
)
@proves(
    "O2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="orchestration.record_returned(self._to_return.dataset, self._to_return.request)",
    becomes="pass",
)
def test_o2_a_clear_of_a_task_that_failed_after_its_load_had_landed_does_not_pay(
    weblake_connection: WeblakeService, site: GatedSite, batch: MakeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No consumer has received the load. The next Clear is of a task that has succeeded: it pays for new pages."""
    from airflow_provider_weblake import lineage

    ti = SimpleNamespace(dag_id="dag", task_id="land", run_id="run", map_index=-1, max_tries=1)
    ti.xcom_push = lambda **_: None
    task: Any = batch(site.pages(2))
    context: Any = {"ti": ti, "task": task, "outlet_events": {}}

    def broken(*_: object, **__: object) -> None:
        raise ConnectionResetError("The outlet cannot be written.")

    with monkeypatch.context() as patched:
        patched.setattr(lineage, "outlets_changed", broken)
        with pytest.raises(ConnectionResetError):
            task.execute(context)
    ti.max_tries = 3
    receipt = task.execute(context)
    assert receipt["stored"] == 2
    task.post_execute(context)
    assert task.execute(context) == receipt, "a retry after the Clear stays with it"
    assert weblake_connection.counts()["batch_scrape_started"] == 1
    ti.max_tries = 5
    assert task.execute(context)["load_id"] != receipt["load_id"]
    assert weblake_connection.counts()["batch_scrape_started"] == 2


@proves(
    "O2",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="return self.report_landed(context, receipt, partitions_of(receipt) if self.asset_partitions else ())",
    becomes="return (self.report_landed(context, receipt), self.post_execute(context))[0]",
)
def test_o2_a_clear_of_a_task_whose_post_execute_failed_does_not_pay(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, batch: MakeOperator
) -> None:
    def broken(*_: object) -> None:
        raise ConnectionResetError("The function of the DAG has a fault.")

    run = run_one(run_dag, lambda: batch(site.pages(2), post_execute=broken))
    assert run.state == "failed"
    ti = SimpleNamespace(dag_id=run.dag_id, task_id="land", run_id=run.run_id, map_index=-1, max_tries=1)
    ti.xcom_push = lambda **_: None
    task: Any = batch(site.pages(2))
    context: Any = {"ti": ti, "task": task, "outlet_events": {}}
    load_id = task.execute(context)["load_id"]
    assert weblake_connection.counts()["batch_scrape_started"] == 1
    task.post_execute(context)
    ti.max_tries = 2
    assert task.execute(context)["load_id"] != load_id, "a Clear of a task that has succeeded pays"


def fire_first(monkeypatch: pytest.MonkeyPatch, site: GatedSite, event: dict[str, Any], *, times: int) -> list[Any]:
    """Let triggers fire this event as often, then release the site and run them; return the triggers that ran."""
    from airflow_provider_weblake.triggers.weblake import WeblakeJobTrigger

    real, triggers = WeblakeJobTrigger.run, list[Any]()

    async def run(self: WeblakeJobTrigger) -> AsyncIterator[TriggerEvent]:
        triggers.append(self)
        if len(triggers) <= times:
            yield TriggerEvent(event)
            return
        site.release()
        async for found in real(self):
            yield found

    monkeypatch.setattr(WeblakeJobTrigger, "run", run)
    return triggers


#: What a trigger may say of a job that runs.
FALSE_EVENTS: dict[str, Any] = {
    "it is completed": {"status": "completed", "completed": 2, "total": 2},
    "nothing": {},
}


@pytest.mark.parametrize("lie", FALSE_EVENTS)
@proves(
    "O8",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="return self._run(context, generation)",
    becomes="return dict(event)",
    case="it is completed",
)
def test_o8_a_false_event_changes_nothing(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    batch: MakeOperator,
    monkeypatch: pytest.MonkeyPatch,
    lie: str,
) -> None:
    triggers = fire_first(monkeypatch, site, FALSE_EVENTS[lie], times=1)
    urls = site.held(2)
    found = run_one(run_dag, lambda: batch(urls, deferrable=True))
    assert found.state == "success"
    receipt = returned(found, "land")
    assert (receipt["stored"], receipt["complete"], receipt["status"]) == (2, True, "completed")
    assert [trigger.job_id for trigger in triggers] == [receipt["job_id"]] * 2, (
        "it went on waiting for its own job, and held no worker"
    )
    assert weblake_connection.counts()["batch_scrape_started"] == 1


def test_a_triggerer_that_cannot_poll_does_not_start_workers_repeatedly(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    batch: MakeOperator,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from airflow_provider_weblake.operators import landing

    triggers = fire_first(monkeypatch, site, {"status": "unknown"}, times=2)
    urls = site.held(1)
    assert run_one(run_dag, lambda: batch(urls, deferrable=True)).state == "success"
    assert [trigger.reconnect_s for trigger in triggers] == [None, landing.RECONNECT_S, landing.RECONNECT_S]
    assert "Does it have the connection 'weblake_default'" in task_logs(capfd)
    assert weblake_connection.counts()["batch_scrape_started"] == 1


def deferred(task: Any) -> tuple[Any, str, dict[str, Any]]:
    """Run a task to its deferral; return its context, the id of its job and the arguments of the next method."""
    from airflow.sdk.exceptions import TaskDeferred

    pushed: dict[str, object] = {}
    ti = SimpleNamespace(dag_id="dag", task_id="land", run_id="run", map_index=-1, max_tries=1)
    ti.xcom_push = lambda key, value: pushed.update({key: value})
    context: Any = {"ti": ti, "task": task, "outlet_events": {}}
    with pytest.raises(TaskDeferred) as waiting:
        task.execute(context)
    return context, str(pushed["job_id"]), dict(waiting.value.kwargs or {})


@pytest.mark.parametrize(
    ("status", "of_this_job", "error"),
    [
        ("over_budget", True, CreditsExhausted),
        ("deadline", True, DeadlineExceeded),
        ("over_budget", False, JobEnded),
        ("deadline", False, JobEnded),
    ],
)
def test_a_retry_does_not_pay_for_a_job_that_the_trigger_has_cancelled_at_a_limit(
    weblake_connection: WeblakeService,
    site: GatedSite,
    batch: MakeOperator,
    status: str,
    of_this_job: bool,
    error: type[WeblakeError],
) -> None:
    """The service reports no credits of a cancelled job, and the worker's clock is behind that of the triggerer."""
    from airflow_provider_weblake.features import RetryAction

    task: Any = batch([*site.pages(3), *site.held(1)], deferrable=True, max_credits=4)
    context, job_id, arguments = deferred(task)
    with weblake_connection.client() as client:
        client.cancel_batch_scrape(job_id)
    weblake_connection.faults.add(late_credits=True, path="/v2/batch/scrape/", times=None)
    other = "00000000-0000-4000-8000-000000000000"
    event = {"status": status, "job_id": job_id if of_this_job else other, "credits_used": 5}
    with pytest.raises(error) as caught:
        task.execute_complete(context, event, **arguments)
    decision = task.retry_policy.evaluate(caught.value, 1, 2)
    assert (decision.action is RetryAction.FAIL) is of_this_job


@pytest.mark.parametrize("by", ["the trigger fires", "the scheduler gives up"])
def test_a_task_that_finds_another_root_after_its_deferral_does_not_pay_again(
    weblake_connection: WeblakeService, site: GatedSite, batch: MakeOperator, tmp_path: Path, by: str
) -> None:
    """Such as `to` with the day on which the DAG file is parsed, at midnight."""
    from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

    urls = site.held(2)
    context, job_id, arguments = deferred(batch(urls, deferrable=True))
    site.release()
    again: Any = batch(urls, deferrable=True)
    first, again.to = again.to, str(tmp_path / "another")
    method, given = "execute_complete", {**arguments, "event": {"status": "completed", "job_id": job_id}}
    if by == "the scheduler gives up":
        method, given = TRIGGER_FAIL_REPR, {**arguments, "error": TriggerFailureReason.TRIGGER_TIMEOUT}
    with pytest.raises(AskPerson, match=f"has started job {job_id}, and it is not on record in .*another"):
        again.resume_execution(method, given, context)
    assert weblake_connection.counts()["batch_scrape_started"] == 1
    cleared: Any = batch(urls)
    assert cleared.to == first
    context["ti"].max_tries = 3
    assert cleared.execute(context)["job_id"] == job_id
    assert weblake_connection.counts()["batch_scrape_started"] == 1


@pytest.mark.parametrize("job", ["has completed", "runs still"])
@proves(
    "O8",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="next_method == TRIGGER_FAIL_REPR",
    becomes="False",
    case="has completed",
)
def test_o8_a_lost_event_is_recovered(
    weblake_connection: WeblakeService, site: GatedSite, batch: MakeOperator, job: str
) -> None:
    """The scheduler's own time-out finds a trigger that never fired: the API says what became of the job."""
    from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason
    from airflow.sdk.exceptions import TaskDeferred

    task: Any = batch(site.held(2), deferrable=True)
    context, job_id, arguments = deferred(task)
    timed_out = {**arguments, "error": TriggerFailureReason.TRIGGER_TIMEOUT}
    if job == "runs still":
        with pytest.raises(TaskDeferred):
            task.resume_execution(TRIGGER_FAIL_REPR, timed_out, context)
    site.release()
    with weblake_connection.client() as client:
        ref, until = orchestration.JobRef("batch_scrape", job_id), time.monotonic() + 60
        client.run(orchestration.wait(ref, client.retry, until=until, unseen_s=0.0, poll_s=0.2))
    receipt = task.resume_execution(TRIGGER_FAIL_REPR, timed_out, context)
    assert (receipt["stored"], receipt["job_id"]) == (2, job_id)
    assert weblake_connection.counts()["batch_scrape_started"] == 1
