"""Job statuses and counters that do not match the documents of the job."""

from __future__ import annotations

import pytest
from catalogue import proves
from landing_commands import Lake
from scripted_job import JOB, Job, page, pages
from scripted_service import ScriptedService, reply


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
    becomes="return status is None or str(status).lower() in TERMINAL",
    case="None",
)
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
    assert len(service.requests_for(job.read)) == 4  # the last two: the end, and the chunk


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


@pytest.mark.parametrize("kind", ["batch", "crawl"])
def test_a_job_that_attempted_nothing_is_refused(service: ScriptedService, lake: Lake, kind: str) -> None:
    Job(service, [], kind=kind)
    lake.land(kind=kind, job=JOB).expect_error("LoadIncomplete", "without attempting")


@proves(
    "H21",
    at="src/weblake/events.py",
    line="or not isinstance(value, int | float) or not 0 <= value < 1e15:",
    becomes="or not isinstance(value, int | float):",
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
