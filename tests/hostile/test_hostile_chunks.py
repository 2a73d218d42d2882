"""Chunks and their chain: facts.md section 1."""

from __future__ import annotations

import itertools

from job_script import JOB, Job, page, pages, url_of
from lake_run import Lake, page_errors, rows
from scripted_service import Play, ScriptedService, Seen, each, reply


def skip_of(seen: Seen) -> int:
    return int(dict(pair.split("=") for pair in seen.query.split("&")).get("skip", 0)) if seen.query else 0


def test_chunks_end_at_100_documents(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(250))
    lake.land(job=JOB, process=True).landed(pages(250))
    assert service.asked(job.at(200))


def test_chunks_end_at_10_megabytes(service: ScriptedService, lake: Lake) -> None:
    large = [page(n, markdown=f"{n}" * 4_000_000) for n in range(5)]
    Job(service, large, cut=2)
    lake.land(job=JOB).landed(large)


def test_one_document_may_be_larger_than_a_chunk(service: ScriptedService, lake: Lake) -> None:
    documents = [page(0), page(1, markdown="x" * 12_000_000, html="y" * 30_000_000), page(2)]
    Job(service, documents, cut=1)
    lake.land(job=JOB).landed(documents)


def test_a_crawl_is_read_at_its_own_address(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(5), cut=2, kind="crawl")
    assert lake.land(kind="crawl", job=JOB, process=True).landed(pages(5))["kind"] == "crawl"


def test_an_empty_chunk_that_names_itself_while_running_is_no_busy_loop(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(3))
    service.first(job.read, *[job.before()] * 6)
    lake.land(job=JOB).landed(pages(3))
    assert len(service.asked(job.read)) == 8  # six polls of a running job, one that sees its end, one that reads it


def test_polls_of_a_running_job_do_not_fetch_its_documents_again(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=4)
    running = {"status": "scraping"}
    service.first(job.at(0), reply(job.chunks[0] | running))
    waiting = job.chunks[4] | running | {"data": [], "next": f"{service.url}{job.path}?skip=4"}
    service.first(job.at(4), *[reply(waiting)] * 4)
    lake.land(job=JOB).landed(pages(6))
    # The first poll, and the reading at the end; in between, polls ask for what lies behind the documents.
    assert len(service.asked(job.at(0))) == 2
    assert len(service.asked(job.at(4))) == 6


def test_an_empty_chunk_whose_cursor_advances_is_followed(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunks[2]["data"] = []
    for chunk in job.chunks.values():
        chunk |= {"total": 4, "completed": 4}
    lake.land(job=JOB).landed([*pages(2), *pages(2, first=4)])


def test_documents_that_the_service_lost_are_missing(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunks[2]["data"] = []
    printed = lake.land(job=JOB).refused("LoadIncomplete", "2 of 6 pages are missing")
    assert (printed["stored"], printed["missing"]) == (4, 2)
    lake.land("--allow-partial", job=JOB).landed([*pages(2), *pages(2, first=4)], complete=False, missing=2)
    assert [row["outcome"] for row in page_errors(lake.root)] == ["missing", "missing"]


def test_next_of_a_cancelled_job_never_goes_away(service: ScriptedService, lake: Lake) -> None:
    for word in ("cancelled", "failed"):
        job = Job(service, pages(4), cut=2, word=word)
        job.chunks[2]["next"] = f"{service.url}{job.path}?skip=4"
        tail = job.chunk(4, [], 4)
        assert tail["next"].endswith("skip=4")  # type: ignore[attr-defined]
        lake.land(job=JOB).refused("JobEnded", word)
    lake.land("--allow-partial", job=JOB).landed(pages(4), complete=False)


def test_overlapping_chunks_store_each_document_once(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(9), cut=3)
    for skip in (3, 6):
        job.chunk(skip, pages(4, first=skip - 2), skip + 3 if skip == 3 else None)
    job.chunk(6, pages(5, first=4), None)
    lake.land(job=JOB).landed(pages(9))


def test_overlapping_chunks_without_scrape_ids(service: ScriptedService, lake: Lake) -> None:
    documents = [page(n, metadata={"sourceURL": url_of(n)}) for n in range(6)]
    job = Job(service, documents, cut=3)
    job.chunk(3, documents[1:], None)
    lake.land(job=JOB).landed(documents)


def test_a_chunk_that_names_itself_is_a_circle(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    job.chunk(2, pages(2, first=2), 2)
    lake.land(job=JOB, process=True).refused("MalformedReply", "circle")


def test_the_first_chunk_that_names_itself_is_a_circle(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    job.chunks[0]["next"] = f"{service.url}{job.path}?skip=0"
    lake.land(job=JOB).refused("MalformedReply", "circle")


def test_two_chunks_that_name_each_other_are_a_circle(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunk(4, pages(2, first=4), 2)
    lake.land(job=JOB).refused("MalformedReply", "circle")


def test_a_cursor_that_goes_back_loses_and_doubles_nothing(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(8), cut=2)
    for skip, following in ((0, 4), (4, 2), (2, 6)):
        job.chunk(skip, pages(2, first=skip), following)
    lake.land(job=JOB).landed(pages(8))


def test_a_chain_without_end_and_without_documents_ends(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    count = itertools.count(2)
    link = f"{service.url}{job.path}?skip="
    job.chunks[0]["next"] = f"{link}1"

    def more(_: Seen) -> Play:
        return reply(job.chunks[0] | {"data": [], "next": f"{link}{next(count)}"})

    service.on(job.read, each(lambda seen: more(seen) if seen.query else reply(job.chunks[0])))
    lake.land(job=JOB).refused("MalformedReply", "do not end")
    assert len(service.seen) < 300


def test_a_chain_that_repeats_its_documents_under_new_cursors_ends(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    count = itertools.count(1)
    link = f"{service.url}{job.path}?skip="
    service.on(job.read, each(lambda _: reply(job.chunks[0] | {"next": f"{link}{next(count)}"})))
    lake.land(job=JOB).refused("MalformedReply", "do not end")
    assert len(service.seen) < 300


def test_a_chain_of_new_documents_without_end_ends_with_the_time_limit(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(1))
    link = f"{service.url}{job.path}?skip="

    def more(seen: Seen) -> Play:
        skip = skip_of(seen)
        return reply(job.chunks[0] | {"data": pages(10, first=skip), "next": f"{link}{skip + 10}"})

    service.on(job.read, each(more))
    lake.land(job=JOB, timeout=2).refused("DeadlineExceeded", "time limit")


def test_a_cursor_is_sent_back_as_it_came(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    cursor = "skip=2&limit=2&after=a%2Fb%20c&empty="
    job.chunks[0]["next"] = f"{service.url}{job.path}?{cursor}"
    service.on(f"{job.read}?{cursor.replace('%20', '+')}", reply(job.chunks[2]))
    lake.land(job=JOB).landed(pages(4))


def test_a_job_that_is_not_there_at_once_is_waited_for(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    service.first(job.read, *[reply({"success": False, "error": "Job not found"}, 404)] * 3)
    lake.land(job=JOB).landed(pages(2))


def test_a_job_that_is_never_there_is_gone(service: ScriptedService, lake: Lake) -> None:
    lake.land(job=JOB).refused("JobGone", "unknown, expired")
    assert len(service.seen) > 3


def test_a_job_that_expires_while_it_is_read_is_gone(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.always(4, reply({"success": False, "error": "Job expired"}, 404))
    lake.land(job=JOB).refused("JobGone", "Job expired")


def test_a_landed_job_is_not_asked_for_again(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(3))
    first = lake.land(job=JOB).landed(pages(3))
    service.seen.clear()
    again = lake.land(job=JOB)
    assert again.code == 0
    assert again.json == first
    assert service.seen == []
    assert len(rows(lake.root)) == 3


def test_a_running_job_whose_chunks_lead_in_a_circle_is_no_busy_loop(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2, word="scraping")
    job.chunk(4, pages(2, first=4), 2)
    lake.land(job=JOB, timeout=1).refused("DeadlineExceeded")
    assert len(service.seen) < 60


def test_a_running_job_whose_chunks_never_end_is_no_busy_loop(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2), word="scraping")
    link = f"{service.url}{job.path}?skip="
    service.on(job.read, each(lambda seen: reply(job.chunks[0] | {"next": f"{link}{skip_of(seen) + 2}"})))
    lake.land(job=JOB, timeout=1).refused("DeadlineExceeded")
    assert len(service.seen) < 1500
