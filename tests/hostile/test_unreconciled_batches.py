"""Batches whose counts do not add up: what is published, what is kept, and which error is reported."""

from __future__ import annotations

import json

import pytest
from catalogue import proves
from landing_commands import Lake, documents, page_errors, published
from scripted_job import ACTIVITY, JOB, Job, activity, page, pages, url_of
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
    line="if page is not None and listed and self._list is not None and not self._list.has_room(page):",
    becomes="if False:",
)
def test_h28_a_document_repeated_under_another_id_is_stored_once(service: ScriptedService, lake: Lake) -> None:
    again = page(0)
    again["metadata"] = {**again["metadata"], "scrapeId": "another"}  # type: ignore[dict-item]
    Job(service, [page(0), again, page(1)])
    lake.run("batch", *urls(0, 1)).landed(pages(2), duplicates=0)


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


@proves(
    "H18",
    at="src/weblake/loads/submitted_urls.py",
    line='return host + path.rstrip("/") + query',
    becomes="return url",
    case="http://www.site.test/page/0/",
)
@proves(
    "H18",
    at="src/weblake/loads/submitted_urls.py",
    line="return f\"{host}{port_text}{_unescape(parts.path).rstrip('/')}{query}\"",
    becomes="return url",
    case="HTTPS://SITE.test:443/p%61ge/0#top",
)
@pytest.mark.parametrize("respelt", ["http://www.site.test/page/0/", "HTTPS://SITE.test:443/p%61ge/0#top"])
def test_h18_documents_are_matched_in_any_order_and_spelling_of_urls(
    service: ScriptedService, lake: Lake, respelt: str
) -> None:
    told = [page(2), page(0), page(1)]
    told[1]["metadata"] = {**told[1]["metadata"], "sourceURL": respelt, "url": respelt}  # type: ignore[dict-item]
    told[2]["metadata"] = {**told[2]["metadata"], "url": "https://moved.test/", "sourceURL": url_of(1)}  # type: ignore[dict-item]
    Job(service, told)
    lake.run("batch", *urls(0, 1, 2)).landed(told)
    assert [row["position"] for row in documents(lake.root)] == [0, 1, 2]


@pytest.mark.parametrize("metadata", [{"scrapeId": ""}, {"scrapeId": "", "url": ...}, {"scrapeId": "a", "url": ...}])
def test_documents_without_a_source_url_and_an_id_of_their_own_are_all_stored(
    service: ScriptedService, lake: Lake, metadata: dict[str, object]
) -> None:
    told = [
        page(n, metadata={key: value if value != ... else url_of(n) for key, value in metadata.items()})
        for n in range(3)
    ]
    Job(service, told)
    outcome = lake.run("batch", *urls(0, 1, 2))
    assert (outcome.code, outcome.json["stored"], outcome.json["missing"]) == (0, 3, 0)
    assert [row["markdown"] for row in documents(lake.root)] == [document["markdown"] for document in told]


def test_documents_of_other_urls_are_not_published(service: ScriptedService, lake: Lake) -> None:
    Job(service, [page(0), page(9)])
    printed = lake.run("batch", *urls(0, 1)).expect_error(
        "LoadIncomplete", "1 documents of pages that were not submitted"
    )
    assert (printed["stored"], printed["missing"]) == (2, 1)


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


def test_missing_ratio_allows_missing_pages(service: ScriptedService, lake: Lake) -> None:
    Job(service, pages(3))
    lake.run("batch", *urls(0, 1, 2, 3), "--missing-ratio", "0.24").expect_error("LoadIncomplete")
    lake.run("batch", *urls(0, 1, 2, 3), "--missing-ratio", "0.25").landed(pages(3), complete=False, missing=1)


def test_fail_ratio_allows_failed_pages(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, pages(3))
    job.errors = {"errors": [{"url": url_of(3), "error": "x"}], "robotsBlocked": []}
    lake.run("batch", *urls(0, 1, 2, 3), "--fail-ratio", "0.2").expect_error(
        "LoadIncomplete", "more than the tolerance"
    )
    lake.run("batch", *urls(0, 1, 2, 3), "--fail-ratio", "0.25").landed(pages(3), failed=1)


def test_a_batch_with_only_failed_pages_publishes_page_errors(service: ScriptedService, lake: Lake) -> None:
    job = Job(service, [])
    job.errors = {"errors": [{"url": url, "code": "SCRAPE_TIMEOUT", "error": "x"} for url in urls(0, 1)]}
    printed = lake.run("batch", *urls(0, 1)).expect_error("LoadIncomplete", "None of the 2 pages")
    assert (printed["submitted"], printed["failed"]) == (2, 2)
    assert len(page_errors(lake.root)) == 2
    service.seen.clear()
    again = lake.run("batch", *urls(0, 1)).expect_error("LoadIncomplete", "None of the 2 pages", "--new")
    assert again["files"] == printed["files"] != []
    assert service.seen == []


def test_documents_without_a_url_count_for_missing_urls(service: ScriptedService, lake: Lake) -> None:
    nameless = {"markdown": "who am I"}
    Job(service, [page(0), nameless])
    outcome = lake.run("batch", *urls(0, 1))
    assert outcome.code == 0
    assert (outcome.json["stored"], outcome.json["missing"], outcome.json["complete"]) == (2, 0, True)


@pytest.mark.parametrize(
    "cancelled", [reply({"status": "cancelled"}), reply({"error": "Crawl is already completed"}, 409)]
)
def test_a_job_that_passes_max_credits_is_cancelled_and_kept(
    service: ScriptedService, lake: Lake, cancelled: object
) -> None:
    job = Job(service, pages(2), word="cancelled", total=3, creditsUsed=40)
    service.first(job.read, job.before(creditsUsed=2), job.before(creditsUsed=40))
    service.on(f"DELETE {job.path}", cancelled)  # type: ignore[arg-type]
    wanted = urls(0, 1, 2)
    printed = lake.run("batch", *wanted, "--max-credits", "30").expect_error(
        "CreditsExhausted", "40", "--allow-partial"
    )
    assert printed["credits_used"] == 40
    assert len(service.requests_for(f"DELETE {job.path}")) == 1
    service.stop()
    lake.run("batch", *wanted, "--allow-partial").landed(pages(2), complete=False, missing=1)


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
