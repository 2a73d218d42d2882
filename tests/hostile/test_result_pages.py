"""Chunks of a job's documents: their sizes, order, overlaps and cursors."""

from __future__ import annotations

import itertools

import pytest
from catalogue import proves
from landing_commands import Lake, page_errors
from scripted_job import JOB, Job, page, pages
from scripted_service import ScriptedService, each, reply


@pytest.mark.system
def test_chunks_of_10_megabytes_land(service: ScriptedService, lake: Lake) -> None:
    large = [page(n, markdown=f"{n} " * 2_000_000) for n in range(3)]
    Job(service, large, cut=2)
    lake.land(job=JOB).landed(large)


def test_a_crawl_is_read_at_its_own_path(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(5), cut=2, kind="crawl")
    assert lake.land(kind="crawl", job=JOB).landed(pages(5))["kind"] == "crawl"


def test_polls_of_a_running_job_do_not_fetch_its_documents_again(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=4)
    running = {"status": "scraping"}
    service.first(job.at(0), reply(job.chunks[0] | running))
    waiting = job.chunks[4] | running | {"data": [], "next": f"{service.url}{job.path}?skip=4"}
    service.first(job.at(4), *[reply(waiting)] * 4)
    lake.land(job=JOB).landed(pages(6))
    # The first poll, and the read at the end; polls in between request an offset beyond the documents.
    assert len(service.requests_for(job.at(0))) == 2
    assert len(service.requests_for(job.at(4))) == 6


@proves(
    "H18",
    at="src/weblake/loads/completeness.py",
    line="if account.missing > terms.missing_ratio * account.submitted:",
    becomes="if False:",
)
def test_h18_documents_lost_by_the_service_are_missing(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunks[2]["data"] = []
    printed = lake.land(job=JOB).expect_error("LoadIncomplete", "2 of 6 pages are missing")
    assert (printed["stored"], printed["missing"]) == (4, 2)
    lake.land("--allow-partial", job=JOB).landed([*pages(2), *pages(2, first=4)], complete=False, missing=2)
    assert [row["outcome"] for row in page_errors(lake.root)] == ["missing", "missing"]


@proves("H18", at="src/weblake/loads/accounting.py", line="if digest in self._seen:", becomes="if False:")
def test_h18_overlapping_chunks_store_each_document_once(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(9), cut=3)
    for skip in (3, 6):
        job.chunk(skip, pages(4, first=skip - 2), skip + 3 if skip == 3 else None)
    job.chunk(6, pages(5, first=4), None)
    lake.land(job=JOB).landed(pages(9))


@proves(
    "H18",
    at="src/weblake/jobs/result_pages.py",
    line="elif following in self._visited:",
    becomes="elif following < self._asked:",
)
def test_h18_a_cursor_that_goes_back_neither_loses_nor_duplicates_documents(
    service: ScriptedService, lake: Lake
) -> None:
    job = Job(service, pages(8), cut=2)
    for skip, following in ((0, 4), (4, 2), (2, 6)):
        job.chunk(skip, pages(2, first=skip), following)
    lake.land(job=JOB).landed(pages(8))


def test_a_cursor_is_sent_back_unchanged(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    cursor = "skip=2&limit=2&after=a%2Fb%20c&empty="
    job.chunks[0]["next"] = f"{service.url}{job.path}?{cursor}"
    service.on(f"{job.read}?{cursor.replace('%20', '+')}", reply(job.chunks[2]))
    lake.land(job=JOB).landed(pages(4))


@pytest.mark.usefixtures("with_and_without_prefetch")
@proves(
    "H17", at="src/weblake/jobs/result_pages.py", line="if following is None:", becomes="if following is None or empty:"
)
def test_h17_an_empty_chunk_with_a_new_cursor_is_followed(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunks[2]["data"] = []
    for chunk in job.chunks.values():
        chunk |= {"total": 4, "completed": 4}
    lake.land(job=JOB).landed([*pages(2), *pages(2, first=4)])


@pytest.mark.usefixtures("with_and_without_prefetch")
@proves(
    "H17",
    at="src/weblake/loads/staging.py",
    line="download.pager.record_new(rows.taken - before)",
    becomes="download.pager.record_new(rows.taken - before or 1)",
)
def test_h17_chunks_that_repeat_documents_under_new_cursors_end(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    count = itertools.count(1)
    link = f"{service.url}{job.path}?skip="
    service.on(job.read, each(lambda _: reply(job.chunks[0] | {"next": f"{link}{next(count)}"})))
    lake.land(job=JOB, timeout=30).expect_error("MalformedReply", "do not end")
    assert len(service.seen) < 300


@pytest.mark.parametrize(("status", "kind"), [(401, "AuthenticationFailed"), (403, "PermissionDenied")])
def test_a_refusal_between_pages_publishes_nothing(
    service: ScriptedService, lake: Lake, status: int, kind: str
) -> None:
    job = Job(service, pages(6), cut=2)
    service.first(job.at(4), reply({"success": False, "error": "not any more"}, status))
    lake.land(job=JOB).expect_error(kind, "not any more")
    lake.land(job=JOB).landed(pages(6))
