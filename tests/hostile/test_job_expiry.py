"""Jobs that do not exist yet, no longer exist, or expire during the download."""

from __future__ import annotations

import pytest
from catalogue import proves
from landing_commands import Lake, page_errors
from scripted_job import JOB, Job, pages
from scripted_service import ScriptedService, reply

pytestmark = pytest.mark.usefixtures("with_and_without_prefetch")


EXPIRED = reply({"success": False, "error": "Job expired"}, 404)


def expiring(service: ScriptedService) -> Job:
    """A job that expires after two of three chunks."""
    job = Job(service, pages(6), cut=2)
    service.on(job.read, reply(job.chunks[0]), reply(job.chunks[0]), EXPIRED)
    job.always(4, EXPIRED)
    service.on(f"{job.read}/errors", EXPIRED)
    return job


@proves(
    "H20",
    at="src/weblake/loads/staging.py",
    line="if rows.file.rows and download.has_expired():",
    becomes="if False:",
)
@proves("H20", at="src/weblake/loads/completeness.py", line="if staged.gone is not None:", becomes="if False:")
def test_h20_documents_of_a_job_that_expires_are_kept_and_not_published(service: ScriptedService, lake: Lake) -> None:
    expiring(service)
    printed = lake.land(job=JOB).expect_error(
        "JobGone", "expired while it was read, after 4 documents", "--allow-partial"
    )
    assert (printed["status"], printed["stored"], printed["missing"], printed["complete"]) == ("expired", 4, 2, False)
    service.stop()
    receipt = lake.land("--allow-partial", job=JOB).landed(pages(4), complete=False, missing=2)
    assert receipt["status"] == "expired"
    assert [row["outcome"] for row in page_errors(lake.root)] == ["missing", "missing"]


def test_h20_a_job_that_expires_during_the_download_lands_partially_if_allowed(
    service: ScriptedService, lake: Lake
) -> None:
    expiring(service)
    lake.land("--allow-partial", job=JOB).landed(pages(4), complete=False, missing=2)


@proves(
    "H20",
    at="src/weblake/loads/staging.py",
    line='return rows.close(JobErrors(), {**download.pager.head, "status": EXPIRED}, gone=gone)',
    becomes="return rows.close(JobErrors(), download.pager.head)",
)
def test_h20_a_job_that_expires_after_its_last_chunk_is_not_complete(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    service.on(job.read, reply(job.chunks[0]), reply(job.chunks[0]), EXPIRED)
    service.on(f"{job.read}/errors", EXPIRED)
    lake.land(job=JOB).expect_error("JobGone", "after 4 documents")
    lake.land("--allow-partial", job=JOB).landed(pages(4), complete=False, missing=0)


@proves(
    "H20",
    at="src/weblake/loads/staging.py",
    line="if rows.file.rows and download.has_expired():",
    becomes="if rows.file.rows:",
)
def test_h20_a_chunk_missing_on_one_server_is_read_by_the_next_run(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    service.first(job.at(4), EXPIRED)
    lake.land("--allow-partial", job=JOB).expect_error("JobGone", "Job expired")
    lake.land(job=JOB).landed(pages(6))
