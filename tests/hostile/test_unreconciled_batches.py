"""Batches whose counts do not add up: what is published, what is kept, and which error is reported."""

from __future__ import annotations

import json

import pytest
from catalogue import proves
from landing_commands import Lake, documents, page_errors, published
from scripted_job import ACTIVITY, JOB, Job, activity, pages, url_of
from scripted_service import ScriptedService, reply

START = "POST /v2/batch/scrape"
STARTED = {"success": True, "id": JOB}


def urls(*numbers: int) -> list[str]:
    return [url_of(n) for n in numbers]


@pytest.fixture(autouse=True)
def started(service: ScriptedService) -> None:
    service.on(ACTIVITY, activity())
    service.on(START, reply(STARTED))


@proves(
    "H28",
    at="src/weblake/loads/load_request.py",
    line="sent = list(dict.fromkeys(urls)) if all(isinstance(url, str) for url in urls) else list(urls)",
    becomes="sent = list(urls)",
)
def test_h28_a_url_given_twice_is_sent_and_counted_once(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(2))
    lake.run("batch", *urls(0, 0, 1, 0)).landed(pages(2), submitted=4, duplicates=2)
    (start,) = service.requests_for(START)
    assert json.loads(start.body)["urls"] == urls(0, 1)


@proves(
    "H28",
    at="src/weblake/loads/accounting.py",
    line="first = source_url or url",
    becomes="first = url or source_url",
)
def test_h28_urls_that_redirect_to_one_url_are_all_stored(service: ScriptedService, lake: Lake) -> None:
    told = pages(3)
    for document in told[:2]:
        document["metadata"] = {**document["metadata"], "url": url_of(2)}  # type: ignore[dict-item]
    Job(service, told)
    lake.run("batch", *urls(0, 1, 2)).landed(told, duplicates=0)
    assert {row["url"] for row in documents(lake.root)} == {url_of(2)}


@proves(
    "H30",
    at="src/weblake/loads/load.py",
    line="reconciler = Reconciler(sent, original.rejected)",
    becomes="reconciler = Reconciler(sent)",
)
def test_h30_rejected_urls_are_rows(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(1))
    bad = "https://site.test/page/1"
    service.on(START, reply(STARTED | {"invalidURLs": [bad, 7, None, "https://never.asked/"]}))
    lake.run("batch", *urls(0, 1)).landed(pages(1), submitted=2, rejected=1)
    assert [(row["url"], row["outcome"]) for row in page_errors(lake.root)] == [(bad, "rejected")]


@pytest.mark.parametrize("odd", ["text", {"a": 1}, 7, None, [["x"]]])
def test_h30_rejected_urls_of_the_wrong_type_are_ignored(service: ScriptedService, lake: Lake, odd: object) -> None:
    Job(service, pages(2))
    service.on(START, reply(STARTED | {"invalidURLs": odd}))
    lake.run("batch", *urls(0, 1)).landed(pages(2), rejected=0)


def test_missing_pages_are_named_and_kept_for_later(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(3))
    wanted = urls(0, 1, 2, 3, 4, 5, 6)
    printed = lake.run("batch", *wanted).expect_error(
        "LoadIncomplete", "4 of 7 pages are missing", url_of(3), url_of(5), "…", "--allow-partial"
    )
    assert url_of(6) not in printed["error"]["message"]
    assert (printed["stored"], printed["missing"], printed["files"]) == (3, 4, [])
    assert list((lake.root / "_weblake/refused").rglob("*.parquet"))
    service.stop()
    lake.run("batch", *wanted, "--allow-partial").landed(pages(3), complete=False, missing=4)
    assert sorted(row["url"] for row in page_errors(lake.root)) == urls(3, 4, 5, 6)
    assert not list((lake.root / "_weblake/refused").rglob("*.parquet"))


def test_a_refused_load_may_be_complete_when_it_is_read_again(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(2))
    lake.run("batch", *urls(0, 1, 2)).expect_error("LoadIncomplete")
    job.chunk(0, pages(3), None)
    lake.run("batch", *urls(0, 1, 2)).landed(pages(3))
    assert len(service.requests_for(START)) == 1


def test_a_batch_beyond_max_credits_is_not_started(service: ScriptedService, lake: Lake) -> None:
    lake.run("batch", *urls(0, 1, 2), "--max-credits", "2").expect_error("CreditsExhausted", "nothing was started")
    assert service.seen == []


def test_a_repeated_load_lands_once(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(2))
    first = lake.run("batch", *urls(0, 1)).landed(pages(2))
    service.seen.clear()
    again = lake.run("batch", *urls(0, 1), "--allow-partial", "--fail-ratio", "0")
    assert again.json == first
    assert again.code == 0
    assert "has landed already" in again.err
    assert service.seen == []
    assert len(published(lake.root)) == 1
