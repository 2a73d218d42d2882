"""Batch scrapes and crawls over a real socket: starts, chunks, errors, cancel, expiry."""

from __future__ import annotations

import time
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedOK, InvalidStatus
from websockets.sync.client import connect

from weblake_service.jobs import job_status
from weblake_service.page_failure import PageFailure
from weblake_service.routes import jobs

A, B, C = "http://site.test/a", "http://site.test/b", "http://site.test/c"
NO_JOB = "00000000-0000-4000-8000-000000000000"


def sources(status: dict[str, Any]) -> list[str]:
    return [document["metadata"]["sourceURL"] for document in status["data"]]


def test_a_batch_returns_every_page_with_a_scrape_id(bench: Any) -> None:
    bench.web.statuses[B] = 404
    job = bench.batch(A, B)
    status = bench.wait_until_ended(job)
    assert (status["status"], status["total"], status["completed"], status["creditsUsed"]) == ("completed", 2, 2, 2)
    assert sorted(sources(status)) == [A, B]
    assert status["next"] is None
    assert status["success"] is True
    for document in status["data"]:
        read = bench.http.get(f"/v2/scrape/{document['metadata']['scrapeId']}").json()
        assert read["data"] == document
    assert bench.http.get(f"/v2/batch/scrape/{job}/errors").json() == {"errors": [], "robotsBlocked": []}


def test_the_counters_precede_the_documents(bench: Any) -> None:
    job = bench.batch(A)
    bench.wait_until_ended(job)
    text = bench.http.get(f"/v2/batch/scrape/{job}").text
    assert text.rindex('"completedAt"') < text.index('"data"')


def test_a_url_given_twice_is_two_documents(bench: Any) -> None:
    status = bench.wait_until_ended(bench.batch(A, A, maxAge=0))
    assert sources(status) == [A, A]
    assert bench.web.asked == [A, A]
    assert len({document["metadata"]["scrapeId"] for document in status["data"]}) == 2


def test_a_failed_page_is_listed_as_an_error_and_free(bench: Any) -> None:
    bench.web.failures[B] = PageFailure("SCRAPE_DNS_RESOLUTION_ERROR", "No such host.")
    bench.web.failures[C] = ZeroDivisionError("a defect")
    job = bench.batch(A, B, C)
    status = bench.wait_until_ended(job)
    assert (status["total"], status["completed"], status["creditsUsed"]) == (3, 1, 1)
    errors = {error["url"]: error for error in bench.http.get(f"/v2/batch/scrape/{job}/errors").json()["errors"]}
    assert (errors[B]["code"], errors[B]["error"]) == ("SCRAPE_DNS_RESOLUTION_ERROR", "No such host.")
    assert errors[B]["timestamp"].endswith("Z")
    assert errors[C]["code"] == "UNKNOWN_ERROR"


def test_invalid_urls_are_reported_or_refused(make_bench: Any) -> None:
    bench = make_bench(allow_private=False)
    given = [A, "ftp://site.test/x", "http://127.0.0.1/", "http://2130706433/", "http://[::1]/", "http://nodot/"]
    reply = bench.http.post("/v2/batch/scrape", json={"urls": given, "ignoreInvalidURLs": True}).json()
    assert reply["invalidURLs"] == given[1:]
    assert bench.wait_until_ended(reply["id"])["total"] == 1
    assert bench.http.post("/v2/batch/scrape", json={"urls": [A]}).json()["invalidURLs"] == []
    strict = {"urls": [A, "http://127.0.0.1/"], "ignoreInvalidURLs": False}
    blocked = bench.http.post("/v2/batch/scrape", json=strict)
    assert (blocked.status_code, blocked.json()["code"]) == (403, "unsafe_domain_blocked")
    assert (
        "invalidURLs" not in bench.http.post("/v2/batch/scrape", json={"urls": [A], "ignoreInvalidURLs": False}).json()
    )
    none = bench.http.post("/v2/batch/scrape", json={"urls": given[1:]})
    assert none.status_code == 400
    assert none.json()["error"].startswith("No valid URLs provided")


def test_a_host_that_cannot_be_decoded_does_not_refuse_its_batch(bench: Any) -> None:
    emoji = "http://xn--i-7iq.ws/"
    status = bench.wait_until_ended(bench.batch(A, emoji, formats=["markdown", "changeTracking"]))
    assert sorted(sources(status)) == sorted([A, emoji])


def test_appended_pages_have_their_own_options(bench: Any) -> None:
    bench.web.held.add(A)
    job = bench.batch(A)
    assert bench.batch(B, appendToId=job, onlyMainContent=False) == job
    bench.until(lambda: bench.status(job)["completed"] == 1)
    assert bench.status(job)["total"] == 2
    bench.web.held.clear()
    assert sources(bench.wait_until_ended(job)) == [B, A]
    assert bench.batch(C, appendToId=job) == job
    assert bench.until(lambda: sources(bench.wait_until_ended(job)) == [B, A, C])
    unknown = bench.http.post("/v2/batch/scrape", json={"urls": [A], "appendToId": NO_JOB})
    assert unknown.status_code == 404


def test_max_concurrency_limits_concurrent_pages(bench: Any) -> None:
    bench.web.held.add("*")
    job = bench.batch(*(f"http://site.test/{n}" for n in range(9)), maxConcurrency=3)
    bench.until(lambda: bench.web.flying == 3)
    assert bench.http.get("/v2/concurrency-check").json()["concurrency"] == 3
    queue = bench.http.get("/v2/team/queue-status").json()
    assert (queue["jobsInQueue"], queue["activeJobsInQueue"], queue["waitingJobsInQueue"]) == (9, 3, 6)
    bench.web.held.clear()
    assert bench.wait_until_ended(job)["completed"] == 9
    assert bench.web.most_flying == 3


def test_chunks_are_cut_at_100_documents_and_follow_the_limit(bench: Any) -> None:
    urls = [f"http://site.test/{n}" for n in range(205)]
    job = bench.batch(*urls, maxAge=0)
    first = bench.wait_until_ended(job)
    assert len(first["data"]) == 100
    assert first["next"] == f"{bench.service.url}/v2/batch/scrape/{job}?skip=100"
    found, address = sources(first), first["next"]
    while address:
        chunk = bench.http.get(address).json()
        found += sources(chunk)
        address = chunk["next"]
    assert sorted(found) == sorted(urls)
    small = bench.status(job, query="?skip=200&limit=3")
    assert len(small["data"]) == 3
    assert small["next"].endswith("?skip=203&limit=3")
    past = bench.status(job, query="?skip=9999")
    assert (past["data"], past["next"]) == ([], None)


def test_chunks_are_cut_before_the_document_that_crosses_ten_megabytes(bench: Any) -> None:
    sizes = {"http://site.test/0": 6_000_000, "http://site.test/1": 4_000_000, "http://site.test/2": 4_000_000}
    sizes |= {"http://site.test/3": 12_000_000, "http://site.test/4": 10}
    bench.web.bodies = {url: "x" * size for url, size in sizes.items()}
    job = bench.batch(*sizes, maxConcurrency=1)
    cuts, address = [], f"/v2/batch/scrape/{job}"
    bench.wait_until_ended(job)
    while address:
        reply = bench.http.get(address)
        chunk = reply.json()
        cuts.append([url[-1] for url in sources(chunk)])
        if len(chunk["data"]) > 1:
            assert len(reply.content) < job_status.CHUNK_BYTES + 2000
        address = chunk["next"]
    assert cuts == [["0", "1"], ["2"], ["3"], ["4"]]


def test_a_running_job_returns_its_cursor_again(bench: Any) -> None:
    bench.web.held.add(B)
    job = bench.batch(A, B)
    bench.until(lambda: bench.status(job)["completed"] == 1)
    status = bench.status(job)
    assert (status["status"], status["total"]) == ("scraping", 2)
    assert status["next"].endswith("?skip=1")
    again = bench.http.get(status["next"]).json()
    assert (again["data"], again["next"]) == ([], status["next"])
    bench.web.held.clear()
    bench.wait_until_ended(job)
    last = bench.http.get(status["next"]).json()
    assert (sources(last), last["next"]) == ([B], None)


@pytest.mark.parametrize("query", ["?skip=-1", "?skip=x", "?limit=0"])
def test_invalid_offsets_are_refused(bench: Any, query: str) -> None:
    job = bench.batch(A)
    assert bench.http.get(f"/v2/batch/scrape/{job}{query}").status_code == 400


def test_cancelling_stops_at_once_and_keeps_the_documents(bench: Any) -> None:
    bench.web.held.add(B)
    job = bench.batch(A, B, C, maxConcurrency=2)
    bench.until(lambda: bench.status(job)["completed"] == 2)
    reply = bench.http.delete(f"/v2/batch/scrape/{job}")
    assert (reply.status_code, reply.json()) == (200, {"status": "cancelled"})
    status = bench.status(job)
    assert (status["status"], status["total"], status["completed"], status["next"]) == ("cancelled", 2, 2, None)
    assert sorted(sources(status)) == [A, C]
    assert bench.until(lambda: bench.web.flying == 0) is True
    assert bench.service.counts()["pages_billed"] == 2
    assert bench.http.delete(f"/v2/batch/scrape/{job}").status_code == 200
    assert bench.http.post("/v2/batch/scrape", json={"urls": [A], "appendToId": job}).status_code == 409


def test_a_completed_job_cannot_be_cancelled(bench: Any) -> None:
    job = bench.batch(A)
    bench.wait_until_ended(job)
    reply = bench.http.delete(f"/v2/batch/scrape/{job}")
    assert reply.status_code == 409
    assert "already completed" in reply.json()["error"]


def test_unknown_foreign_and_malformed_ids_are_refused(bench: Any) -> None:
    job = bench.batch(A)
    for path in (f"/v2/batch/scrape/{NO_JOB}", f"/v2/crawl/{job}", f"/v2/crawl/{job}/errors", f"/v2/scrape/{NO_JOB}"):
        assert bench.http.get(path).status_code == 404
    for path in ("/v2/batch/scrape/nonsense", "/v2/crawl/1"):
        reply = bench.http.get(path)
        assert (reply.status_code, reply.json()["error"]) == (400, "Invalid job ID")
    # The contract declares no 400 here.
    assert bench.http.get(f"/v2/crawl/{job}x/errors").status_code == 404
    assert bench.http.delete("/v2/crawl/nonsense").status_code == 404
    assert bench.http.delete(f"/v2/crawl/{NO_JOB}").status_code == 404


def test_a_job_expires_a_day_after_its_end(bench: Any) -> None:
    job = bench.batch(A)
    status = bench.wait_until_ended(job)
    assert status["expiresAt"].endswith(".000Z")
    scrape_id = status["data"][0]["metadata"]["scrapeId"]
    bench.service.advance(24 * 3600 - 60)
    assert bench.status(job)["expiresAt"] == status["expiresAt"]
    bench.service.advance(120)
    assert bench.http.get(f"/v2/batch/scrape/{job}").status_code == 404
    assert bench.http.get(f"/v2/batch/scrape/{job}/errors").status_code == 404
    assert bench.http.get(f"/v2/scrape/{scrape_id}").status_code == 404
    assert bench.http.get("/v2/team/activity").json()["data"] == []


HOME = "http://site.test/"


def test_a_read_beyond_the_last_document_of_a_running_job_is_held(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that follows `next` at once does not spin; other reads are answered at once."""
    urls = [f"http://site.test/{n}" for n in range(3)]
    bench.web.held.update(urls[1:])
    job = bench.batch(*urls)
    following = bench.until(lambda: (found := bench.status(job))["completed"] == 1 and found["next"])
    begun, reads = time.monotonic(), 0
    while time.monotonic() < begun + 0.5:
        assert bench.http.get(following).json()["data"] == []
        reads += 1
    assert reads <= 3
    monkeypatch.setattr(jobs, "_HOLD_S", 60.0)
    begun = time.monotonic()
    for query in ("", "?skip=0", "?limit=1"):
        assert bench.status(job, query=query)["completed"] == 1
    assert time.monotonic() - begun < 30
    bench.web.held.clear()
    bench.wait_until_ended(job)


@pytest.mark.parametrize("path", ["/v2/batch/scrape", "/v2/crawl"])
def test_a_watcher_of_a_public_sdk_is_accepted_and_closed(bench: Any, path: str) -> None:
    """Then it polls: the one for JavaScript gives up if its connection is refused, as do older ones for Python."""
    url = f"{bench.service.url.replace('http', 'ws', 1)}{path}/{NO_JOB}"
    for key in ({"subprotocols": ["test-key"]}, {"additional_headers": {"Authorization": "Bearer test-key"}}):
        with connect(url, proxy=None, **key) as watcher, pytest.raises(ConnectionClosedOK):
            watcher.recv(timeout=10)
    for key in ({}, {"subprotocols": ["wrong"]}):
        with pytest.raises(InvalidStatus):
            connect(url, proxy=None, **key)
