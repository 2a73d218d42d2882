"""Tests of a retry, a Clear and overlapping runs on the real service: which pays for a job, and which lands a paid one.

Rows O1, O2, O5 and O6 of the fault catalogue, as every orchestrator has them; the real ones are tested beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from crash_steps import crash
from polling import until
from task_lab import CLEAR, RETRY, URLS, TaskLab, task_lab

from weblake import Client, Terms, errors
from weblake.dataset import root
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Job
from weblake.dataset.root import open_dataset
from weblake.events import Event, StatusPolled
from weblake.jobs import cancelling
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.retry import observing
from weblake.loads import generations, intents, load, load_request
from weblake.loads.load_request import Task
from weblake_service.page_failure import PageFailure


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        yield lab


@proves(
    "O1",
    at="src/weblake/loads/generations.py",
    line="return generation if _is_over(",
    becomes="return generation if True or _is_over(",
)
def test_o1_the_first_run_is_generation_zero_and_a_retry_keeps_it(lab: TaskLab) -> None:
    lab.hold()
    job = lab.start(RETRY)
    assert lab.choose(RETRY) == 0
    assert lab.start(RETRY) == job
    lab.release()
    assert lab.land(RETRY).receipt.stored == len(URLS)
    assert lab.started == 1


@proves(
    "O1", at="src/weblake/loads/generations.py", line="again = newest.occasion != task.occasion", becomes="again = True"
)
@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line="again = newest.occasion != task.occasion",
    becomes="again = False",
)
def test_o1_o2_a_retry_of_a_landed_load_returns_its_receipt_and_a_clear_pays_again(lab: TaskLab) -> None:
    first = lab.land(RETRY).receipt
    again = lab.land(RETRY)
    assert (again.receipt, again.landed_at is not None, lab.started) == (first, True, 1)
    second = lab.land(CLEAR).receipt
    assert second.load_id != first.load_id
    assert lab.started == 2
    assert lab.visible == [second.load_id], "the later generation takes the earlier one's place"
    assert lab.land(CLEAR).receipt == second, "and a retry after the Clear stays with it"
    assert lab.started == 2


@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line="return again and returned is not None and returned.occasion != task.occasion",
    becomes="return again",
)
def test_o2_a_clear_pays_again_once_the_load_was_returned(lab: TaskLab) -> None:
    """Before that, the task failed. A retry after a Clear that continued a running job does not count as a Clear."""
    lab.records_return = True
    lab.hold()
    job = lab.start(RETRY)
    assert lab.placed(CLEAR).load_id == lab.task(RETRY).load_id(0)
    lab.release()
    landed = lab.land(CLEAR).receipt
    for occasion in (CLEAR, "max_tries=3"):
        assert lab.land(occasion).receipt == landed, "the task failed before it had returned it"
    lab.returns(lab.placed("max_tries=3"))
    assert lab.land("max_tries=3").receipt == landed
    assert (landed.job_id, lab.started) == (job.job_id, 1)
    assert lab.land("max_tries=4").receipt.job_id != job.job_id
    assert lab.started == 2


@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line="return again and returned is not None and returned.occasion != task.occasion",
    becomes="return returned is not None and returned.occasion != task.occasion",
)
def test_o2_a_late_retry_of_the_first_request_does_not_pay_for_what_a_clear_has_landed(lab: TaskLab) -> None:
    """A daemon retries a run that a person has executed again meanwhile."""
    lab.records_return = True
    lab.hold()
    lab.start(RETRY)
    lab.release()
    landed = lab.land(CLEAR).receipt
    lab.returns(lab.placed(CLEAR))
    assert lab.land(RETRY).receipt == landed
    assert lab.started == 1


@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line="if not task.records_return or not landed.receipt.stored:",
    becomes="if not task.records_return:",
)
def test_o2_a_clear_after_a_load_without_documents_pays_again(lab: TaskLab) -> None:
    """The task can only fail with it."""
    lab.records_return = True
    lab.web.failures |= dict.fromkeys(URLS, PageFailure("SCRAPE_SITE_ERROR", "It is down."))
    for occasion in (RETRY, RETRY, CLEAR):
        with pytest.raises(errors.LoadIncomplete):
            lab.land(occasion)
    assert lab.started == 2


def test_o2_a_clear_returns_a_job_that_another_command_has_landed(lab: TaskLab) -> None:
    lab.records_return = True
    job = lab.start(RETRY)
    by_id = load_request.existing_job(job.kind, job.job_id)
    landed = load.land(lab.client, lab.dataset, by_id, Terms(poll_s=0.2)).receipt
    assert lab.land(CLEAR).receipt == landed
    assert lab.started == 1


@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line='if str(head.get("status")).lower() not in _UNSUCCESSFUL:',
    becomes="if not again:",
)
def test_o2_a_clear_lands_a_running_or_ended_job_without_payment(lab: TaskLab) -> None:
    lab.hold()
    job = lab.start(RETRY)
    assert lab.choose(CLEAR) == 0
    lab.release()
    assert lab.land(CLEAR).receipt.job_id == job.job_id
    assert lab.started == 1


@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line='_UNSUCCESSFUL = frozenset({"failed", "cancelled"})',
    becomes='_UNSUCCESSFUL = frozenset({"failed"})',
    case="max_tries=1",
)
@pytest.mark.parametrize("occasion", [RETRY, CLEAR])
def test_o2_after_a_cancelled_job_a_retry_and_a_clear_pay_again(lab: TaskLab, occasion: str) -> None:
    lab.hold()
    lab.cancel(lab.start(RETRY))
    lab.release()
    assert lab.choose(occasion) == 1
    assert lab.land(occasion).receipt.stored == len(URLS)
    assert lab.started == 2


@proves(
    "O2",
    at="src/weblake/loads/generations.py",
    line='_UNSUCCESSFUL = frozenset({"failed", "cancelled"})',
    becomes='_UNSUCCESSFUL = frozenset({"cancelled"})',
    case="max_tries=1",
)
@pytest.mark.parametrize("occasion", [RETRY, CLEAR])
def test_o2_after_a_failed_job_a_retry_and_a_clear_pay_again(lab: TaskLab, occasion: str) -> None:
    lab.start(RETRY)
    body = {"success": True, "status": "failed", "total": 3, "completed": 0, "data": [], "creditsUsed": 0}
    lab.service.faults({"match": {"method": "GET"}, "times": 1, "effect": {"status": 200, "body": body}})
    assert lab.choose(occasion) == 1


@proves(
    "O2", at="src/weblake/loads/generations.py", line="return again  # to a retry", becomes="return True  # to a retry"
)
def test_o2_an_expired_job_is_paid_again_by_a_clear_and_reported_by_a_retry(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "JUST_STARTED_S", 0.5)
    job = lab.start(RETRY)
    deadline = time.monotonic() + 20
    while str(lab.client.run(get_status(job, lab.client.retry)).get("status")) != "completed":
        assert time.monotonic() < deadline
    lab.service.advance(25 * 3600)
    assert lab.choose(RETRY) == 0
    with pytest.raises(errors.JobGone):
        lab.land(RETRY, Terms(poll_s=0.2, timeout_s=20))
    assert lab.choose(CLEAR) == 1


@proves(
    "3.3",
    at="src/weblake/loads/generations.py",
    line="return again or not _stopped_by_us(head, dataset, job, terms)",
    becomes="return True",
)
def test_o2_a_job_stopped_by_a_limit_of_the_task_is_paid_again_by_a_clear_only(lab: TaskLab) -> None:
    lab.hold()
    lab.cancel(lab.start(RETRY))
    late = Terms(timeout_s=0.001, ends_job=True)
    assert lab.choose(RETRY, late) == 0
    assert lab.choose(CLEAR, late) == 1


@proves(
    "3.3",
    at="src/weblake/loads/generations.py",
    line="if terms.allow_partial and dataset.storage.exists(",
    becomes="if False and dataset.storage.exists(",
)
def test_a_refused_load_is_published_if_the_tolerances_allow_it_now(lab: TaskLab) -> None:
    lab.hold()
    lab.cancel(lab.start(RETRY))
    lab.release()
    request = generations.place_generation(lab.request(), Task(("airflow", "dag", "task", -1), "run-1", RETRY), 0)
    with pytest.raises(errors.JobEnded):
        load.land(lab.client, lab.dataset, request, Terms(poll_s=0.2))
    assert lab.choose(CLEAR) == 1
    assert lab.choose(CLEAR, Terms(allow_partial=True)) == 0
    assert lab.choose(RETRY, Terms(allow_partial=True)) == 0


@proves(
    "3.3",
    at="src/weblake/loads/generations.py",
    line="if service not in (None, client.service):",
    becomes="if False:",
)
def test_a_job_of_another_service_is_not_reported_as_gone(lab: TaskLab) -> None:
    request = replace(lab.placed(RETRY), slot=None)
    intent = intents.new_intent(request, "https://other.test", None)
    lab.dataset.preflight(None)
    lab.dataset.ledger.record_intent(intent)
    lab.dataset.ledger.record_job(
        load.Job(
            load_id=intent.load_id,
            job_id="11111111-1111-4111-8111-111111111111",
            kind="batch_scrape",
            at=intent.created_at,
        )
    )
    with pytest.raises(errors.AskPerson, match=r"was started at https://other\.test"):
        lab.choose(CLEAR)


@proves(
    "3.3",
    at="src/weblake/dataset/landed_loads.py",
    line="    return None if by is None or by == load_id else find_done(dataset, by)",
    becomes="    return None",
)
def test_a_job_that_was_landed_by_its_id_counts_as_landed(lab: TaskLab) -> None:
    job = lab.start(RETRY)
    request = load_request.existing_job(job.kind, job.job_id)
    load.land(lab.client, lab.dataset, request, Terms(poll_s=0.2))
    assert lab.choose(RETRY) == 0
    assert lab.choose(CLEAR) == 1


@proves(
    "O1",
    at="src/weblake/loads/load_request.py",
    line='return load_id_of("task", *self._whole(), self.run, generation)',
    becomes='return load_id_of("task", *self._whole()[:-1], self.run, generation)',
)
def test_o1_other_runs_tasks_and_indexes_are_other_loads(lab: TaskLab) -> None:
    tasks = [
        Task(("airflow", dag, task, index), run, RETRY)
        for dag in ("a", "b")
        for task in ("t", "u")
        for index in (-1, 0)
        for run in ("r1", "r2")
    ]
    assert len({task.load_id(0) for task in tasks}) == len(tasks)
    assert tasks[0].load_id(0) != tasks[0].load_id(1)
    assert len({task.slot(0, None).name for task in tasks}) == len(tasks) / 2, "a slot is the same in every run"
    days = {tasks[0].slot(0, {"day": day}).name for day in ("2026-11-21", "2026-11-22")}
    assert len(days) == 2


@proves(
    "3.3",
    at="src/weblake/loads/load.py",
    line="_cancel(client, ref, until)",
    becomes='raise DeadlineExceeded("The time limit passed.")',
)
def test_a_job_is_cancelled_at_its_deadline_and_its_pages_are_kept(lab: TaskLab) -> None:
    lab.web.held.add(URLS[2])
    job = lab.start(RETRY)
    until(lambda: lab.client.get_batch_scrape(job.job_id).completed == 2)
    terms = Terms(timeout_s=0.2, ends_job=True, poll_s=0.2)
    with pytest.raises(errors.DeadlineExceeded) as caught:
        lab.land(RETRY, terms)
    assert caught.value.receipt is not None
    assert caught.value.receipt.status == "cancelled"
    assert lab.visible == []
    promoted = lab.land(RETRY, replace(terms, allow_partial=True)).receipt
    assert (promoted.stored, promoted.complete) == (2, False)
    assert lab.started == 1


@proves(
    "3.3",
    at="src/weblake/loads/load.py",
    line="until = time.monotonic() + terms.timeout_s - job.age_s()",
    becomes="until = time.monotonic() + terms.timeout_s - (time.time() - intent.created().timestamp())",
)
def test_the_deadline_of_a_job_does_not_count_the_time_before_its_start(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start is refused, and a person clears the task when the reason is gone: the job is not paid in vain."""
    terms = Terms(timeout_s=3600.0, ends_job=True, poll_s=0.2)
    lab.service.faults({"match": {"method": "POST"}, "times": 1, "effect": {"status": 402}})
    with monkeypatch.context() as earlier:
        at = (datetime.now(timezone.utc) - timedelta(hours=2)).isoformat()
        earlier.setattr(intents, "utc_now", lambda: at)
        with pytest.raises(errors.CreditsExhausted):
            lab.land(RETRY, terms)
    lab.web.held.add(URLS[2])
    polls: list[object] = []

    def second_poll(event: Event) -> None:  # no second one follows if the time limit has passed
        if isinstance(event, StatusPolled):
            polls.append(event)
            if len(polls) == 2:
                lab.release()

    with observing(lab.client, second_poll):
        assert load.land(lab.client, lab.dataset, lab.placed(CLEAR, terms), terms).receipt.complete
    assert (lab.started, lab.choose(RETRY, terms)) == (1, 0)


@proves(
    "3.3",
    at="src/weblake/loads/generations.py",
    line="if again:  # raises JobGone",
    becomes='if again and newest.kind == "scrape":',
    case="parse",
)
@pytest.mark.parametrize("kind", ["scrape", "parse"])
def test_o2_a_document_that_is_gone_is_paid_again_by_a_clear_and_reported_by_a_retry(
    lab: TaskLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The run was killed between the response to its start and the landing."""
    file = tmp_path / "page.html"
    file.write_text("<h1>Title</h1><p>A text.</p>")

    def land(occasion: str) -> root.LandedLoad:
        naming = load_request.Naming()
        request = load_request.parse(file, naming) if kind == "parse" else load_request.scrape(URLS[0], naming)
        task = lab.task(occasion)
        placed = generations.place_generation(request, task, lab.choose(occasion))
        return load.land(lab.client, lab.dataset, placed)

    with monkeypatch.context() as patch:
        patch.setattr(load, "stage_document", crash)
        with pytest.raises(KeyboardInterrupt):
            land(RETRY)
    lab.service.faults({"match": {"method": "GET", "path": "/v2/scrape/"}, "times": None, "effect": {"status": 404}})
    with pytest.raises(errors.JobGone):
        land(RETRY)
    assert land(CLEAR).receipt.stored == 1
    assert lab.service.counts()[f"{kind}_started"] == 2


def stop_and_die(lab: TaskLab, monkeypatch: pytest.MonkeyPatch, terms: Terms) -> None:
    """Land a job that passes a limit of the terms; the run is killed before it reads the job's pages."""
    lab.web.held.add(URLS[2])
    lab.start(RETRY)
    with monkeypatch.context() as patch:
        patch.setattr(load, "stage_job", crash)
        with pytest.raises(KeyboardInterrupt):
            lab.land(RETRY, terms)
    lab.release()


@proves(
    "3.3",
    at="src/weblake/loads/completeness.py",
    line="dataset.ledger.record_stopped(load_id, used=used, timeout_s=None if used else terms.timeout_s)",
    becomes="pass",
)
@proves(
    "3.3",
    at="src/weblake/loads/generations.py",
    line="return late or (terms.max_credits is not None and used > terms.max_credits)",
    becomes="return late",
)
def test_o2_a_retry_does_not_pay_for_a_job_stopped_at_its_credits_if_the_service_reports_fewer(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = Terms(max_credits=1, poll_s=0.2)
    stop_and_die(lab, monkeypatch, terms)
    lab.service.faults({"match": {"method": "GET"}, "times": None, "effect": {"late_credits": True}})
    for _ in range(2):  # the load is refused for its limit each time, as in the run that was killed
        with pytest.raises(errors.CreditsExhausted, match="had used 2 credits"):
            lab.land(RETRY, terms)
    assert lab.started == 1
    assert (lab.choose(RETRY, replace(terms, max_credits=2)), lab.choose(CLEAR, terms)) == (1, 1)


@proves(
    "3.3",
    at="src/weblake/loads/generations.py",
    line="return late or (terms.max_credits is not None and used > terms.max_credits)",
    becomes="return terms.max_credits is not None and used > terms.max_credits",
)
def test_o2_a_retry_does_not_pay_for_a_job_stopped_at_its_deadline_if_its_clock_is_behind(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = Terms(timeout_s=0.2, ends_job=True, poll_s=0.2)
    stop_and_die(lab, monkeypatch, terms)
    monkeypatch.setattr(Job, "age_s", lambda _: 0.0)
    with pytest.raises(errors.DeadlineExceeded):
        lab.land(RETRY, terms)
    assert lab.started == 1
    assert lab.choose(RETRY, replace(terms, timeout_s=3600.0)) == 1


def test_a_job_over_its_limit_is_cancelled_also_if_that_cannot_be_recorded(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise errors.StorageRefused("The disk is full.", hint="Free some space.")

    lab.web.held.add(URLS[2])
    lab.start(RETRY)
    monkeypatch.setattr(Ledger, "record_stopped", full)
    with pytest.raises(errors.CreditsExhausted):
        lab.land(RETRY, Terms(max_credits=1, poll_s=0.2))


def test_the_results_of_a_job_may_take_until_its_deadline(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """GRACE_S extends the time for a job that ends near its deadline, and shortens it for none."""
    monkeypatch.setattr(load, "GRACE_S", 0.0)
    assert lab.land(RETRY, Terms(timeout_s=60.0, ends_job=True, poll_s=0.2)).receipt.complete


def test_a_job_that_completes_as_it_is_cancelled_lands(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.hold()
    request = lab.placed(RETRY)
    cancel = cancelling.cancel

    def too_late(job: JobRef, retry: Any, policy: Any) -> Any:
        lab.release()
        until(lambda: lab.client.get_batch_scrape(job.job_id).status == "completed")
        return cancel(job, retry, policy)

    monkeypatch.setattr(cancelling, "cancel", too_late)
    landing = load.land(lab.client, lab.dataset, request, Terms(timeout_s=1.0, ends_job=True, poll_s=0.2))
    assert landing.receipt.complete


def test_the_partitions_of_a_graph_are_loads_and_slots_of_their_own() -> None:
    def task(partition: str | None, run: str = "run") -> Task:
        return Task(("dagster", "docs"), run, run, partition)

    assert len({task(partition).load_id(0) for partition in (None, "a", "b")}) == 3
    assert task("a").load_id(0) != task("a", "another run").load_id(0)
    # The slot is the graph's partition, wherever in the path it lies; a graph without partitions has those of the path.
    assert task("a").slot(0, None).name == task("a", "another run").slot(1, {"day": "2026-11-21"}).name
    assert task("a").slot(0, None).name != task("b").slot(0, None).name
    assert task("a").slot(0, None).has_partition
    assert not task(None).slot(0, None).has_partition
    assert task(None).slot(0, {"day": "1"}).name != task(None).slot(0, {"day": "2"}).name


#: The other run, what made it ask, its path keys and those of the first; how many are bought, and how many stay.
DAY, NEXT_DAY = {"day": "2026-11-20"}, {"day": "2026-11-21"}
OVERLAPS: dict[str, tuple[str, str, Mapping[str, str] | None, Mapping[str, str] | None, int, int]] = {
    "a backfill of the same day": ("backfill__1", RETRY, DAY, DAY, 2, 1),
    "a person who triggers the same day": ("manual__1", RETRY, DAY, DAY, 2, 1),
    "a backfill of another day": ("backfill__1", RETRY, DAY, NEXT_DAY, 2, 2),
    "a backfill without path keys": ("backfill__1", RETRY, None, None, 2, 2),
    "a backfill that takes the scheduled run again": ("scheduled__1", CLEAR, None, None, 2, 1),
    "a retry of the scheduled run": ("scheduled__1", RETRY, DAY, DAY, 1, 1),
}


@pytest.mark.parametrize("name", OVERLAPS)
@proves(
    "O6",
    at="src/weblake/loads/load_request.py",
    line='return load_id_of("task", *self._whole(), self.run, generation)',
    becomes='return load_id_of("task", *self._whole(), generation)',
    case="a backfill of another day",
)
@proves(
    "O6",
    at="src/weblake/dataset/slots.py",
    line="return later.slot_has_partition and",
    becomes="return False and",
    case="a backfill of the same day",
)
def test_o6_a_backfill_that_overlaps_a_scheduled_run(lab: TaskLab, name: str) -> None:
    """Both have been started before either lands, and the one that began first is over last."""
    run, occasion, keys, other_keys, bought, stay = OVERLAPS[name]
    lab.run, lab.keys = "scheduled__1", keys
    first = lab.placed(RETRY)
    load.start_load(lab.client, lab.dataset, first)
    if occasion == CLEAR:
        load.land(lab.client, lab.dataset, first)  # Airflow takes a run again when it has ended
    lab.run, lab.keys = run, other_keys
    second = lab.placed(occasion)
    load.start_load(lab.client, lab.dataset, second)
    receipts = {load.land(lab.client, lab.dataset, request, Terms(poll_s=0.2)).receipt for request in (second, first)}
    assert (lab.started, len(receipts)) == (bought, bought)
    assert len(lab.visible) == stay
    assert second.load_id in lab.visible, "what was asked for last is there"


@proves(
    "O5",
    at="src/weblake/loads/load_request.py",
    line='return load_id_of("task", *self._whole(), self.run, generation)',
    becomes='return load_id_of("task", *self._whole(), self.run, generation, id(self))',
)
def test_o5_two_concurrent_tries_of_one_task_pay_once(lab: TaskLab) -> None:
    """A lost worker that still runs, and the one that was started in its place, at the same moment."""
    lab.service.faults({"match": {"method": "POST"}, "times": None, "effect": {"latency_ms": 300}})
    together, landed = threading.Barrier(2), list[root.LandedLoad]()

    def one_try() -> None:
        with Client(lab.service.url, lab.service.key) as client:
            mine = replace(lab, client=client, dataset=open_dataset(lab.root))
            together.wait(20)
            landed.append(mine.land(RETRY))

    tries = [threading.Thread(target=one_try) for _ in range(2)]
    for each in tries:
        each.start()
    for each in tries:
        each.join(60)
    assert [each.receipt.stored for each in landed] == [len(URLS)] * 2
    assert landed[0].receipt == landed[1].receipt
    assert (lab.started, len(lab.visible)) == (1, 1)
