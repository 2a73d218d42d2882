"""Job statuses and counters that do not match the documents of the job."""

from __future__ import annotations

import pytest
from catalogue import proves
from landing_commands import Lake, page_errors
from scripted_job import JOB, Job, page, pages
from scripted_service import ScriptedService, reply

from weblake.loads import accounting


@proves(
    "H22",
    at="src/weblake/api/models/responses.py",
    line="return isinstance(status, str) and status.lower() in TERMINAL",
    becomes="return isinstance(status, str) and status in TERMINAL",
    case="COMPLETED",
)
@pytest.mark.parametrize("word", ["completed", "Completed", "COMPLETED"])
def test_h22_a_completed_job_lands(service: ScriptedService, lake: Lake, word: str) -> None:
    Job(service, pages(3), word=word)
    assert lake.land(job=JOB, timeout=8).landed(pages(3))["status"] == "completed"


@proves(
    "H29",
    at="src/weblake/loads/completeness.py",
    line='if receipt.status != "completed":',
    becomes="if False:",
    case="failed",
)
@proves(
    "H29",
    at="src/weblake/loads/staging.py",
    line='complete=account.complete and str(head.get("status")).lower() == "completed",',
    becomes="complete=account.complete,",
    case="cancelled",
)
@pytest.mark.parametrize("word", ["failed", "cancelled", "Cancelled"])
def test_h29_a_failed_or_cancelled_job_lands_only_if_allowed(service: ScriptedService, lake: Lake, word: str) -> None:
    Job(service, pages(3), word=word)
    printed = lake.land(job=JOB).expect_error("JobEnded", word.lower(), "--allow-partial")
    assert (printed["status"], printed["stored"], printed["complete"]) == (word.lower(), 3, False)
    service.stop()
    lake.land("--allow-partial", job=JOB).landed(pages(3), complete=False)


@proves(
    "H22",
    at="src/weblake/api/models/responses.py",
    line="return isinstance(status, str) and status.lower() in TERMINAL",
    becomes='return isinstance(status, str) and status != "scraping"',
    case="paused",
)
@pytest.mark.parametrize("word", ["paused", "", None, 7, ["completed"], {"status": "completed"}, "completed ", True])
def test_h22_an_unknown_status_is_polled_again(service: ScriptedService, lake: Lake, word: object) -> None:
    job = Job(service, pages(3))
    service.first(job.read, *[job.before(status=word)] * 2)
    lake.land(job=JOB).landed(pages(3))
    assert len(service.requests_for(job.read)) == 3


def test_h22_an_unknown_status_is_polled_until_the_timeout(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(3), word="paused")
    lake.land(job=JOB, timeout=2).expect_error("DeadlineExceeded", "goes on at the service")
    assert 2 <= len(service.requests_for(job.read)) < 30


@proves(
    "H22",
    at="src/weblake/api/models/responses.py",
    line="return isinstance(status, str) and status.lower() in TERMINAL",
    becomes="return status is None or str(status).lower() in TERMINAL",
)
def test_h22_a_response_without_a_status_is_polled_again(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(3))
    chunk = {name: value for name, value in job.chunks[0].items() if name != "status"}
    service.first(job.read, *[reply(chunk)] * 2)
    lake.land(job=JOB).landed(pages(3))


@proves(
    "H22",
    at="src/weblake/jobs/result_pages.py",
    line="for pause in (*LAG_PAUSES_S, None):",
    becomes="for pause in (None,):",
)
def test_h22_a_server_with_a_stale_status_is_polled_again(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    for skip in job.chunks:
        service.first(job.at(skip), *[job.before()] * 2)
    service.first(job.read, reply(job.chunks[0]))
    lake.land(job=JOB).landed(pages(6))


@proves(
    "H22",
    at="src/weblake/jobs/result_pages.py",
    line='if models.is_terminal(chunk.head.get("status")):',
    becomes="if True:",
)
def test_h22_a_job_that_returns_to_running_is_not_landed_partially(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    service.first(job.at(2), *[reply(job.chunks[2] | {"status": "scraping"})] * 3)
    lake.land(job=JOB).expect_error("MalformedReply", "scraping")
    lake.land(job=JOB).landed(pages(6))


@proves(
    "H19",
    at="src/weblake/jobs/result_pages.py",
    line='if models.is_terminal(chunk.head.get("status")):',
    becomes="if True:",
)
def test_h19_documents_are_read_after_the_job_has_ended(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    drafts = job.chunks[0] | {"status": "scraping", "data": [page(n, markdown="a draft") for n in range(2)]}
    # The first is a poll while the job runs; the second comes from a server with a stale state after its end.
    service.first(job.at(0), *[reply(drafts)] * 2)
    lake.land(job=JOB).landed(pages(4))


@proves("H19", at="src/weblake/loads/accounting.py", line="if digest in self._seen:", becomes="if False:")
def test_h19_a_document_that_changes_between_reads_is_stored_once(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    job.chunk(2, [page(1, markdown="otherwise"), *pages(2, first=2)], None)
    lake.land(job=JOB).landed(pages(4))


@proves(
    "H19",
    at="src/weblake/jobs/result_pages.py",
    line="self.head = chunk.head",
    becomes="self.head = self.head or chunk.head",
)
def test_h19_the_status_of_the_last_chunk_counts(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    job.chunks[2]["status"] = "failed"
    lake.land(job=JOB).expect_error("JobEnded", "failed")


def test_h29_a_failed_job_reported_as_an_error_response_is_refused(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, [], word="failed", success=False, error="the queue is broken", total=3, completed=0)
    lake.land(job=JOB).expect_error("JobEnded", "failed", "the queue is broken")
    assert service.requests_for(f"{job.read}/errors")


def test_an_error_in_a_200_response_is_an_error(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(3))
    job.always(0, reply({"success": False, "error": "Job is locked"}))
    lake.land(job=JOB).expect_error("RequestRejected", "Job is locked")


@pytest.mark.parametrize("kind", ["batch", "crawl"])
def test_a_job_that_attempted_nothing_is_refused(service: ScriptedService, lake: Lake, kind: str) -> None:
    Job(service, [], kind=kind)
    lake.land(kind=kind, job=JOB).expect_error("LoadIncomplete", "without attempting")


@proves(
    "H21",
    at="src/weblake/loads/accounting.py",
    line='(count_of(head.get("total")) or 0) - known,',
    becomes="0,",
    case="5-3",
)
@proves(
    "H21",
    at="src/weblake/loads/accounting.py",
    line='(count_of(head.get("completed")) or 0) - account.stored - self._malformed,',
    becomes="0,",
    case="3-5",
)
@pytest.mark.parametrize(("total", "completed"), [(5, 5), (5, 3), (3, 5), (0, 5)])
def test_h21_documents_counted_but_not_delivered_are_missing(
    service: ScriptedService, lake: Lake, total: int, completed: int
) -> None:
    Job(service, pages(3), total=total, completed=completed)
    outcome = lake.land(job=JOB)
    printed = outcome.expect_error("LoadIncomplete", "2 of 5 pages are missing")
    assert (printed["submitted"], printed["stored"], printed["missing"]) == (5, 3, 2)
    lake.land("--missing-ratio", "0.3", job=JOB).expect_error("LoadIncomplete")
    lake.land("--missing-ratio", "0.4", job=JOB).landed(pages(3), complete=False, missing=2)


@proves(
    "H21",
    at="src/weblake/jobs/result_pages.py",
    line="self.head = chunk.head",
    becomes="self.head = self.head or chunk.head",
)
def test_h21_the_final_total_counts(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    job.chunks[0] |= {"total": 9, "completed": 4}
    lake.land(job=JOB).landed(pages(4))


@proves(
    "H21",
    at="src/weblake/events.py",
    line="return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None",
    becomes="return value if isinstance(value, int) else None",
    case="1180591620717411303424",
)
@pytest.mark.parametrize("value", ["3", "many", -1, -(2**70), 2**70, 1e300, None, 2.5, [3], {"n": 3}, True])
def test_h21_counters_of_the_wrong_type_count_as_zero(service: ScriptedService, lake: Lake, value: object) -> None:
    Job(service, pages(3), total=value, completed=value)
    lake.land(job=JOB).landed(pages(3))


def test_h21_an_absurd_total_is_counted_as_missing_in_bounded_space(
    service: ScriptedService, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounting, "MAX_NAMELESS", 1000)
    absurd = 2**50
    Job(service, pages(3), total=absurd)
    printed = lake.land(job=JOB, timeout=10).expect_error("LoadIncomplete", f"{absurd - 3} of {absurd}")
    assert printed["missing"] == absurd - 3
    lake.land("--allow-partial", job=JOB).landed(pages(3), complete=False, missing=absurd - 3)
    assert len(page_errors(lake.root)) <= 1001


@proves(
    "H21",
    at="src/weblake/loads/staging.py",
    line="if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:",
    becomes="if isinstance(value, int | float):",
    case="-1-None",
)
@pytest.mark.parametrize(
    ("credits", "kept"), [(-1, None), ("3", None), (None, None), (1e300, None), (True, None), (2.5, 2.5), (0, 0)]
)
def test_h21_credits_of_the_wrong_type_are_unknown(
    service: ScriptedService, lake: Lake, credits: object, kept: float | None
) -> None:
    Job(service, pages(2), creditsUsed=credits)
    assert lake.land(job=JOB).landed(pages(2))["credits_used"] == kept


def test_h21_credits_may_be_absent(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    del job.chunks[0]["creditsUsed"]
    assert lake.land(job=JOB).landed(pages(2))["credits_used"] is None


def test_a_job_that_uses_more_than_its_credits_is_cancelled_and_what_it_scraped_is_kept(
    service: ScriptedService, lake: Lake
) -> None:
    job = Job(service, pages(2), word="cancelled", creditsUsed=6)
    service.first(job.read, job.before(creditsUsed=5), job.before(creditsUsed=6))
    service.on(f"DELETE {job.path}", reply({"success": True}))
    lake.land("--max-credits", "5", job=JOB).expect_error("CreditsExhausted", "had used 6 credits")
    assert len(service.requests_for(f"DELETE {job.path}")) == 1
    lake.land("--max-credits", "5", "--allow-partial", job=JOB).landed(pages(2), complete=False)
    assert len(service.requests_for(f"DELETE {job.path}")) == 1


@pytest.mark.parametrize(("status", "headers", "times"), [(429, {"retry_after": "90"}, 2), (503, {}, 8)])
def test_a_job_beyond_its_credits_is_cancelled_by_a_busy_service_too(
    service: ScriptedService, lake: Lake, status: int, headers: dict[str, str], times: int
) -> None:
    """It goes on and costs more until then, so a cancel is repeated for as long as a poll."""
    job = Job(service, pages(2), word="cancelled", creditsUsed=6)
    service.first(job.read, job.before(creditsUsed=6))
    refusals = [reply({"success": False, "error": "slow down"}, status, **headers)] * times
    service.on(f"DELETE {job.path}", *refusals, reply({"success": True}))
    lake.land("--max-credits", "5", job=JOB, timeout=900.0).expect_error("CreditsExhausted", "had used 6 credits")
    assert len(service.requests_for(f"DELETE {job.path}")) == times + 1


def test_a_job_that_cannot_be_cancelled_is_reported_as_running(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2), word="cancelled", creditsUsed=6)
    service.first(job.read, job.before(creditsUsed=6))
    service.on(f"DELETE {job.path}", reply({"success": False, "error": "down"}, 503))
    lake.land("--max-credits", "5", job=JOB).expect_error("ServiceUnavailable", "was not cancelled, so it goes on")


@pytest.mark.parametrize("reported", [4, None])
def test_a_cancelled_job_may_report_fewer_credits_than_those_that_cancelled_it(
    service: ScriptedService, lake: Lake, reported: int | None
) -> None:
    job = Job(service, pages(2), word="cancelled", creditsUsed=reported)
    service.first(job.read, job.before(creditsUsed=6))
    service.on(f"DELETE {job.path}", reply({"success": True}))
    lake.land("--max-credits", "5", job=JOB).expect_error("CreditsExhausted", "had used 6 credits")


def test_a_job_within_its_credits_is_not_cancelled(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2), creditsUsed=5)
    service.first(job.read, job.before(creditsUsed=5))
    lake.land("--max-credits", "5", job=JOB).landed(pages(2))
    assert service.requests_for(f"DELETE {job.path}") == []


def test_what_is_allowed_to_be_partial_is_published_at_once(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(2), word="cancelled")
    lake.land("--allow-partial", job=JOB).landed(pages(2), complete=False)
