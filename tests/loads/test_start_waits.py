"""Tests of when a lost start is looked up, when it is sent again, and which listed jobs may be its own.

The times are those of production, on a clock that only the flow moves. `test_starts.py` explores every schedule, with
other times.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest
from catalogue import proves
from scripted_transport import ScriptedTransport, reply, retry

from weblake.api import operations
from weblake.api.operation import Operation
from weblake.api.steps import NoResponse, Request, Response
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent, Job, StartAttempt
from weblake.dataset.root import open_dataset
from weblake.errors import (
    CreditsExhausted,
    DeadlineExceeded,
    OutcomeUnknown,
    RequestRejected,
    ServiceUnavailable,
    ServiceUnreachable,
)
from weblake.events import Event, LostStartResolved
from weblake.jobs import cancelling
from weblake.jobs.polling import JobRef
from weblake.jobs.usage_reports import MAX_PAGES
from weblake.loads import sent_lists, starts
from weblake.loads.load_request import Endpoint, LoadRequest, with_key

URLS = ["http://pages.test/1"]
LIST = sent_lists.digest_of(URLS)
LOAD, JOB = "a" * 16, "00000000-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"
BEGAN = 1_800_000_000.0
DATE = format_datetime(datetime.fromtimestamp(BEGAN, timezone.utc), usegmt=True)
STARTED, LOST = reply(200, {"success": True, "id": JOB}), NoResponse("reset")


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


def entry(created: float) -> dict[str, object]:
    return {"id": JOB, "endpoint": "batch_scrape", "created_at": iso(created), "target": URLS[0]}


@dataclass
class Service(ScriptedTransport):
    """Answers starts with the script, and the activity list with `listed`; records when each request came."""

    listed: list[dict[str, object]] = field(default_factory=list)
    #: Seconds by which its clock is ahead.
    ahead: float = 0.0
    #: Pages of the list, of which the last has the jobs.
    pages: int = 1
    on_list: Callable[[], None] = lambda: None
    came: list[tuple[str, float]] = field(default_factory=list)
    at: float = BEGAN

    def send(self, request: Request) -> Response | NoResponse:
        self.came.append((request.method, self.at - BEGAN))
        if request.method == "POST":
            return super().send(request)
        self.on_list()
        date = datetime.fromtimestamp(self.at + self.ahead, timezone.utc)
        page = sum(method == "GET" for method, _ in self.came)
        listed, cursor = (self.listed, None) if page >= self.pages else ([], f"page {page + 1}")
        body = json.dumps({"success": True, "data": listed, "cursor": cursor}).encode()
        return Response(200, {"date": format_datetime(date, usegmt=True)}, body, received_at=self.at)

    @property
    def keys(self) -> list[str]:
        return [dict(request.headers)["x-idempotency-key"] for request in self.sent]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return open_dataset(tmp_path / "lake").ledger


def start(
    ledger: Ledger,
    service: Service,
    *,
    replay: bool = False,
    age: float = 0.0,
    seen: list[Event] | None = None,
    build_s: float = 0.0,
    kind: Endpoint = "batch_scrape",
    request_sha256: str = "a",
    first_target: str | None = None,
    at: str | None = None,
    until: float | None = None,
    ends_at: float | None = None,
) -> Job:
    intent = Intent(
        load_id=LOAD,
        kind=kind,
        endpoint=kind,
        created_at=iso(BEGAN - age),
        request_sha256="a",
        first_target=URLS[0],
        replay=replay,
        service=at,
    )
    operation = operations.start_batch_scrape(URLS)

    def build(key: str) -> Operation[object]:
        service.at += build_s
        return with_key(operation, key)

    request = LoadRequest(
        kind, LOAD, build, submitted=tuple(URLS), request_sha=request_sha256, first_target=first_target
    )
    request = replace(request, with_urls=lambda _: request)
    rules = retry()
    rules.observe = ([] if seen is None else seen).append
    starter = starts.JobStarter(
        request, ledger.record_intent(intent), ledger, rules, until=until, ends_at=ends_at, service=at
    )
    found = service.run(starter.run())  # type: ignore[arg-type]
    assert isinstance(found, tuple)
    job = found[0]
    assert isinstance(job, Job)
    return job


def test_a_lost_start_is_looked_up_twice_once_it_can_no_longer_arrive(ledger: Ledger) -> None:
    service = Service([LOST, STARTED])
    assert start(ledger, service).job_id == JOB
    methods, times = zip(*service.came, strict=True)
    assert methods == ("POST", "GET", "GET", "POST")
    deadline = service.sent[0].deadline_s
    # 5 s to be sent in, its deadline, 5 s to show in the list; and 2 s between the two readings.
    assert deadline + 10 <= times[1] <= deadline + 12
    assert 2 <= times[2] - times[1] <= 3
    assert len(set(service.keys)) == 2


def test_a_request_that_takes_long_to_build_is_sent(ledger: Ledger) -> None:
    """A million URLs take nine seconds to check and encode, and a start is sent within five of its record."""
    service = Service([STARTED])
    assert start(ledger, service, build_s=2 * starts.PROMPT_S).job_id == JOB
    assert [start.void for start in ledger.starts(LOAD)] == [False]


def test_a_start_whose_record_took_too_long_is_not_sent_and_not_looked_up(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record says so, and the next attempt follows at once."""
    service, record_start = Service([STARTED]), Ledger.record_start

    def slow_once(self: Ledger, record: StartAttempt) -> bool:
        service.at += 2 * starts.PROMPT_S if record.n == 1 else 0.0
        return record_start(self, record)

    monkeypatch.setattr(Ledger, "record_start", slow_once)
    assert start(ledger, service).job_id == JOB
    assert [method for method, _ in service.came] == ["POST"]
    assert [each.void for each in ledger.starts(LOAD)] == [True, False]


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize(
    ("response", "is_void"),
    [
        (LOST, False),
        (reply(200, {"success": True, "id": "7"}), False),
        (reply(200, {"success": True}), False),
        (reply(500, {"success": False, "error": "no"}), False),
        (reply(503, {"success": False, "error": "no"}, {"retry-after": "5"}), False),
        (reply(409, {"success": False, "error": "in progress"}, {"retry-after": "5"}), False),
        (reply(429, {"success": False, "error": "no"}, {"retry-after": "7"}), True),
        (NoResponse("refused", sent=False), True),
    ],
)
@pytest.mark.parametrize("limit", [3.0, 20.0, 50.0])
def test_the_time_limit_of_a_load_ends_its_start_whatever_the_service_answers(
    ledger: Ledger, response: Response | NoResponse, is_void: bool, replay: bool, limit: float
) -> None:
    """What may have been started stays on record, and the next call finds its job."""
    service = Service([response] * 99)
    begun = service.at
    with pytest.raises((DeadlineExceeded, ServiceUnreachable)) as caught:
        start(ledger, service, ends_at=service.at + limit, replay=replay)
    assert service.at - begun <= limit
    assert caught.value.hint
    assert all(request.deadline_s <= limit for request in service.sent)
    last = ledger.last_start(LOAD)
    assert last is not None
    assert limit == 50.0 or last.void is is_void
    later = Service([STARTED], listed=[entry(begun)], at=service.at)
    assert start(ledger, later, replay=replay).job_id == JOB


def test_a_start_whose_record_took_until_the_time_limit_is_not_sent(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, record_start = Service([STARTED]), Ledger.record_start

    def slow(self: Ledger, record: StartAttempt) -> bool:
        service.at += 4
        return record_start(self, record)

    monkeypatch.setattr(Ledger, "record_start", slow)
    with pytest.raises(DeadlineExceeded, match=r"before load a{16} had a job\. Call it again .* longer timeout_s"):
        start(ledger, service, ends_at=service.at + 3)
    assert (service.came, [each.void for each in ledger.starts(LOAD)]) == ([], [True])


def test_the_job_of_a_lost_start_is_of_the_request_that_was_sent(ledger: Ledger) -> None:
    """The run that finds it may have another request, with another first URL, and so may the one with the intent."""
    other = "http://pages.test/2"
    with pytest.raises(OutcomeUnknown):
        start(ledger, Service([LOST], pages=MAX_PAGES + 1), first_target=other)
    service = Service([STARTED], listed=[{**entry(BEGAN), "target": other}], at=BEGAN + 600)
    job = start(ledger, service, request_sha256="b")
    assert (job.job_id, job.adopted, job.request_sha256, job.urls) == (JOB, True, "a", LIST)
    assert service.sent == []


@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="    sent_to = last.service or self.intent.service",
    becomes="    sent_to = self.intent.service",
    case="True",
)
@pytest.mark.parametrize("replay", [False, True])
def test_a_lost_start_is_looked_up_at_the_service_that_it_was_sent_to(ledger: Ledger, replay: bool) -> None:
    """The intent may be of a run at another service, which has refused the start."""
    one, other = "https://one.test", "https://other.test"
    with pytest.raises(CreditsExhausted):
        start(ledger, Service([reply(402, {"error": "credits"})]), replay=replay, at=one)
    with pytest.raises(OutcomeUnknown):
        start(ledger, Service([LOST], pages=MAX_PAGES + 1), replay=replay, at=other)
    back = Service([STARTED])
    with pytest.raises(OutcomeUnknown, match=f"got no answer from {other}, and {one} cannot know of it"):
        start(ledger, back, replay=replay, at=one)
    assert back.came == []
    again = Service([STARTED], listed=[entry(BEGAN)], at=BEGAN + 600)
    assert start(ledger, again, replay=replay, at=other).adopted
    assert again.sent == []


@dataclass
class SlowService(Service):
    """Breaks the connection of each start just before the start's deadline."""

    def send(self, request: Request) -> Response | NoResponse:
        if request.method == "POST":
            self.at += request.deadline_s - 0.1
        return super().send(request)


@pytest.mark.parametrize("replay", [False, True])
def test_a_start_without_an_answer_ends_one_attempt_after_the_time_limit(ledger: Ledger, replay: bool) -> None:
    service = SlowService([LOST] * 20)
    with pytest.raises((OutcomeUnknown, ServiceUnreachable)):
        start(ledger, service, replay=replay, until=BEGAN + 10)
    assert service.at - BEGAN < 100
    assert not ledger.starts(LOAD)[-1].void


@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="                self.sent[record.writer] = yield from now()",
    becomes="                yield from now()",
)
def test_a_start_that_the_service_still_works_on_is_looked_up_after_its_last_request_has_ended(ledger: Ledger) -> None:
    """The service has said so later than a start usually takes effect, so its first request proves nothing."""
    works = {"success": False, "error": "timeout", "details": {"state": "processing_continues"}}
    service = Service([*[reply(408, works, {"retry-after": "25"})] * 2, LOST, STARTED])
    service.on_list = lambda: service.listed.append(entry(BEGAN + 70)) if service.at >= BEGAN + 70 else None
    assert start(ledger, service).adopted
    methods, times = zip(*service.came, strict=True)
    assert methods == ("POST", "POST", "POST", "GET")
    assert times[3] - times[2] >= service.sent[2].deadline_s + 10


def test_a_job_that_shows_in_the_second_reading_only_is_adopted(ledger: Ledger) -> None:
    service = Service([LOST, STARTED])
    service.on_list = lambda: service.listed.append(entry(BEGAN)) if len(service.came) > 2 else None
    job = start(ledger, service)
    assert (job.job_id, job.adopted) == (JOB, True)
    assert [method for method, _ in service.came] == ["POST", "GET", "GET"]


def test_a_job_that_another_process_records_meanwhile_ends_the_wait(ledger: Ledger) -> None:
    service = Service([LOST])
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        service.at += seconds
        if len(pauses) == 3:
            ledger.record_job(Job(load_id=LOAD, job_id=JOB, kind="batch_scrape", at=iso(service.at)))

    service.sleep = sleep  # type: ignore[method-assign]
    seen: list[Event] = []
    assert start(ledger, service, seen=seen).job_id == JOB
    assert (len(pauses), [method for method, _ in service.came]) == (3, ["POST"])
    assert [each.outcome for each in seen if isinstance(each, LostStartResolved)] == ["recorded"]


def test_a_replaying_service_gets_six_attempts_with_one_key(ledger: Ledger) -> None:
    service = Service([LOST])
    with pytest.raises(ServiceUnreachable, match=f"load {LOAD} was started could not be asked") as caught:
        start(ledger, service, replay=True)
    assert caught.value.retry_after is None
    assert len(service.sent) == 1 + 6
    assert len(set(service.keys)) == 1


@pytest.mark.parametrize(("kind", "hours"), [("batch_scrape", 30 * 24), ("scrape", 24)])
def test_a_key_that_a_replaying_service_has_forgotten_is_not_sent_again(
    ledger: Ledger, kind: Endpoint, hours: int
) -> None:
    """A repetition would pay again, so a person decides, as at any other service."""
    with pytest.raises(ServiceUnreachable):
        start(ledger, Service([LOST]), replay=True, kind=kind)
    forgotten = Service([STARTED], at=BEGAN + hours * 3600.0)
    with pytest.raises(OutcomeUnknown, match="too long ago"):
        start(ledger, forgotten, replay=True, kind=kind)
    assert forgotten.sent == []
    assert start(ledger, Service([STARTED], at=BEGAN + (hours - 2) * 3600.0), replay=True, kind=kind).job_id == JOB


@proves(
    "5.4",
    at="src/weblake/loads/starts.py",
    line="            at=start.at if adopted or started.replayed else at,",
    becomes="            at=start.at if adopted else at,",
    case="True",
)
@pytest.mark.parametrize("replayed", [True, False])
def test_a_replayed_start_is_as_old_as_its_record(ledger: Ledger, *, replayed: bool) -> None:
    """The time limit of its job counts from there. Without that header, the job may have been started just now."""
    with pytest.raises(ServiceUnreachable):
        start(ledger, Service([LOST]), replay=True)
    (lost,) = ledger.starts(LOAD)
    answer = reply(200, {"success": True, "id": JOB}, {"idempotent-replayed": "true"} if replayed else {})
    job = start(ledger, Service([answer], at=BEGAN + 3600), replay=True)
    assert job.at_seconds() == pytest.approx(lost.at_seconds() if replayed else BEGAN + 3600, abs=1)


def test_the_retry_after_of_a_replaying_service_is_raised_to_the_caller(ledger: Ledger) -> None:
    later = reply(429, {"success": False, "error": "slow down"}, {"retry-after": "600"})
    with pytest.raises(ServiceUnreachable) as caught:
        start(ledger, Service([LOST, later]), replay=True)
    assert caught.value.retry_after == 600


@pytest.mark.parametrize(("replay", "keys"), [(True, 1), (False, 2)])
def test_only_at_a_service_that_replays_the_key_stays_the_same_after_a_refusal(
    ledger: Ledger, *, replay: bool, keys: int
) -> None:
    service = Service([reply(429, {"success": False, "error": "slow down"}, {"retry-after": "1"}), STARTED])
    assert start(ledger, service, replay=replay).job_id == JOB
    assert [each.n for each in ledger.starts(LOAD)] == [1, 2]
    assert (len(service.keys), len(set(service.keys))) == (2, keys)
    assert 1 <= sum(service.slept) < 2


@pytest.mark.parametrize(
    ("before", "ahead", "adopted"),
    [
        (1.5, 0.0, True),
        (2.0, 0.0, True),
        (3.0, 0.0, False),
        (0.0, 3600.0, True),
        (60.0, 3600.0, False),
        (0.0, -3600.0, True),
    ],
)
def test_a_listed_job_is_of_the_intent_if_it_is_not_older_by_the_clock_of_the_service(
    ledger: Ledger, before: float, ahead: float, *, adopted: bool
) -> None:
    """Two seconds older are allowed: the dates of HTTP have whole seconds."""
    service = Service([LOST, STARTED], listed=[entry(BEGAN + ahead - before)], ahead=ahead)
    assert start(ledger, service).adopted is adopted


@proves(
    "3.1",
    at="src/weblake/loads/lost_starts.py",
    line="if owner not in (None, intent.load_id, job_load_id(intent.kind, job_id)):",
    becomes="if owner not in (None, intent.load_id):",
    case="True",
)
@pytest.mark.parametrize("by_id", [True, False])
def test_a_job_that_was_landed_by_its_id_may_be_of_the_intent(ledger: Ledger, *, by_id: bool) -> None:
    """The message for a lost start says to land the job so. A job that another load has started cannot be its own."""
    ledger.claim_job("batch_scrape", JOB, job_load_id("batch_scrape", JOB) if by_id else "b" * 16)
    service = Service([LOST, reply(200, {"success": True, "id": OTHER})], listed=[entry(BEGAN)])
    assert start(ledger, service).job_id == (JOB if by_id else OTHER)


@pytest.mark.parametrize(("hours", "known"), [(23.4, True), (23.6, False)])
def test_an_intent_older_than_the_list_goes_back_is_not_looked_up(ledger: Ledger, hours: float, *, known: bool) -> None:
    with pytest.raises(OutcomeUnknown):
        start(ledger, Service([LOST], pages=MAX_PAGES + 1))
    at = ledger.starts(LOAD)[-1].at_seconds()
    service = Service([STARTED], listed=[entry(BEGAN)], at=at + hours * 3600)
    if known:
        assert start(ledger, service).adopted
        return
    with pytest.raises(OutcomeUnknown, match="too long ago") as caught:
        start(ledger, service)
    assert "If the job is known" in str(caught.value.hint)
    assert service.sent == []


@proves(
    "3.1",
    at="src/weblake/loads/starts.py",
    line="    age_s = None if sent_at is None else (yield from now()) - sent_at",
    becomes="    age_s = None",
)
def test_a_start_that_this_process_has_just_sent_is_looked_up_however_old_the_intent_is(ledger: Ledger) -> None:
    """The first start was refused a day ago, and the task was cleared when there were credits again."""
    day = 24 * 3600.0
    with pytest.raises(CreditsExhausted):
        start(ledger, Service([reply(402, {"error": "credits"})]))
    service = Service([LOST], listed=[entry(BEGAN + day)], at=BEGAN + day)
    assert start(ledger, service).adopted
    assert len(service.sent) == 1


def test_a_job_is_found_on_the_last_page(ledger: Ledger) -> None:
    service = Service([LOST], listed=[entry(BEGAN)], pages=MAX_PAGES)
    assert start(ledger, service).adopted
    with pytest.raises(OutcomeUnknown, match="does not end"):
        start(open_dataset(Path(ledger.storage.url) / "other").ledger, Service([LOST], pages=MAX_PAGES + 1))


@pytest.mark.parametrize(
    ("answer", "shows"),
    [
        (reply(200, {"success": True, "data": []}, {"weblake-idempotency": "replay"}), starts.Preflight(True)),
        (reply(200, {"success": True, "data": []}, {"weblake-idempotency": "other"}), starts.Preflight(False)),
        (reply(200, {"success": True, "data": []}), starts.Preflight(False)),
        (Response(200, {"date": DATE}, b'{"data": []}', received_at=BEGAN + 60), starts.Preflight(False, -60.0)),
        (reply(404), starts.Preflight(False)),
        (reply(501), starts.Preflight(False)),
    ],
)
def test_the_preflight_shows_whether_the_service_replays_and_its_clock(
    answer: Response, shows: starts.Preflight
) -> None:
    assert ScriptedTransport([answer]).run(starts.check_service(retry())) == shows  # type: ignore[arg-type]


@pytest.mark.parametrize("answers", [[reply(503)], [reply(500)]])
def test_a_service_that_is_down_is_noticed_before_anything_is_paid(answers: Sequence[Response]) -> None:
    with pytest.raises(ServiceUnavailable):
        ScriptedTransport([*answers]).run(starts.check_service(retry()))  # type: ignore[arg-type]


def test_a_replaying_service_without_credits_has_started_nothing(ledger: Ledger) -> None:
    with pytest.raises(CreditsExhausted):
        start(ledger, Service([LOST, reply(402, {"success": False, "error": "no credits"})]), replay=True)
    assert [each.void for each in ledger.starts(LOAD)] == [True]


@pytest.mark.parametrize(("status", "fails"), [(200, False), (409, False), (400, True), (422, True)])
def test_only_a_job_that_has_ended_may_refuse_its_cancel(status: int, *, fails: bool) -> None:
    transport = ScriptedTransport([reply(status, {"success": status == 200, "error": "no"})])
    with pytest.raises(RequestRejected) if fails else nullcontext():
        transport.run(cancelling.cancel(JobRef("crawl", JOB), retry()))  # type: ignore[arg-type]
    assert [request.method for request in transport.sent] == ["DELETE"]


def test_a_last_attempt_that_is_lost_leaves_it_unknown_whether_the_job_was_started(ledger: Ledger) -> None:
    refused = reply(429, {"success": False, "error": "slow down"}, {"retry-after": "0"})
    with pytest.raises(OutcomeUnknown, match="in 20 attempts"):
        start(ledger, Service([*[refused] * 19, LOST]))
    assert [each.void for each in ledger.starts(LOAD)] == [True] * 19 + [False]


def test_the_id_of_a_listed_job_is_recorded_in_small_letters(ledger: Ledger) -> None:
    job_id = "abcdef00-0000-4000-8000-000000000001"
    job = start(ledger, Service([LOST], listed=[{**entry(BEGAN), "id": job_id.upper()}]))
    assert (job.job_id, job.adopted) == (job_id, True)
