"""Tests that a job belongs to one load of a root, whether it is landed by its request or by its id."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from catalogue import proves
from landing_lab import LandingLab, landing_lab
from msgspec.structs import replace
from polling import until

from weblake import Terms, read
from weblake.api import operations
from weblake.api.operation import Operation
from weblake.api.steps import NoResponse, Now, Response, Send
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent, StartAttempt
from weblake.dataset.root import open_dataset
from weblake.errors import LoadIncomplete, OutcomeUnknown
from weblake.jobs.retry import Retry
from weblake.loads import intents, load, load_request, orphans, sent_lists, starts
from weblake.loads.load_request import LoadRequest, Naming, with_key

URLS = [f"http://pages.test/{n}" for n in range(3)]
FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)
JOBS = [f"00000000-0000-4000-8000-00000000000{n}" for n in range(9)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LandingLab]:
    with landing_lab(LandingLab, tmp_path / "lake") as made:
        yield made


def batch() -> LoadRequest:
    return load_request.batch(URLS, Naming(key="a"))


def rows(lab: LandingLab) -> int:
    return int(read(str(lab.root)).to_table().num_rows)


@proves(
    "2.6",
    at="src/weblake/loads/load.py",
    line="job = None if request.job_id is None else (request.kind, request.job_id)",
    becomes="job = None",
)
def test_a_job_landed_by_its_request_does_not_land_again_by_its_id(lab: LandingLab) -> None:
    first = load.land(lab.client, lab.dataset, batch(), FAST_POLLS)
    assert first.receipt.job_id is not None
    asked = len(lab.service.requests())
    again = load.land(lab.client, lab.dataset, load_request.existing_job("batch", first.receipt.job_id), FAST_POLLS)
    assert len(lab.service.requests()) == asked  # the service may have deleted the job by now
    assert again.receipt == first.receipt
    assert again.landed_at is not None
    assert rows(lab) == len(URLS)


@proves(
    "2.6",
    at="src/weblake/dataset/landed_loads.py",
    line="    if recorded is not None:",
    becomes="    if False:",
)
def test_a_job_landed_by_its_id_does_not_land_again_by_its_request(lab: LandingLab) -> None:
    _, job, _ = load.start_load(lab.client, lab.dataset, batch())
    first = load.land(lab.client, lab.dataset, load_request.existing_job("batch", job.job_id), FAST_POLLS)
    asked = len(lab.service.requests())
    again = load.land(lab.client, lab.dataset, batch(), FAST_POLLS)
    assert len(lab.service.requests()) == asked  # the service may have deleted the job by now
    assert again.receipt == first.receipt
    assert again.landed_at is not None
    assert rows(lab) == len(URLS)


@proves("2.6", at="src/weblake/loads/publishing.py", line="if by != load_id:", becomes="if False:")
def test_two_commands_that_land_one_job_at_the_same_moment_land_it_once(lab: LandingLab) -> None:
    lab.web.held.add("*")
    _, job, _ = load.start_load(lab.client, lab.dataset, batch())
    orders_of_it = (
        batch(),
        load_request.existing_job("batch", job.job_id),
        load_request.existing_job("batch", job.job_id),
    )
    with ThreadPoolExecutor() as both:
        waiting = [both.submit(load.land, lab.client, lab.dataset, request, FAST_POLLS) for request in orders_of_it]
        until(lambda: sum("/v2/batch/scrape/" in str(each["path"]) for each in lab.service.requests()) >= 6)
        lab.web.held.clear()
        receipts = [each.result(60).receipt for each in waiting]
    assert len({receipt.load_id for receipt in receipts}) == 1
    assert {receipt.stored for receipt in receipts} == {len(URLS)}
    assert rows(lab) == len(URLS)
    assert orphans.find_open_loads(lab.client, lab.dataset).orphans == ()


@proves("2.6", at="src/weblake/loads/load.py", line="by = other.load_id", becomes="by = intent.load_id")
def test_a_job_whose_claiming_process_died_is_landed_as_that_load(lab: LandingLab) -> None:
    intent, job, _ = load.start_load(lab.client, lab.dataset, batch())
    assert lab.dataset.ledger.claim_landing(job.kind, job.job_id, intent.load_id) == intent.load_id  # its last act
    by_id = load.land(lab.client, lab.dataset, load_request.existing_job("batch", job.job_id), FAST_POLLS)
    assert by_id.receipt.load_id == intent.load_id
    again = load.land(lab.client, lab.dataset, batch(), FAST_POLLS)
    assert again.receipt == by_id.receipt
    assert rows(lab) == len(URLS)


class Starting:
    """A start whose request is lost, stopped when it has chosen a job of the activity list."""

    def __init__(self, ledger: Ledger, load_id: str, clock: list[float], *, replay: bool = False) -> None:
        self.jobs: list[str] = []
        self.posted = 0
        self._clock = clock
        intent = ledger.record_intent(
            Intent(
                load_id=load_id,
                kind="batch_scrape",
                endpoint="batch_scrape",
                created_at="2027-01-15T08:00:00+00:00",
                request_sha256="a",
                first_target=URLS[0],
                replay=replay,
            )
        )
        operation = operations.start_batch_scrape(URLS)
        request = LoadRequest("batch_scrape", load_id, lambda key: with_key(operation, key), request_sha="a")
        self._flow = starts.JobStarter(request, intent, ledger, Retry(jitter=lambda: 0.5)).run()
        self._answer: Any = None

    def until(self, stop: Callable[[object], bool]) -> str | None:
        """Goes on until a step for which this is true, which is not answered yet; the job's id where it has ended."""
        while True:
            try:
                step = self._flow.send(self._answer)
            except StopIteration as end:
                return str(end.value[0].job_id)
            self._answer = self._told(step)
            if stop(step):
                return None

    def _told(self, step: object) -> object:
        if isinstance(step, Now):
            return self._clock[0]
        if isinstance(step, Send):
            return self._replied(step)
        self._clock[0] += step.seconds  # type: ignore[attr-defined]
        return None

    def _replied(self, step: Send) -> Response | NoResponse:
        if step.request.method == "POST":
            self.posted += 1
            if not self.jobs:
                return NoResponse("reset")
            return Response(
                200, {}, json.dumps({"success": True, "id": self.jobs[0]}).encode(), received_at=self._clock[0]
            )
        entry = {"id": JOBS[0], "endpoint": "batch_scrape", "created_at": "2027-01-15T08:00:01Z", "target": URLS[0]}
        return Response(200, {}, json.dumps({"success": True, "data": [entry]}).encode(), received_at=self._clock[0])


@proves(
    "2.6",
    at="src/weblake/loads/starts.py",
    line="if owner not in (load_id, job_load_id(kind, job_id)) and (adopted or kind in JOB_KINDS):",
    becomes="if 0:",
)
def test_two_loads_that_find_the_same_job_land_it_once(tmp_path: Path) -> None:
    ledger, clock = open_dataset(tmp_path / "lake").ledger, [1_800_000_000.0]
    one, other = (Starting(ledger, load_id, clock) for load_id in ("a" * 16, "b" * 16))
    for each in (one, other):  # both have read the list and whose its jobs are, and neither has written
        assert each.until(lambda step: isinstance(step, Send) and step.request.method == "GET") is None
        for _ in range(2):  # the time of the list, and that of the record to be written
            assert each.until(lambda step: isinstance(step, Now) and step.wall) is None
    assert one.until(lambda step: False) == JOBS[0]
    other.jobs = [JOBS[1]]
    assert other.until(lambda step: False) == JOBS[1]
    assert [ledger.owner("batch_scrape", job) for job in JOBS[:2]] == ["a" * 16, "b" * 16]


@proves("3.1", at="src/weblake/loads/starts.py", line="        if adopted:", becomes="        if True:")
@pytest.mark.parametrize("replay", [True, False])
def test_a_service_that_returns_one_job_for_two_starts_gets_no_further_start(tmp_path: Path, *, replay: bool) -> None:
    ledger, clock = open_dataset(tmp_path / "lake").ledger, [1_800_000_000.0]
    one, other = (Starting(ledger, load_id, clock, replay=replay) for load_id in ("a" * 16, "b" * 16))
    one.jobs = other.jobs = [JOBS[0]]
    assert one.until(lambda step: False) == JOBS[0]
    with pytest.raises(OutcomeUnknown, match=f"job {JOBS[0]}, which load {'a' * 16} has"):
        other.until(lambda step: False)
    assert other.posted == 1


def lost_start(lab: LandingLab, request: LoadRequest, *, replay: bool = False) -> Operation[Any]:
    """Record a start whose process has died, more than an hour ago: so it is not waited for. Return the start."""
    ledger, before = lab.dataset.ledger, (datetime.now(timezone.utc) - timedelta(hours=2)).isoformat()
    intent = replace(intents.new_intent(request, lab.client.service, starts.Preflight(replay)), created_at=before)
    ledger.record_intent(intent)
    assert request.start is not None
    key = starts.JobStarter(request, intent, ledger, lab.client.retry).key(1)
    urls = sent_lists.keep(lab.dataset.storage, request.load_id, request.submitted or ())
    ledger.record_start(
        StartAttempt(load_id=request.load_id, n=1, key=key, at=before, urls=urls, request_sha256=request.request_sha)
    )
    return request.start(key)


def started_jobs(lab: LandingLab) -> int:
    return sum(each["method"] == "POST" for each in lab.service.requests())


def test_a_lost_job_that_a_person_has_landed_by_its_id_is_the_result_of_the_next_run(lab: LandingLab) -> None:
    lost_start(lab, batch())
    job = lab.client.start_batch_scrape(URLS)
    assert job.id is not None
    by_id = load.land(lab.client, lab.dataset, load_request.existing_job("batch", job.id), FAST_POLLS)
    for _ in range(2):
        assert load.land(lab.client, lab.dataset, batch(), FAST_POLLS).receipt == by_id.receipt
    assert started_jobs(lab) == 1
    assert rows(lab) == len(URLS)


@proves(
    "3.1",
    at="src/weblake/loads/load_request.py",
    line="request_sha=request_digest(sent),",
    becomes="request_sha=request_digest(body),",
)
def test_a_lost_crawl_is_found_by_a_run_with_another_limit_of_credits(lab: LandingLab) -> None:
    """The limit of credits lowers the crawl's own limit: it is the same load, and another request."""

    def crawl(terms: Terms) -> LoadRequest:
        return load_request.crawl(URLS[0], Naming(), terms)

    lab.client.call(lost_start(lab, crawl(Terms(max_credits=50)), replay=True))
    less = Terms(max_credits=20, poll_s=0.2, timeout_s=60)
    assert load.land(lab.client, lab.dataset, crawl(less), less).receipt.stored == 1
    assert started_jobs(lab) == 1


@proves(
    "2.6",
    at="src/weblake/dataset/landed_loads.py",
    line="recorded is not None and _has_other_pages(dataset, recorded)",
    becomes="False",
)
def test_a_job_that_was_landed_by_its_id_and_has_other_pages_is_not_the_result_of_a_load(lab: LandingLab) -> None:
    lost_start(lab, batch())
    job = lab.client.start_batch_scrape([URLS[0], "http://pages.test/other"])
    assert job.id is not None
    load.land(lab.client, lab.dataset, load_request.existing_job("batch", job.id), FAST_POLLS)
    for _ in range(2):
        with pytest.raises(LoadIncomplete, match="pages that were not submitted"):
            load.land(lab.client, lab.dataset, batch(), FAST_POLLS)
    assert started_jobs(lab) == 1
