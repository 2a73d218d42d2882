"""Chunks whose `next` links never end or form a cycle."""

from __future__ import annotations

import itertools

import pytest
from catalogue import proves
from landing_commands import Lake
from scripted_job import JOB, Job, pages
from scripted_service import Play, ReceivedRequest, ScriptedService, each, reply

from weblake.jobs import polling
from weblake.jobs import result_pages as walks
from weblake.steps import Flow, sleep

pytestmark = pytest.mark.usefixtures("with_and_without_prefetch")


def skip_of(seen: ReceivedRequest) -> int:
    return int(dict(pair.split("=") for pair in seen.query.split("&")).get("skip", 0)) if seen.query else 0


def test_h17_a_running_job_whose_empty_chunk_names_itself_is_polled_with_pauses(
    service: ScriptedService, lake: Lake
) -> None:
    job = Job(service, pages(3))
    service.first(job.read, *[job.before()] * 4)
    lake.land(job=JOB).landed(pages(3))
    assert (
        len(service.requests_for(job.read)) == 5
    )  # four polls of a running job, and one that sees its end and reads on


@proves(
    "H17", at="src/weblake/jobs/result_pages.py", line="if following is None:", becomes="if following is None or empty:"
)
def test_h17_an_empty_chunk_with_a_new_cursor_is_followed(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunks[2]["data"] = []
    for chunk in job.chunks.values():
        chunk |= {"total": 4, "completed": 4}
    lake.land(job=JOB).landed([*pages(2), *pages(2, first=4)])


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="self.ended, self._repolled = self._repolled, True",
    becomes="self._repolled = True",
)
def test_h17_a_cancelled_job_whose_last_chunk_keeps_its_next_ends(service: ScriptedService, lake: Lake) -> None:
    for word in ("cancelled", "failed"):
        job = Job(service, pages(4), cut=2, word=word)
        job.chunks[2]["next"] = f"{service.url}{job.path}?skip=4"
        tail = job.chunk(4, [], 4)
        assert tail["next"].endswith("skip=4")  # type: ignore[attr-defined]
        lake.land(job=JOB).expect_error("JobEnded", word)
        assert len(service.requests_for(job.at(4))) == 2  # requested once more, and then accepted as the end
        service.seen.clear()
    lake.land("--allow-partial", job=JOB).landed(pages(4), complete=False)


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="self.ended, self._repolled = self._repolled, True",
    becomes="self.ended = True",
)
def test_h17_an_empty_last_chunk_is_requested_once_more(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    service.first(job.at(2), reply(job.chunks[2] | {"data": [], "next": f"{service.url}{job.path}?skip=2"}))
    lake.land(job=JOB).landed(pages(4))


@proves("H17", at="src/weblake/jobs/result_pages.py", line="elif following in self._visited:", becomes="elif False:")
def test_h17_a_chunk_whose_next_is_itself_is_an_error(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(4), cut=2)
    job.chunk(2, pages(2, first=2), 2)
    lake.land(job=JOB).expect_error("MalformedReply", "circle")
    assert len(service.requests_for(job.at(2))) == 1


def test_h17_a_first_chunk_whose_next_is_itself_is_an_error(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    job.chunks[0]["next"] = f"{service.url}{job.path}?skip=0"
    lake.land(job=JOB).expect_error("MalformedReply", "circle")


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="elif following in self._visited:",
    becomes="elif following == self._asked:",
)
def test_h17_two_chunks_that_name_each_other_are_an_error(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(6), cut=2)
    job.chunk(4, pages(2, first=4), 2)
    lake.land(job=JOB).expect_error("MalformedReply", "circle")


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="(self._stale > MAX_STALE or len(self._visited) > MAX_CHUNKS)",
    becomes="len(self._visited) > MAX_CHUNKS",
)
def test_h17_endless_empty_chunks_end(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    count = itertools.count(2)
    link = f"{service.url}{job.path}?skip="
    job.chunks[0]["next"] = f"{link}1"

    def more(_: ReceivedRequest) -> Play:
        return reply(job.chunks[0] | {"data": [], "next": f"{link}{next(count)}"})

    service.on(job.read, each(lambda seen: more(seen) if seen.query else reply(job.chunks[0])))
    lake.land(job=JOB, timeout=30).expect_error("MalformedReply", "do not end")
    assert len(service.seen) < 300


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


def endless(service: ScriptedService) -> Job:
    """A job whose chunks deliver new documents for ever."""
    job = Job(service, pages(1))
    link = f"{service.url}{job.path}?skip="

    def more(seen: ReceivedRequest) -> Play:
        skip = skip_of(seen)
        return reply(job.chunks[0] | {"data": pages(10, first=skip), "next": f"{link}{skip + 10}"})

    service.on(job.read, each(more))
    return job


@proves(
    "H17",
    at="src/weblake/jobs/result_pages.py",
    line="(self._stale > MAX_STALE or len(self._visited) > MAX_CHUNKS)",
    becomes="self._stale > MAX_STALE",
)
def test_h17_the_number_of_chunks_with_new_documents_is_bounded(
    service: ScriptedService, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walks, "MAX_CHUNKS", 20)
    endless(service)
    lake.land(job=JOB).expect_error("MalformedReply", "do not end", "21 were read")


def test_h17_endless_chunks_of_new_documents_end_at_the_timeout(service: ScriptedService, lake: Lake) -> None:
    endless(service)
    lake.land(job=JOB, timeout=0.5).expect_error("DeadlineExceeded", "time limit")


def test_h17_a_running_job_whose_chunks_form_a_cycle_is_polled_with_pauses(
    service: ScriptedService, lake: Lake
) -> None:
    job = Job(service, pages(6), cut=2, word="scraping")
    job.chunk(4, pages(2, first=4), 2)
    lake.land(job=JOB, timeout=1).expect_error("DeadlineExceeded")
    assert len(service.seen) < 60


def test_h17_a_running_job_with_endless_chunks_is_polled_with_pauses(
    service: ScriptedService, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after three pauses."""
    job = Job(service, pages(2), word="scraping")
    link = f"{service.url}{job.path}?skip="
    pauses: list[int] = []

    def pause(seconds: float) -> Flow[None]:
        assert seconds >= (1 - polling.SPREAD) * polling.FIRST_POLL_S
        pauses.append(len(service.seen))
        return sleep(seconds)

    def more(seen: ReceivedRequest) -> Play:
        if len(pauses) == 3:
            return reply(job.chunks[0] | {"status": "failed", "next": None})
        return reply(job.chunks[0] | {"next": f"{link}{skip_of(seen) + 2}"})

    monkeypatch.setattr(polling, "sleep", pause)
    service.on(job.read, each(more))
    lake.land(job=JOB, timeout=60).expect_error("JobEnded")
    assert pauses == [1, 2, 3]
