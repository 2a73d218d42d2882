"""Tests of orphans: what is on record, what the service reports, and that listing them changes nothing.

Every schedule of a start ends in such a look, too: `test_starts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from landing_lab import LandingLab, landing_lab
from polling import until

import weblake
from weblake import Client, Terms, errors
from weblake.cli.orphans import advice
from weblake.dataset.identity import job_load_id
from weblake.dataset.records import StartAttempt, new_nonce, utc_now
from weblake.jobs import cancelling
from weblake.jobs.polling import JobRef
from weblake.loads import generations, intents, load, load_request, orphans, sent_lists, starts
from weblake.loads.load_request import LoadRequest, Naming, Task
from weblake.loads.orphans import Orphan

URLS = [f"http://pages.test/{n}" for n in range(3)]
FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)


class Lab(LandingLab):
    def begin(self, request: LoadRequest) -> str:
        return load.start_load(self.client, self.dataset, request)[1].job_id

    def lost(self, request: LoadRequest, *, arrives: bool, replay: bool = False) -> str:
        """A start whose process died before its answer was on record; returns the job, if it arrived."""
        ledger = self.dataset.ledger
        intent = ledger.record_intent(intents.new_intent(request, self.client.service, starts.Preflight(replay)))
        assert request.start is not None
        key = starts.JobStarter(request, intent, ledger, self.client.retry).key(1)
        urls = sent_lists.keep(self.dataset.storage, request.load_id, request.submitted or ())
        ledger.record_start(
            StartAttempt(load_id=request.load_id, n=1, key=key, urls=urls, at=utc_now(), writer=new_nonce())
        )
        if not arrives:
            return ""
        answer: Any = self.client.call(request.start(key))
        return str(answer.id)

    def find_open_loads(self, **more: Any) -> orphans.Unlanded:
        return weblake.orphans(self.root, client=self.client, **more)

    def one(self) -> Orphan:
        (found,) = self.find_open_loads().orphans
        return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with landing_lab(Lab, f"memory://orphans-{tmp_path.name}") as made:  # a directory's turn comes with the command
        yield made


def a_batch(key: str = "a") -> LoadRequest:
    return load_request.batch(URLS, Naming(key=key))


def test_a_root_without_open_loads_has_no_orphans_and_is_not_changed(lab: Lab) -> None:
    load.land(lab.client, lab.dataset, a_batch(), FAST_POLLS)
    asked = len(lab.service.requests())
    assert lab.find_open_loads() == orphans.Unlanded(())
    assert len(lab.service.requests()) == asked, "there is nothing to ask"


@proves(
    "3.7",
    at="src/weblake/loads/orphans.py",
    line="_orphan(dataset, intent, job)",
    becomes="_orphan(dataset, intent, None)",
)
def test_a_job_on_record_is_named_with_its_state(lab: Lab) -> None:
    lab.web.held.add("*")
    job_id = lab.begin(a_batch())
    running = lab.one()
    assert (running.record, running.job_id, running.state, running.paid) == ("started", job_id, "scraping", True)
    assert (running.submitted, running.first_target) == (3, URLS[0])
    said = " ".join(advice(running, lab.root))
    assert f"`weblake cancel batch {job_id}`" in said
    assert "run the same `weblake batch …` again" in said
    assert f"`weblake land batch {job_id} --to {lab.root}`" in said
    lab.client.run(cancelling.cancel(JobRef("batch_scrape", job_id), lab.client.retry))
    lab.web.held.clear()
    found = lab.find_open_loads()
    assert found.orphans == ()  # it was given up
    (cancelled,) = found.cancelled
    assert (cancelled.job_id, cancelled.state) == (job_id, "cancelled")
    assert "--allow-partial" in advice(cancelled, lab.root)[0]


@proves(
    "3.7",
    at="src/weblake/loads/orphans.py",
    line="candidates=tuple(lost_starts.find_candidates(intent, last, listed, ledger))",
    becomes="candidates=()",
)
def test_a_start_without_an_answer_is_looked_up_in_the_activity_list(lab: Lab) -> None:
    job_id = lab.lost(a_batch(), arrives=True)
    found = lab.one()
    assert (found.record, found.candidates, found.paid) == ("start unanswered", (job_id,), True)
    assert job_id in " ".join(advice(found, lab.root))
    other = lab.lost(a_batch("b"), arrives=True)
    assert all(set(each.candidates or ()) == {job_id, other} for each in lab.find_open_loads().orphans[:1])


def test_a_start_whose_first_url_the_service_rejected_is_not_reported_as_without_effect(lab: Lab) -> None:
    job_id = lab.lost(load_request.batch(["http://", *URLS], Naming()), arrives=True)
    found = lab.one()
    assert (found.candidates, found.paid) == (None, None)
    assert job_id in (found.why or "")
    assert advice(found, lab.root)[0].startswith("It is unknown whether it was started.")


def test_a_job_of_another_load_is_not_a_candidate(lab: Lab) -> None:
    lab.lost(a_batch(), arrives=False)
    load.land(lab.client, lab.dataset, a_batch("b"), FAST_POLLS)
    found = lab.one()
    assert (found.candidates, found.paid) == ((), None)
    assert "Unless it is being started now, nothing was started" in advice(found, lab.root)[0]


def test_a_refused_start_was_not_paid(lab: Lab) -> None:
    lab.service.faults({"match": {"method": "POST"}, "effect": {"status": 402}})
    with pytest.raises(errors.CreditsExhausted):
        lab.begin(a_batch())
    found = lab.one()
    assert (found.record, found.starts, found.paid) == ("not started", 1, False)
    assert "Nothing was started" in advice(found, lab.root)[0]


RUN_ID = "0a6d52c3-7c55-4b4e-9d7c-7c6f5b2a1d10"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            Task(("airflow", "dag", "task", -1), "run-1", "max_tries=1"),
            "clear the Airflow task dag.task in its run run-1",
        ),
        (Task(("airflow", "dag", "task", 3), "run-1", "max_tries=1"), "task dag.task (map index 3) in its run run-1"),
        (
            Task(("dagster", "web/docs"), RUN_ID, RUN_ID),
            f"re-execute Dagster's run {RUN_ID} of the asset web/docs from failure (all of it, if it has succeeded)",
        ),
        (
            Task(("dagster", "web/docs"), "jvhmbxai", "jvhmbxai", "2026-11"),
            "re-execute Dagster's backfill jvhmbxai of the asset web/docs, partition 2026-11, from failure "
            "(all of it, if it has succeeded)",
        ),
        (Task((), "run-1", "x"), "retry what requested it, in its run run-1"),
    ],
)
def test_the_remedy_for_a_load_of_an_orchestrator_names_its_task_or_asset(lab: Lab, task: Task, words: str) -> None:
    lab.begin(generations.place_generation(load_request.crawl(URLS[0], Naming(), limit=1), task, 0))
    found = lab.one()
    assert (found.kind, found.run, found.first_target) == ("crawl", task.run, URLS[0])
    assert words in advice(found, lab.root)[0]
    for state in ("scraping", "failed", "cancelled", "gone"):
        said = " ".join(advice(replace(found, state=state), lab.root))
        assert "--new" not in said
    for state in ("failed", "cancelled"):  # a retry would start another job
        first, *others = advice(replace(found, state=state), lab.root)
        assert f"`weblake land crawl {found.job_id} --to {lab.root}`, with --allow-partial." in first
        assert (words in first, others) == (False, [])


def test_the_pages_of_a_cancelled_job_of_an_orchestrator_land_by_its_id_and_a_retry_does_not_pay(lab: Lab) -> None:
    """A retry with allow_partial would start another job."""
    task = Task(("airflow", "dag", "task", -1), "run-1", "max_tries=1")
    lab.web.held.add(URLS[2])
    job_id = lab.begin(generations.place_generation(a_batch(), task, 0))
    until(lambda: lab.client.get_batch_scrape(job_id).completed == 2)
    lab.client.run(cancelling.cancel(JobRef("batch_scrape", job_id), lab.client.retry))
    lab.web.held.clear()
    (found,) = lab.find_open_loads().cancelled
    assert f"`weblake land batch {job_id} --to {lab.root}`, with --allow-partial." in advice(found, lab.root)[0]
    partial = Terms(poll_s=0.2, allow_partial=True)
    receipt = weblake.land("batch", job_id, to=lab.root, client=lab.client, terms=partial)
    assert (receipt.stored, receipt.complete) == (2, False)
    assert (lab.find_open_loads().cancelled, generations.choose(lab.client, lab.dataset, task, partial)) == ((), 0)
    assert (
        load.land(lab.client, lab.dataset, generations.place_generation(a_batch(), task, 0), partial).receipt == receipt
    )
    assert lab.service.counts()["batch_scrape_started"] == 1


@pytest.mark.parametrize("later", ["started", "landed"])
@pytest.mark.parametrize("path_keys", [None, {"day": "2026-11-21"}])
def test_a_load_whose_place_a_later_one_has_taken_is_not_open(
    lab: Lab, later: str, path_keys: dict[str, str] | None
) -> None:
    """Its task was marked failed while it waited, and cleared: to clear it once more would pay for a third job."""
    task = Task(("airflow", "dag", "task", -1), "run-1", "max_tries=1")
    request = load_request.batch(URLS, Naming(partition=path_keys))
    lab.web.held.add("*")
    job_id = lab.begin(generations.place_generation(request, task, 0))
    lab.client.run(cancelling.cancel(JobRef("batch_scrape", job_id), lab.client.retry))
    again = replace(task, occasion="max_tries=2")
    assert generations.choose(lab.client, lab.dataset, again, FAST_POLLS) == 1
    second = generations.place_generation(request, again, 1)
    lab.begin(second)
    lab.web.held.clear()
    if later == "landed":
        load.land(lab.client, lab.dataset, second, FAST_POLLS)
    for found in (orphans.open_loads(lab.dataset), lab.find_open_loads()):
        assert [each.load_id for each in found.orphans] == ([] if later == "landed" else [second.load_id])
        assert [(each.load_id, each.superseded) for each in found.cancelled] == [(task.load_id(0), True)]
        assert "clear" not in " ".join(advice(found.cancelled[0], str(lab.root)))


def test_a_load_is_not_open_after_another_run_has_replaced_the_load_that_took_its_place(lab: Lab) -> None:
    task = Task(("airflow", "dag", "task", -1), "run-1", "max_tries=1")
    request = load_request.batch(URLS, Naming(partition={"day": "2026-11-21"}))
    lab.web.held.add("*")
    job_id = lab.begin(generations.place_generation(request, task, 0))
    lab.client.run(cancelling.cancel(JobRef("batch_scrape", job_id), lab.client.retry))
    lab.web.held.clear()
    again, later = replace(task, occasion="max_tries=2"), replace(task, run="run-2")
    for each, number in ((again, 1), (later, 0)):
        load.land(lab.client, lab.dataset, generations.place_generation(request, each, number), FAST_POLLS)
    assert lab.dataset.ledger.retired(task.load_id(1)) is not None
    found = orphans.open_loads(lab.dataset)
    assert (found.orphans, [each.load_id for each in found.cancelled]) == ((), [task.load_id(0)])


def test_a_waiting_task_is_not_to_be_cleared(lab: Lab) -> None:
    """Clearing a waiting task of Airflow cancels its job, and the next try pays again."""
    found = Orphan(
        "0" * 16, "crawl", utc_now(), "s", None, URLS[0], None, "slot", "run-1", ("airflow", "dag", "task", "-1"),
        "started", job_id="4d8b6c1e-0000-4000-8000-000000000001",
    )  # fmt: skip
    for state in (None, "scraping"):
        assert "to clear it would cancel the job" in advice(replace(found, state=state), lab.root)[0]
    assert "cancel" not in advice(replace(found, state="completed"), lab.root)[0]


def test_the_results_of_a_job_started_elsewhere_that_is_gone_are_not_to_be_started_again(lab: Lab) -> None:
    job_id = str(lab.client.start_batch_scrape(URLS, idempotency_key="6f1c2a52-8a57-5f0e-9a3c-5d0a3c6f7b11").id)
    lab.begin(load_request.existing_job("batch", job_id))
    (said,) = advice(replace(lab.one(), state="gone"), lab.root)
    assert said.endswith("its results are lost.")
    assert "with --allow-partial" in advice(replace(lab.one(), state="failed", slot="s"), lab.root)[0]


def test_a_job_started_elsewhere_has_a_command_of_its_own(lab: Lab) -> None:
    job_id = lab.client.start_batch_scrape(URLS, idempotency_key="6f1c2a52-8a57-5f0e-9a3c-5d0a3c6f7b11").id
    assert job_id is not None
    lab.begin(load_request.existing_job("batch", job_id, {"ds": "a b"}))
    assert f"`weblake land batch {job_id} --to {lab.root} --partition 'ds=a b'`" in advice(lab.one(), lab.root)[0]


def test_a_job_that_another_load_has_landed_is_not_an_orphan(lab: Lab) -> None:
    job_id = lab.begin(a_batch())
    load.land(lab.client, lab.dataset, load_request.existing_job("batch", job_id), FAST_POLLS)
    assert lab.find_open_loads().orphans == ()


def test_a_refused_load_is_listed_separately_from_orphans(lab: Lab) -> None:
    lab.web.held.add("*")
    request = a_batch()
    job_id = lab.begin(request)
    lab.client.run(cancelling.cancel(JobRef("batch_scrape", job_id), lab.client.retry))
    lab.web.held.clear()
    with pytest.raises(errors.WeblakeError):
        load.land(lab.client, lab.dataset, request, FAST_POLLS)
    found = lab.find_open_loads()
    assert (found.orphans, found.refused) == ((), (request.load_id,))


def test_a_published_load_without_a_done_record_is_reported(lab: Lab) -> None:
    request = a_batch()
    receipt = load.land(lab.client, lab.dataset, request, FAST_POLLS).receipt
    lab.dataset.storage.delete(f"_weblake/ledger/{request.load_id}.done.json")
    found = lab.one()
    assert (found.record, found.job_id, found.state) == ("published", receipt.job_id, None)
    assert load.land(lab.client, lab.dataset, request, FAST_POLLS).receipt.stored == 3
    assert lab.find_open_loads().orphans == ()


def test_the_remedy_for_a_published_load_of_an_airflow_task_does_not_pay(lab: Lab) -> None:
    task = Task(("airflow", "dag", "task", -1), "run-1", "max_tries=1", records_return=True)
    request = generations.place_generation(a_batch(), task, 0)
    landed = load.land(lab.client, lab.dataset, request, FAST_POLLS).receipt
    lab.dataset.storage.delete(f"_weblake/ledger/{request.load_id}.done.json")
    assert advice(lab.one(), lab.root) == [
        "Its file is published, and only its done record is missing: clear the Airflow task dag.task in its run run-1."
    ]
    cleared = replace(task, occasion="max_tries=2")
    number = generations.choose(lab.client, lab.dataset, cleared, FAST_POLLS)
    again = load.land(lab.client, lab.dataset, generations.place_generation(a_batch(), cleared, number), FAST_POLLS)
    assert (again.receipt, lab.find_open_loads().orphans) == (landed, ())
    assert lab.service.counts()["batch_scrape_started"] == 1


def test_jobs_of_other_programs_are_listed_on_request(lab: Lab) -> None:
    mine = lab.begin(a_batch())
    other = lab.client.start_crawl(URLS[0], limit=1, idempotency_key="6f1c2a52-8a57-5f0e-9a3c-5d0a3c6f7b11").id
    assert lab.find_open_loads().unknown_jobs is None
    found = lab.find_open_loads(unknown_jobs=True).unknown_jobs
    assert found is not None
    assert [(each.job_id, each.kind) for each in found] == [(other, "crawl")]
    assert mine not in {each.job_id for each in found}


def test_a_job_that_is_landed_by_its_id_is_no_unknown_job(lab: Lab) -> None:
    job_id = str(lab.client.start_batch_scrape(URLS, idempotency_key="6f1c2a52-8a57-5f0e-9a3c-5d0a3c6f7b11").id)
    lab.begin(load_request.existing_job("batch", job_id))
    assert lab.find_open_loads(unknown_jobs=True).unknown_jobs == ()


def test_without_a_service_orphans_are_listed_from_the_ledger(lab: Lab) -> None:
    job_id = lab.begin(a_batch())
    alone = weblake.orphans(lab.root, offline=True)
    assert [(each.job_id, each.state) for each in alone.orphans] == [(job_id, None)]
    lab.service.faults({"match": {"path": "/v2/batch/scrape/.*"}, "times": 99, "effect": {"status": 401}})
    found = lab.find_open_loads()
    assert [(each.job_id, each.state) for each in found.orphans] == [(job_id, None)]
    assert isinstance(found.unasked, errors.AuthenticationFailed)


@pytest.mark.parametrize("lost", [False, True])
def test_another_service_is_not_asked_about_a_job_or_a_lost_start(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    if lost:
        lab.lost(a_batch(), arrives=True)
    else:
        lab.begin(a_batch())
    asked = len(lab.service.requests())
    monkeypatch.setattr(Client, "service", "https://other.test")
    found = lab.one()
    assert (found.state, found.candidates, "not https://other.test" in found.why) == (None, None, True)
    assert len(lab.service.requests()) == asked


def test_the_activity_list_is_read_once_for_all_lost_starts(lab: Lab) -> None:
    for key in "abc":
        lab.lost(a_batch(key), arrives=False)
    asked = len(lab.service.requests())
    assert [each.candidates for each in lab.find_open_loads().orphans] == [(), (), ()]
    assert len(lab.service.requests()) == asked + 1


@pytest.mark.parametrize(
    ("path", "status", "lost"),
    [
        ("/v2/batch/scrape/.*", 400, False),
        ("/v2/batch/scrape/.*", 302, False),
        ("/v2/team/activity.*", 400, True),
        ("/v2/team/activity.*", 302, True),
    ],
)
def test_a_request_that_the_service_refuses_leaves_one_load_unknown(
    lab: Lab, path: str, status: int, *, lost: bool
) -> None:
    """It is no reason to ask nothing of the other loads."""
    if lost:
        lab.lost(a_batch(), arrives=False)
    else:
        lab.begin(a_batch())
    lab.begin(load_request.crawl(URLS[0], Naming(key="b"), limit=1))
    lab.service.faults({"match": {"path": path}, "times": 9, "effect": {"status": status}})
    found = lab.find_open_loads()
    assert found.unasked is None
    batch, crawl = found.orphans
    assert (batch.state, batch.candidates, bool(batch.why)) == (None, None, True)
    assert (crawl.state is not None, crawl.why) == (True, "")


@pytest.mark.parametrize("request_", [load_request.scrape(URLS[0], Naming()), a_batch()], ids=["a page", "a job"])
def test_what_the_service_has_dropped_is_gone(lab: Lab, request_: LoadRequest) -> None:
    lab.begin(request_)
    lab.service.faults({"match": {"path": "/v2/(batch/)?scrape/.*"}, "times": 9, "effect": {"status": 404}})
    found = lab.one()
    assert found.state == "gone"
    assert "lost" in advice(found, lab.root)[0]


@pytest.mark.parametrize("step", ["", ".start-1", ".owner", ".job"])
def test_an_unreadable_record_is_reported_and_does_not_affect_other_loads(lab: Lab, step: str) -> None:
    """Nor is its job taken for nobody's."""
    spoilt = a_batch()
    job_id = lab.begin(spoilt)
    filed = job_load_id("batch_scrape", job_id) if step == ".owner" else spoilt.load_id
    lab.begin(a_batch("b"))
    lab.lost(a_batch("c"), arrives=True)
    before = lab.find_open_loads(unknown_jobs=True)
    name = f"_weblake/ledger/{filed}{step}.json"
    lab.dataset.storage.delete(name)
    lab.dataset.storage.create(name, b"{")
    found = lab.find_open_loads(unknown_jobs=True)
    assert found.unasked is None
    assert before.unknown_jobs == (), "a job that an unanswered start may have made is none"
    others = [each for each in before.orphans if each.load_id != spoilt.load_id]
    if step == ".owner":  # a load whose start is lost has to know whose job it is
        assert [each.load_id for each in found.orphans] == [each.load_id for each in before.orphans]
        assert name in found.orphans[-1].why
        assert {each.job_id for each in found.unknown_jobs or ()} == set(before.orphans[-1].candidates or ())
        return
    assert found.unknown_jobs == ()
    assert list(found.orphans) == others
    assert [each.load_id for each in found.unreadable] == [spoilt.load_id]
    assert name in found.unreadable[0].why


@pytest.mark.parametrize("place", ["missing", "empty", "a dataset's table"])
def test_a_path_without_a_dataset_is_an_error(tmp_path: Path, place: str) -> None:
    root = tmp_path / "documents"
    if place == "empty":
        root.mkdir()
    elif place == "a dataset's table":
        (root / "load_date=2026-11-21").mkdir(parents=True)
        (root / "load_date=2026-11-21" / "0123456789abcdef-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(errors.StorageRefused, match=r"documents holds no dataset\. Give the root"):
        weblake.orphans(root, offline=True)
    assert root.exists() is (place != "missing"), "a look makes nothing"


def test_a_root_that_only_holds_usage_is_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "usage_periods" / "report=credits" / "period=2026-11").mkdir(parents=True)
    (tmp_path / "usage_periods" / "report=credits" / "period=2026-11" / "usage.parquet").write_bytes(b"PAR1")
    assert weblake.orphans(tmp_path, offline=True) == orphans.Unlanded(())
