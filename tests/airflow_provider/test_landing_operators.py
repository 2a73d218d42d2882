"""Tests of the operators of jobs and pages, run by Airflow itself with `dag.test()` on the embedded service."""

from __future__ import annotations

import inspect
import json
import re
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from airflow.sdk import BaseOperator
from catalogue import proves
from dag_runs import Run, returned, run_one, states, task_logs
from polling import until

from weblake import orchestration
from weblake.errors import DeadlineExceeded, InvalidOption
from weblake.testing import WeblakeService

if TYPE_CHECKING:
    from gated_site import GatedSite


@pytest.mark.smoke
@proves(
    "O7",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="receipt = landing.receipt.to_dict()",
    becomes='receipt = landing.receipt.to_dict() | {"urls": list(self.hosts())}',
    case="False",
)
@pytest.mark.parametrize("deferrable", [False, True])
def test_o7_a_batch_lands_and_its_receipt_is_in_xcom(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    tmp_path: Path,
    deferred_jobs: list[str],
    deferrable: bool,
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    urls = [*site.pages(4), f"{site.url}/nothing-here"]
    if deferrable:
        urls += site.held(1)  # so that there is something to wait for

    def make() -> BaseOperator:
        return WeblakeBatchScrapeOperator(
            task_id="land",
            urls=urls,
            to=str(tmp_path / "lake"),
            partition={"day": "{{ macros.ds_add('2026-11-20', 1) }}"},
            options={"formats": ["markdown", "links"], "timeout": 240_000},
            deferrable=deferrable,
            poll_interval=0.5,
            report_changes=deferrable,
        )

    run = run_one(run_dag, make, f"batch_{deferrable}")
    assert run.state == "success"
    receipt = returned(run, "land")
    count = 6 if deferrable else 5
    assert (receipt["submitted"], receipt["stored"], receipt["complete"]) == (count, count, True)
    changes = [receipt.get(kind) for kind in ("new", "changed", "gone")]
    assert changes == ([5, 0, 0] if deferrable else [None] * 3)  # one page was never there
    assert deferred_jobs == ([receipt["job_id"]] if deferrable else [])
    assert len(json.dumps(receipt)) < 2048
    assert site.url not in json.dumps(receipt)
    assert returned(run, "land", "job_id") == receipt["job_id"]
    page = f"{weblake_connection.url}/console/jobs/{receipt['job_id']}"  # a person may look at it
    assert returned(run, "land", "weblake_job_url") == page
    rows = duckdb.sql(
        f"select url, status_code, day::varchar from '{tmp_path}/lake/documents/**/*.parquet' order by position"
    ).fetchall()
    assert {row[0] for row in rows} == set(urls)
    assert {row[2] for row in rows} == {"2026-11-21"}
    assert weblake_connection.counts()["batch_scrape_started"] == 1


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_task_buys_only_what_is_due(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    tmp_path: Path,
    deferrable: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    def receipt(count: int) -> dict[str, Any]:
        def make() -> BaseOperator:
            return WeblakeBatchScrapeOperator(
                task_id="land",
                urls=site.pages(count),
                to=str(tmp_path / "lake"),
                refresh_after="{{ params.age }}",
                params={"age": "7d"},
                deferrable=deferrable,
                poll_interval=0.5,
                report_changes=True,
            )

        found: dict[str, Any] = returned(run_one(run_dag, make, f"due_{deferrable}"), "land")
        logged = {name: found[name] for name in ("fresh", "new", "changed", "gone", "files") if name in found}
        assert json.dumps(logged) in task_logs(capfd)
        return found

    found = [receipt(count) for count in (2, 3, 3)]
    assert [(each["requested"], each["fresh"], each["stored"]) for each in found] == [(2, 0, 2), (3, 2, 1), (3, 3, 0)]
    assert [each.get("new") for each in found] == [2, 1, None]
    assert weblake_connection.counts()["batch_scrape_started"] == 2
    with pytest.raises(InvalidOption, match="needs wait_for_completion=True"):
        WeblakeBatchScrapeOperator(task_id="a", urls=["x"], to="y", refresh_after="7d", wait_for_completion=False)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": "{{ params.n }}", "include_paths": "{{ params.paths }}", "sitemap": "{{ params.sitemap }}"},
        "{{ params | tojson }}",
    ],
)
def test_an_option_may_be_the_text_of_its_value(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, options: Any
) -> None:
    from airflow_provider_weblake.operators.weblake import WeblakeCrawlOperator

    params = {"n": 2, "paths": ["/page/[0-3]", "^/$"], "sitemap": "skip"}
    if isinstance(options, str):
        params = {"limit": 2, "include_paths": params["paths"]}
    run = run_one(
        run_dag,
        lambda: WeblakeCrawlOperator(
            task_id="land", url=f"{site.url}/", to=str(tmp_path), options=options, params=params, deferrable=False
        ),
    )
    assert run.state == "success"
    assert returned(run, "land")["stored"] == 2


@pytest.mark.system
@pytest.mark.parametrize("kind", ["operator", "sensor"])
def test_a_test_of_a_dag_with_a_connection_of_the_database_waits_in_its_process(
    run_dag: Run,
    weblake_service: WeblakeService,
    site: GatedSite,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator
    from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor

    name = f"in_the_database_{kind}"
    with create_session() as session:
        session.add(
            Connection(conn_id=name, conn_type="weblake", host=weblake_service.url, password=weblake_service.key)
        )

    def make() -> BaseOperator:
        given = {"weblake_conn_id": name, "deferrable": True}
        if kind == "operator":
            return WeblakeBatchScrapeOperator(
                task_id="it", urls=site.pages(1), to=str(tmp_path), poll_interval=0.2, **given
            )
        with weblake_service.client() as client:
            job_id = client.start_batch_scrape(site.pages(1)).id
        return WeblakeBatchScrapeSensor(task_id="it", job_id=str(job_id), poke_interval=0.2, **given)

    run = run_one(run_dag, make)
    assert run.state == "success"
    assert f"Define AIRFLOW_CONN_{name.upper()}" in task_logs(capfd)
    url = returned(run, "it", "weblake_job_url")
    assert url.startswith(weblake_service.url)


#: Mistakes in the arguments of an operator, by its name, and the message.
MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a list that is None": ("BatchScrape", {"urls": None}, "`urls` is 'None'"),
    "a list that renders to nothing": ("BatchScrape", {"urls": " "}, "`urls` is empty"),
    "no file": ("Parse", {"file": None}, "`file` is 'None'"),
    "no kind": ("Land", {"kind": None, "job_id": "x"}, "'None' is not a kind of job"),
    "options as text": ("Crawl", {"url": "https://a.example/", "options": "{'limit': 5}"}, "options is a str"),
    "a partition as text": ("BatchScrape", {"urls": ["a.example"], "partition": "day=1"}, "partition is a str"),
    "a deadline in words": ("BatchScrape", {"urls": ["a.example"], "deadline": "6h"}, "deadline is '6h'"),
    "a cost that renders to None": ("Crawl", {"url": "https://a.example/", "max_credits": "None"}, "max_credits is 'N"),
    "no ratio": ("Scrape", {"url": "https://a.example/", "fail_ratio": None}, "fail_ratio is None"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_an_argument_is_named_before_anything_is_paid(
    weblake_connection: WeblakeService, tmp_path: Path, mistake: str
) -> None:
    from airflow_provider_weblake.features import AirflowFailException
    from airflow_provider_weblake.operators import weblake

    kind, given, told = MISTAKES[mistake]
    task = getattr(weblake, f"Weblake{kind}Operator")(task_id="land", to=str(tmp_path / "lake"), **given)
    ti = SimpleNamespace(dag_id="dag", task_id="land", run_id="run", map_index=-1, max_tries=1, try_number=1)
    # Releases without retry policies are told by an exception of their own that a retry does not help.
    with pytest.raises((InvalidOption, AirflowFailException), match=re.escape(told)):
        task.execute({"ti": ti, "task": task, "outlet_events": {}})
    assert not any(name.endswith("_started") for name in weblake_connection.counts())


@proves(
    "O3",
    at="airflow_provider/src/airflow_provider_weblake/operators/landing.py",
    line="if self._stopped:",
    becomes="if False:",
    case="failed-cancelled",
)
@pytest.mark.parametrize(("state", "status"), [("failed", "cancelled"), ("running", "completed")])
def test_o3_a_job_whose_start_is_answered_after_the_task_was_stopped_is_cancelled_if_it_is_not_wanted(
    weblake_connection: WeblakeService,
    site: GatedSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    status: str,
) -> None:
    from airflow_provider_weblake.operators import killing
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    urls = site.held(2) if status == "cancelled" else site.pages(2)
    task = WeblakeBatchScrapeOperator(
        task_id="land", urls=urls, to=str(tmp_path / "lake"), poll_interval=0.2, wait_for_completion=False
    )
    real = orchestration.start_load

    def start_load(*args: Any, **more: Any) -> Any:
        task.on_kill()  # the signal comes while the request is on its way
        return real(*args, **more)

    monkeypatch.setattr(orchestration, "start_load", start_load)
    monkeypatch.setattr(killing, "state_of", lambda ti: state)
    pushed: dict[str, object] = {}
    ti = SimpleNamespace(dag_id="dag", task_id="land", run_id="run", map_index=-1, max_tries=1, try_number=1)
    ti.xcom_push = lambda key, value: pushed.update({key: value})
    context: Any = {"ti": ti, "task": task, "outlet_events": {}}
    task.execute(context)
    with weblake_connection.client() as client:
        ref, ends = orchestration.JobRef("batch_scrape", str(pushed["job_id"])), time.monotonic() + 60
        head = client.run(orchestration.wait(ref, client.retry, until=ends, unseen_s=0.0, poll_s=0.2))
    assert head["status"] == status


def test_a_task_that_has_succeeded_cancels_no_job_when_its_process_is_stopped(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path
) -> None:
    """Airflow stops the process of a succeeded task whose callbacks or listeners exceed `task_success_overtime`."""
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    stopped: list[str] = []

    def stop(context: Any) -> None:
        stopped.append(context["task"].task_id)
        context["task"].on_kill()

    run = run_one(
        run_dag,
        lambda: WeblakeBatchScrapeOperator(
            task_id="start",
            urls=site.held(1),
            to=str(tmp_path / "lake"),
            options={"timeout": 240_000},
            wait_for_completion=False,
            on_success_callback=stop,
        ),
    )
    assert (run.state, stopped) == ("success", ["start"])
    with weblake_connection.client() as client:
        assert client.get_batch_scrape(returned(run, "start", "job_id")).status == "scraping"


def test_airflow_has_to_answer_before_it_kills_a_stopped_task() -> None:
    """Both limits are ten times as long in tests."""
    from airflow.sdk.execution_time.supervisor import ActivitySubprocess

    from airflow_provider_weblake.operators import killing

    assert inspect.signature(ActivitySubprocess.kill).parameters["escalation_delay"].default > killing.ANSWER_S


@pytest.mark.parametrize(("kind", "deferrable"), [("batch", False), ("crawl", True)])
def test_sensors_see_a_job_that_was_started_elsewhere(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, kind: str, deferrable: bool
) -> None:
    from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor, WeblakeCrawlSensor

    with weblake_connection.client() as client:
        if kind == "batch":
            job_id = client.start_batch_scrape(site.pages(2)).id
        else:
            job_id = client.start_crawl(f"{site.url}/", limit=2).id
    sensor = WeblakeBatchScrapeSensor if kind == "batch" else WeblakeCrawlSensor
    run = run_one(
        run_dag,
        lambda: sensor(
            task_id="watch",
            job_id="{{ dag_run.conf['job_id'] }}",
            poke_interval=0.5,
            timeout=60,
            deferrable=deferrable,
            start_from_trigger=False,
        ),
        f"sensor_{kind}_{deferrable}",
        run_conf={"job_id": job_id},
    )
    assert run.state == "success"
    event = returned(run, "watch")
    assert (event["status"], event["job_id"], event["completed"]) == ("completed", job_id, 2)


@proves(
    "O7",
    at="airflow_provider/src/airflow_provider_weblake/sensors/weblake.py",
    line="self._named = orchestration.named_pause(error)",
    becomes="pass",
    case="named-poke",
)
@pytest.mark.parametrize(
    ("timeout", "least", "most", "mode"),
    [(86_400, 120, 152, "poke"), (86_400, 120, 152, "reschedule"), (60, 50, 61, "reschedule")],
    ids=["named-poke", "named-reschedule", "timeout-reschedule"],
)
def test_o7_a_sensor_asks_again_when_the_service_says_or_at_its_timeout(
    weblake_connection: WeblakeService,
    site: GatedSite,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    timeout: float,
    least: float,
    most: float,
) -> None:
    from airflow.sdk.bases import sensor as bases

    from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor

    with weblake_connection.client() as client:
        job_id = str(client.start_batch_scrape(site.pages(1)).id)
        until(lambda: client.get_batch_scrape(job_id).status == "completed")
    ti = SimpleNamespace(get_first_reschedule_date=lambda _: None, try_number=1, max_tries=0)
    ti.xcom_push = lambda key, value: None
    context: Any = {"ti": ti}
    pauses: list[tuple[float, float]] = []

    def pause(seconds: float, at_least: float | None = None) -> None:
        busy.remove()
        pauses.append((seconds if at_least is None else at_least, seconds))

    def execute() -> Any:  # in the mode "reschedule", each poll is a process of its own
        return WeblakeBatchScrapeSensor(
            task_id="watch", job_id=job_id, poke_interval=5, timeout=timeout, mode=mode, deferrable=False
        ).execute(context)

    busy = weblake_connection.faults.add(status=429, retry_after=120, path=f"/v2/batch/scrape/{job_id}", times=None)
    before = len(weblake_connection.requests())
    monkeypatch.setattr(bases, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    if mode == "reschedule":
        began = time.time()
        with pytest.raises(bases.AirflowRescheduleException) as rescheduled:
            execute()
        # The pause counts from some time between the two.
        until_s = rescheduled.value.reschedule_date.timestamp()
        pause(until_s - began, until_s - time.time())
    event = execute()
    assert (event["status"], event["job_id"]) == ("completed", job_id)
    assert len(weblake_connection.requests()) - before == 2
    ((shortest, longest),) = pauses
    assert least <= longest
    assert shortest <= most


@pytest.mark.parametrize(("deferrable", "soft_fail", "state"), [(False, True, "skipped"), (True, False, "failed")])
def test_a_sensor_fails_or_skips_when_the_job_was_cancelled(
    run_dag: Run,
    weblake_connection: WeblakeService,
    site: GatedSite,
    deferrable: bool,
    soft_fail: bool,
    state: str,
) -> None:
    from airflow_provider_weblake.sensors.weblake import WeblakeBatchScrapeSensor

    with weblake_connection.client() as client:
        job_id = client.start_batch_scrape(site.held(2)).id
        client.cancel_batch_scrape(job_id)
    run = run_one(
        run_dag,
        lambda: WeblakeBatchScrapeSensor(
            task_id="watch",
            job_id=job_id,
            poke_interval=0.5,
            timeout=60,
            soft_fail=soft_fail,
            deferrable=deferrable,
            start_from_trigger=False,
            retries=2,
        ),
        f"cancelled_{deferrable}_{soft_fail}",
    )
    assert states(run) == {"watch": state}
    assert [ti.try_number for ti in run.get_task_instances()] == [1]


@pytest.mark.system
def test_a_job_that_was_started_elsewhere_lands_after_the_deadline_if_it_has_ended(
    weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if reading its results takes longer than the last look at it: nothing else lands them."""
    from airflow_provider_weblake.features import AirflowFailException
    from airflow_provider_weblake.operators import landing
    from airflow_provider_weblake.operators.weblake import WeblakeLandOperator

    with weblake_connection.client() as client:
        job_id = str(client.start_batch_scrape([*site.pages(24), *site.held(1)], timeout=240_000).id)
    ti = SimpleNamespace(dag_id="dag", task_id="land", run_id="run", map_index=-1, max_tries=0, try_number=1)
    ti.xcom_push = lambda **_: None
    task: Any = WeblakeLandOperator(task_id="land", kind="batch", job_id=job_id, to=str(tmp_path), deadline=3600)
    context: Any = {"ti": ti, "task": task, "outlet_events": {}}
    monkeypatch.setattr(landing, "LAST_POLL_S", 5.0)
    with monkeypatch.context() as later:
        # The intent is that of a try two hours ago, whose job ran for longer than the deadline.
        later.setattr(landing, "time", SimpleNamespace(time=lambda: time.time() + 7200, monotonic=time.monotonic))
        with pytest.raises((DeadlineExceeded, AirflowFailException), match="time limit"):
            task.execute(context)
        site.release()
        with weblake_connection.client() as client:
            ref, ends = orchestration.JobRef("batch_scrape", job_id), time.monotonic() + 60
            client.run(orchestration.wait(ref, client.retry, until=ends, unseen_s=0.0, poll_s=0.2))
        weblake_connection.faults.add(chunk_documents=2, latency_ms=600, path="/v2/batch/scrape/", times=None)
        ti.max_tries = 1
        assert task.execute(context)["stored"] == 25


@pytest.mark.system
@pytest.mark.parametrize("ended", [False, True])
def test_an_execution_timeout_ends_the_job_as_its_deadline_does(
    run_dag: Run, weblake_connection: WeblakeService, site: GatedSite, tmp_path: Path, ended: bool
) -> None:
    """What the job had scraped is paid: a Clear with `allow_partial` lands it. A job that has ended lands at once."""
    from airflow_provider_weblake.operators.weblake import WeblakeBatchScrapeOperator

    urls = [*site.pages(1), *site.held(1)]
    if ended:  # and the time limit comes while its pages are read
        site.release()
        weblake_connection.faults.add(chunk_documents=1, latency_ms=60_000, path="skip=1")
        weblake_connection.faults.add(chunk_documents=1, path="/v2/batch/scrape/", times=None)

    def make(**options: Any) -> Any:
        return WeblakeBatchScrapeOperator(
            task_id="land",
            urls=urls,
            to=str(tmp_path),
            options={"timeout": 240_000},
            poll_interval=0.2,
            deferrable=False,
            **options,
        )

    limits = {"execution_timeout": timedelta(seconds=6), "retries": 1, "retry_delay": timedelta(0)}
    run = run_one(run_dag, lambda: make(**limits))
    assert [ti.try_number for ti in run.get_task_instances()] == [1], "a time limit is no reason for a retry"
    assert run.state == ("success" if ended else "failed")
    if ended:
        assert returned(run, "land")["stored"] == 2
    else:
        ti = SimpleNamespace(dag_id=run.dag_id, task_id="land", run_id=run.run_id, map_index=-1, max_tries=2)
        ti.xcom_push = lambda **_: None
        cleared = make(allow_partial=True)
        receipt = cleared.execute({"ti": ti, "task": cleared, "outlet_events": {}})
        assert (receipt["stored"], receipt["status"], receipt["complete"]) == (1, "cancelled", False)
    assert weblake_connection.counts()["batch_scrape_started"] == 1


def test_a_sensor_that_starts_in_the_triggerer_is_serialised_accordingly() -> None:
    from airflow_provider_weblake.features import TASKS_IN_TRIGGERER
    from airflow_provider_weblake.sensors.weblake import WeblakeCrawlSensor

    def starts_there(**kwargs: Any) -> bool:
        return WeblakeCrawlSensor(task_id="watch", **kwargs).start_from_trigger

    assert starts_there(job_id="{{ dag_run.conf['job_id'] }}", deferrable=True) == TASKS_IN_TRIGGERER
    assert not starts_there(job_id="{{ ti.xcom_pull('start') }}", deferrable=True)
    assert not starts_there(job_id="x", deferrable=False)
    assert not starts_there(job_id="x", deferrable=True, start_from_trigger=False)
    sensor = WeblakeCrawlSensor(task_id="watch", job_id="x", deferrable=True, timeout=60, poke_interval=7)
    assert WeblakeCrawlSensor.start_trigger_args.trigger_kwargs is None, "the class's own are not touched"
    if not TASKS_IN_TRIGGERER:
        return
    args = sensor.start_trigger_args
    assert args is not None
    assert args.trigger_kwargs == {
        "weblake_conn_id": "weblake_default",
        "kind": "crawl",
        "job_id": "x",
        "poll_interval": 7.0,
        "ends_task": True,
    }
    assert args.timeout == timedelta(seconds=60)
