"""A start whose response is lost: one job per intent (promise 3)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from catalogue import proves
from landing_commands import KEY, Lake
from scripted_job import ACTIVITY, JOB, OTHER, Job, activity, pages, url_of
from scripted_service import Play, ScriptedService, close, drip, each, head, reply, reset, stall

from weblake.api import operation

START = "POST /v2/batch/scrape"
URLS = [url_of(0), url_of(1)]
STARTED = {"success": True, "id": JOB, "url": f"https://service.test/v2/batch/scrape/{JOB}"}


def entry(job_id: str = JOB, age_s: float = 0.0, **more: object) -> dict[str, object]:
    at = (datetime.now(timezone.utc) - timedelta(seconds=age_s)).isoformat().replace("+00:00", "Z")
    return {"id": job_id, "endpoint": "batch_scrape", "api_version": "v2", "created_at": at, "target": URLS[0]} | more


class Team:
    """The activity list of the team: empty until a start was received."""

    def __init__(self, service: ScriptedService) -> None:
        self.service = service
        self.shown: Callable[[], Play] = activity
        service.on(ACTIVITY, each(lambda seen: self.shown() if service.requests_for(START) else activity()))
        for query in ("?limit=1", "?endpoint=batch_scrape&limit=100"):
            service.on(ACTIVITY + query, each(lambda seen: self.shown() if service.requests_for(START) else activity()))


@pytest.fixture
def team(service: ScriptedService) -> Team:
    return Team(service)


@pytest.mark.system
def test_a_start_carries_its_urls_and_a_new_idempotency_key(service: ScriptedService, lake: Lake, team: Team) -> None:
    Job(service, pages(2))
    service.on(START, reply(STARTED))
    lake.run("batch", *URLS, process=True).landed(pages(2))
    (start,) = service.requests_for(START)
    assert start.json()["urls"] == URLS
    assert str(uuid.UUID(start.headers["x-idempotency-key"])) == start.headers["x-idempotency-key"]
    assert start.headers["x-idempotency-key"] != KEY


UNCLEAR = {
    "no id": reply({"success": True}),
    "an id that is no UUID": reply(STARTED | {"id": "../../../v2/crawl/x"}),
    "null": reply("null"),
    "204": reply(b"", 204),
    "cut off": reply(b'{"success": true, "id": "'),
    "409": reply({"success": False, "error": "Idempotency key already used"}, 409),
    "500": reply({"success": False, "error": "oops"}, 500),
    "502": reply("<html>Bad Gateway</html>", 502),
    "503": reply("", 503, retry_after="0"),
    "no HTTP": close(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "closed": close(),
    "a drip": drip(head(length=1_000_000) + b" " * 100),
    "reset": reset(),
    "reset in the reply": reset(head(length=200) + b'{"success": true, "id": "'),
    "a reply too short": reply(STARTED, length=4000),
    "no answer": stall(),
    "a bomb": reply(b"x", content_encoding="br"),
}


@pytest.mark.system
@proves(
    "H5",
    at="src/weblake/api/start_responses.py",
    line='has accepted the request", _any, Verdict.OPEN',
    becomes='", _any, Verdict.REFUSED',
    case="500",
)
@proves(
    "H8",
    at="src/weblake/http/transport.py",
    line="sent = was_sent(error)",
    becomes="sent = False",
    case="reset in the reply",
)
@pytest.mark.parametrize("play", UNCLEAR.values(), ids=UNCLEAR)
def test_h5_h6_h8_a_job_with_a_lost_start_is_found(
    service: ScriptedService, lake: Lake, team: Team, monkeypatch: pytest.MonkeyPatch, play: Play
) -> None:
    monkeypatch.setattr(operation, "START_DEADLINE_S", 0.5)  # two of them never end
    Job(service, pages(2))
    service.on(START, play)
    team.shown = lambda: activity(entry())
    lake.run("batch", *URLS, process=play is UNCLEAR["reset"]).landed(pages(2))
    assert len(service.requests_for(START)) == 1


#: The service says that it works on the start.
WORKING = reply({"success": False, "details": {"state": "processing_continues", "retryAfterSeconds": 0}}, 408)
REFUSALS = {
    "429": reply({"success": False, "error": "Rate limit exceeded"}, 429, retry_after="0"),
    "402": reply({"success": False, "error": "Insufficient credits"}, 402),
    "400": reply({"success": False, "error": "Bad request"}, 400),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_a_refused_repetition_is_no_evidence_about_a_start_that_the_service_works_on(
    service: ScriptedService, lake: Lake, team: Team, refusal: Play
) -> None:
    Job(service, pages(2))
    service.on(START, WORKING, refusal, reply(STARTED))
    team.shown = lambda: activity(entry())
    lake.run("batch", *URLS).landed(pages(2))
    assert len({seen.headers["x-idempotency-key"] for seen in service.requests_for(START)}) == 1


@proves(
    "H12",
    at="src/weblake/loads/starts.py",
    line="    responses.value_of(reply, operation.name)",
    becomes="    _ = operation",
)
def test_h12_a_page_that_is_not_the_service_is_detected_before_the_start(service: ScriptedService, lake: Lake) -> None:
    service.on(ACTIVITY, reply("<html>Please log in</html>", content_type="text/html"))
    lake.run("batch", *URLS).expect_error("MalformedReply", "base URL")
    assert service.requests_for(START) == []


def test_a_start_needs_no_activity_list(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(2))
    service.on(START, reply(STARTED))
    lake.run("batch", *URLS).landed(pages(2))


def test_two_matching_jobs_need_a_decision_of_the_user(service: ScriptedService, lake: Lake, team: Team) -> None:
    Job(service, pages(2))
    service.on(START, reset())
    team.shown = lambda: activity(entry(JOB), entry(OTHER))
    for _ in range(2):
        lake.run("batch", *URLS).expect_error("OutcomeUnknown", JOB, OTHER, "weblake land")
    assert len(service.requests_for(START)) == 1


#: Jobs of the activity list that cannot be the started one.
NOT_OURS = {
    "another endpoint": lambda: entry(OTHER, endpoint="crawl"),
    "older than the intent": lambda: entry(OTHER, age_s=60),
    "another target": lambda: entry(OTHER, target=url_of(7)),
    "another target and nothing else": lambda: {"target": url_of(7)},
}

#: Jobs of which it cannot be decided whether they are the started one.
UNREADABLE = {
    "without a time": lambda: entry(OTHER, created_at=None),
    "an odd time": lambda: entry(OTHER, created_at="yesterday"),
    "without an endpoint": lambda: entry(OTHER, endpoint=None),
    "an id that is no UUID": lambda: entry("../../secret"),
    "an empty id": lambda: entry(""),
    "an id that is a number": lambda: entry() | {"id": 7},
    "nothing": dict,
    "no object": lambda: "text",
}


@pytest.mark.parametrize("other", NOT_OURS.values(), ids=NOT_OURS)
def test_a_job_that_does_not_match_is_not_adopted(
    service: ScriptedService, lake: Lake, team: Team, other: Callable[[], dict[str, object]]
) -> None:
    Job(service, pages(2))
    service.on(START, reset(), reply(STARTED))
    team.shown = lambda: activity(other())
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == 2


@pytest.mark.parametrize("other", UNREADABLE.values(), ids=UNREADABLE)
def test_a_job_without_a_target_needs_a_decision_of_the_user(
    service: ScriptedService, lake: Lake, team: Team, other: Callable[[], dict[str, object]]
) -> None:
    service.on(START, reset(), reply(STARTED))
    team.shown = lambda: activity(other())
    lake.run("batch", *URLS).expect_error("OutcomeUnknown", "got no answer")
    assert len(service.requests_for(START)) == 1


SPELLINGS = [None, "", URLS[0].removeprefix("https://"), "HTTPS://WWW.SITE.TEST:443/page/0/#top"]
#: What a service shows in place of the target of a request without data retention, also if the account requires that.
HIDDEN = "<redacted due to zero data retention>"


@proves(
    "3.1",
    at="src/weblake/loads/lost_starts.py",
    line="or not first_target or url_problem(target):",
    becomes="or not first_target:",
    case="redacted",
)
@pytest.mark.parametrize("target", [*SPELLINGS, pytest.param(HIDDEN, id="redacted")])
def test_a_target_that_is_hidden_or_in_another_spelling_matches(
    service: ScriptedService, lake: Lake, team: Team, target: str | None
) -> None:
    Job(service, pages(2))
    service.on(START, reset())
    team.shown = lambda: activity(entry(target=target))
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == 1


@proves(
    "3.1",
    at="src/weblake/loads/lost_starts.py",
    line="return list(jobs) or _jobs_of_later_urls(intent, start, other_targets, ledger)",
    becomes="return list(jobs)",
)
def test_a_job_whose_target_is_a_later_url_of_the_list_needs_a_decision_of_the_user(
    service: ScriptedService, lake: Lake, team: Team
) -> None:
    """A service shows the first URL that it has accepted: those before it are blocked, or not valid."""
    Job(service, pages(2))
    service.on(START, reset(), reply(STARTED | {"id": OTHER}))
    team.shown = lambda: activity(entry(target=URLS[1]))
    lake.run("batch", *URLS).expect_error("OutcomeUnknown", JOB, "weblake land")
    lake.run("land", "batch", JOB).landed(pages(2))
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == 1


@pytest.mark.parametrize(
    "play",
    [
        reply({"success": False, "error": "not found"}, 404),
        reply("<html>", 200),
        reply("<html>", 403),
        reply("", 500),
        reply({"success": True, "data": "many"}),
        reply({"success": True, "data": {"0": "x"}}),
        reply({"success": True}),
        reply([]),
        activity(cursor=7),
        activity(has_more=True),
    ],
    ids=[
        "404",
        "html",
        "403",
        "500",
        "data is a text",
        "data is an object",
        "no data",
        "a list",
        "an odd cursor",
        "more",
    ],
)
def test_an_unreadable_activity_list_needs_a_decision_of_the_user(
    service: ScriptedService, lake: Lake, team: Team, play: Play
) -> None:
    service.on(START, reset())
    team.shown = lambda: play
    lake.run("batch", *URLS).expect_error("OutcomeUnknown", "got no answer")
    assert len(service.requests_for(START)) == 1
    Job(service, pages(2))
    team.shown = lambda: activity(entry())
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == 1


def test_h14_a_start_is_sent_once_the_service_is_up(service: ScriptedService, lake: Lake, team: Team) -> None:
    Job(service, pages(2))
    service.on(START, reply(STARTED))
    lake.env["WEBLAKE_BASE_URL"] = "http://127.0.0.1:9"  # the discard port, on which nothing listens
    lake.run("batch", *URLS).expect_error("ServiceUnreachable")
    lake.env["WEBLAKE_BASE_URL"] = service.url
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == 1


@proves("H5", at="src/weblake/loads/starts.py", line="if self.replays and", becomes="if False and", case="500")
@pytest.mark.parametrize(
    "play", [UNCLEAR["reset"], UNCLEAR["500"], UNCLEAR["cut off"]], ids=["reset", "500", "cut off"]
)
def test_h5_a_service_that_replays_gets_the_start_again_under_the_same_key(
    service: ScriptedService, lake: Lake, team: Team, play: Play
) -> None:
    Job(service, pages(2))
    service.on(f"{ACTIVITY}?limit=1", reply({"success": True, "data": []}, weblake_idempotency="replay"))
    service.on(START, play, play, reply(STARTED))
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == 3
    assert len({seen.headers["x-idempotency-key"] for seen in service.requests_for(START)}) == 1
    # The preflight alone: where a start is replayed, its job need not be looked for.
    assert [seen.query for seen in service.seen if seen.path == "/v2/team/activity"] == ["limit=1"]


def test_a_slow_preflight_ends_at_the_timeout(service: ScriptedService, lake: Lake) -> None:
    service.on(ACTIVITY, stall())
    lake.run("batch", *URLS, timeout=0.3).expect_error("DeadlineExceeded")
    assert service.requests_for(START) == []


#: A refusal, the error that it raises, and whether the service may have started a job all the same.
REFUSED = {
    "402": (reply({"success": False, "error": f"No: {KEY}"}, 402), "CreditsExhausted", False),
    "404": (reply("<html>Nothing here</html>", 404, content_type="text/html"), "RequestRejected", False),
    "a refusal with 200": (reply({"success": False, "error": f"No: {KEY}"}), "RequestRejected", False),
    "303": (reply("", 303, location="http://127.0.0.1:9/"), "MalformedReply", True),
    "a login page": (reply("<html>Please log in</html>", content_type="text/html"), "MalformedReply", True),
}


@proves(
    "H15",
    at="src/weblake/loads/starts.py",
    line="        if self.state.verdict is Verdict.STOPPED and self.state.error is not None:",
    becomes="        if False:",
    case="a login page",
)
@pytest.mark.parametrize("case", REFUSED)
def test_h7_h15_a_refused_start_is_sent_again_by_the_next_run_unless_its_job_is_found(
    service: ScriptedService, lake: Lake, team: Team, case: str
) -> None:
    answer, kind, is_found = REFUSED[case]
    Job(service, pages(2))
    service.on(START, answer, reply(STARTED))
    lake.run("batch", *URLS).expect_error(kind)
    assert len(service.requests_for(START)) == 1
    team.shown = lambda: activity(entry()) if is_found else activity()
    lake.run("batch", *URLS).landed(pages(2))
    assert len(service.requests_for(START)) == (1 if is_found else 2)
