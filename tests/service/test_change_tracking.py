"""Change tracking: how a page changed since it was last scraped."""

from __future__ import annotations

import re
from sqlite3 import Connection
from typing import Any

import pytest
import scrape_lab
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake_service.config import Access
from weblake_service.jobs import job_records, page_history, page_queue
from weblake_service.jobs.page_outcomes import Stored
from weblake_service.page.line_diff import unified_diff
from weblake_service.store.database import Store

site, open_lab = scrape_lab.site, scrape_lab.open_lab
lab, lab_service = scrape_lab.lab, scrape_lab.lab_service

BOTH: list[Any] = ["markdown", "changeTracking"]
DIFF: list[Any] = ["markdown", {"type": "changeTracking", "modes": ["git-diff"]}]


def page(*lines: str) -> bytes:
    return ("<html><body><main>" + "".join(f"<p>{line}</p>" for line in lines) + "</main></body></html>").encode()


def applied(before: str, diff: str) -> str:
    """Return a text with a unified diff applied, and assert that the removed and context lines exist."""
    old = [f"{line}\n" for line in before.split("\n")]
    old[-1] = old[-1][:-1]
    old = old if old[-1] else old[:-1]
    new, place = [], 0
    parts = re.split(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@\n", diff, flags=re.MULTILINE)
    for start, count, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        first = int(start) if count == "0" else int(start) - 1
        new += old[place:first]
        place = first
        lines = re.findall(r"[ +-][^\n]*\n(?:\\ No newline at end of file\n)?", body)
        assert "".join(lines) == body
        for line in lines:
            mark, text = line[0], line[1:]
            if text.endswith("\\ No newline at end of file\n"):
                text = text[: text.index("\n\\ No")]
            if mark != "+":
                assert old[place] == text
                place += 1
            if mark != "-":
                new.append(text)
    return "".join(new + old[place:])


LINES = st.lists(
    st.sampled_from(["a", "b", "", "c d", "-", "+x", "@@ -1 +1 @@", "\u2028", "\\ No", "e\r"]), max_size=25
)


@settings(max_examples=examples(400))
@given(LINES, LINES)
def test_a_diff_applied_to_the_old_text_gives_the_new_text(old: list[str], new: list[str]) -> None:
    before, after = "\n".join(old), "\n".join(new)
    assert applied(before, unified_diff(before, after)) == after


@settings(max_examples=examples(30))
@given(st.randoms(use_true_random=False), st.integers(0, 3000))
def test_a_diff_of_large_texts_is_correct(random: Any, size: int) -> None:
    old = [f"line {random.randrange(size + 1)}" for _ in range(size)]
    new = [line for line in old if random.random() > 0.1]
    random.shuffle(new) if random.random() < 0.3 else new.insert(0, "first")
    before, after = "\n".join(old), "\n".join(new)
    assert applied(before, unified_diff(before, after)) == after


def test_a_small_change_of_a_long_page_is_a_small_diff() -> None:
    old = [f"line {number}" if number % 2 else "" for number in range(20_000)]
    new = [*old[:5], "new", *old[5:-4], "other", *old[-3:]]
    assert len(unified_diff("\n".join(old), "\n".join(new)).splitlines()) < 30


def test_a_page_is_new_same_or_changed(lab: Any) -> None:
    url = lab.site.page("/p", page("One", "Two", "Three"))
    first = lab.scrape(url, formats=BOTH)
    assert first["changeTracking"] == {"previousScrapeAt": None, "changeStatus": "new", "visibility": "visible"}
    same = lab.scrape(url, formats=DIFF)
    assert same["changeTracking"]["changeStatus"] == "same"
    assert "diff" not in same["changeTracking"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", same["changeTracking"]["previousScrapeAt"])
    lab.service.advance(3600)
    lab.site.page("/p", page("One", "2", "Three"))
    changed = lab.scrape(url, formats=DIFF)
    tracking = changed["changeTracking"]
    assert tracking["changeStatus"] == "changed"
    assert tracking["previousScrapeAt"] > same["changeTracking"]["previousScrapeAt"]
    assert "\n-Two\n+2\n" in tracking["diff"]
    assert applied(first["markdown"], tracking["diff"]) == changed["markdown"]
    assert lab.fetch_count("/p") == 3, "a page with change tracking is fetched, however recent the cached one is"
    assert lab.credits() == 3


def test_a_change_of_white_space_is_ignored(lab: Any) -> None:
    url = lab.site.page("/p", b"<main><p>One two</p><p>Three</p></main>")
    lab.scrape(url, formats=BOTH)
    lab.site.page("/p", b"<main><p>One two<br></p>\n\n<p>Three</p></main>")
    assert lab.scrape(url, formats=BOTH)["changeTracking"]["changeStatus"] == "same"


def test_a_diff_is_returned_only_in_its_mode(lab: Any) -> None:
    url = lab.site.page("/p", page("One"))
    lab.scrape(url, formats=BOTH)
    lab.site.page("/p", page("Two"))
    assert "diff" not in lab.scrape(url, formats=BOTH)["changeTracking"]


def test_a_removed_page_is_reported_and_its_last_version_kept(lab: Any) -> None:
    url = lab.site.page("/p", page("One"))
    lab.scrape(url, formats=BOTH)
    lab.site.page("/p", page("Gone"), status=404)
    gone = lab.scrape(url, formats=BOTH)
    assert (gone["changeTracking"]["changeStatus"], gone["metadata"]["statusCode"]) == ("removed", 404)
    assert gone["changeTracking"]["previousScrapeAt"] is not None
    lab.site.page("/p", page("One"))
    assert lab.scrape(url, formats=BOTH)["changeTracking"]["changeStatus"] == "same"


@pytest.mark.parametrize(
    "failing", [{"body": page("Try later"), "status": 503}, {"body": b"\x00\x01", "content_type": "video/mp4"}]
)
def test_an_error_page_or_a_failed_scrape_is_neither_compared_nor_stored(lab: Any, failing: dict[str, Any]) -> None:
    url = lab.site.page("/p", page("One"))
    lab.scrape(url, formats=BOTH)
    lab.site.page("/p", **failing)
    reply = lab.post(url, formats=BOTH)
    if reply.status_code == 200:
        assert "changeTracking" not in reply.json()["data"]
        assert "503" in reply.json()["data"]["warning"]
    lab.site.page("/p", page("One"))
    assert lab.scrape(url, formats=BOTH)["changeTracking"]["changeStatus"] == "same"


def test_tags_teams_and_options_have_separate_histories(lab: Any) -> None:
    url = lab.site.page("/p", page("One"))
    tagged: list[Any] = ["markdown", {"type": "changeTracking", "tag": "hourly"}]
    untagged: list[Any] = ["markdown", {"type": "changeTracking", "tag": None}]

    def status(*args: str, **options: Any) -> str:
        return str(lab.scrape(url, *args, **options)["changeTracking"]["changeStatus"])

    assert status(formats=BOTH) == "new"
    assert status(formats=tagged) == "new"
    assert status("test-key-2", formats=BOTH) == "new"
    assert status(formats=BOTH, excludeTags=["h2"]) == "new"
    assert status(formats=[*BOTH, "links"]) == "same"
    assert status(formats=untagged) == "same"
    assert status(formats=tagged) == "same"
    assert status(formats=BOTH, onlyMainContent=True, excludeTags=[]) == "same"


def test_spellings_of_one_url_share_one_history(lab: Any) -> None:
    url = lab.site.page("/p", page("One"))
    lab.scrape(url, formats=BOTH)
    for spelling in (url.removeprefix("http://"), url + "#part", url.replace("http", "HTTP", 1)):
        assert lab.scrape(spelling, formats=BOTH)["changeTracking"]["changeStatus"] == "same"
    root = lab.site.page("/", page("Home"))
    lab.scrape(root, formats=BOTH)
    assert lab.scrape(root.removesuffix("/"), formats=BOTH)["changeTracking"]["changeStatus"] == "same"
    for other in (root + "?q=1", root + "#/route"):
        assert lab.scrape(other, formats=BOTH)["changeTracking"]["changeStatus"] == "new"


def test_a_cached_page_is_compared_and_stored_as_no_version(lab: Any) -> None:
    url = lab.site.page("/p", page("One"))
    lab.scrape(url)
    assert lab.scrape(url, formats=BOTH, minAge=1)["changeTracking"]["changeStatus"] == "new"
    assert lab.scrape(url, formats=BOTH, minAge=1)["changeTracking"]["changeStatus"] == "new"
    assert lab.fetch_count("/p") == 1


def ended(lab: Any, kind: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    reply = lab.http.post(f"/v2/{kind}", json=body)
    assert reply.status_code == 200, reply.text
    return list(lab.wait_until_ended(f"/v2/{kind}/{reply.json()['id']}")["data"])


def statuses(pages: list[dict[str, Any]]) -> dict[str, str]:
    return {one["metadata"]["sourceURL"].rpartition("/")[2]: one["changeTracking"]["changeStatus"] for one in pages}


def test_batches_and_crawls_track_changes(lab: Any) -> None:
    lab.site.page("/a", page("A"))
    lab.site.page("/b", page("B"))
    start = lab.site.page("/", b"<main><h1>Home</h1><a href=/a>a</a> <a href=/b>b</a></main>")
    urls = [lab.site.url("/a"), lab.site.url("/b")]
    assert statuses(ended(lab, "batch/scrape", {"urls": urls, "formats": BOTH})) == {"a": "new", "b": "new"}
    lab.site.page("/b", page("B2"))
    crawl = {"url": start, "scrapeOptions": {"formats": BOTH}, "sitemap": "skip"}
    assert statuses(ended(lab, "crawl", crawl)) == {"": "new", "a": "same", "b": "changed"}
    assert lab.scrape(urls[1], formats=BOTH)["changeTracking"]["changeStatus"] == "same"


def test_a_page_that_a_complete_crawl_no_longer_finds_is_hidden(lab: Any) -> None:
    lab.site.page("/a", page("A"))
    home, without = b"<main><h1>Home</h1><a href=/a>a</a></main>", b"<main><h1>Home</h1></main>"
    start = lab.site.page("/", home)
    url = lab.site.url("/a")
    crawl = {"url": start, "scrapeOptions": {"formats": BOTH}, "sitemap": "skip", "limit": 5}

    def visibility() -> str:
        return str(lab.scrape(url, formats=BOTH)["changeTracking"]["visibility"])

    assert visibility() == "visible"
    assert len(ended(lab, "crawl", crawl)) == 2
    assert visibility() == "visible"
    lab.site.page("/", without)
    lab.service.advance(60)
    ended(lab, "crawl", {**crawl, "limit": 1})
    assert visibility() == "visible", "a crawl with other options does not report hidden pages"
    assert len(ended(lab, "crawl", crawl)) == 1
    assert visibility() == "hidden"
    lab.site.page("/", home)
    lab.service.advance(60)
    found = ended(lab, "crawl", crawl)
    assert [one["changeTracking"]["visibility"] for one in found] == ["visible", "visible"]
    assert visibility() == "visible"


def test_a_crawl_that_stops_at_its_limit_marks_no_page_as_hidden(lab: Any) -> None:
    for name in "abc":
        lab.site.page(f"/{name}", page(name))
    start = lab.site.page("/", b"<main><a href=/a>a</a> <a href=/b>b</a> <a href=/c>c</a></main>")
    crawl = {"url": start, "scrapeOptions": {"formats": BOTH}, "sitemap": "skip", "limit": 2, "maxConcurrency": 1}
    ended(lab, "crawl", crawl)
    lab.site.page("/", b"<main><a href=/b>b</a> <a href=/a>a</a> <a href=/c>c</a></main>")
    lab.service.advance(60)
    ended(lab, "crawl", crawl)
    assert lab.scrape(lab.site.url("/a"), formats=BOTH)["changeTracking"]["visibility"] == "visible"


@pytest.mark.parametrize("formats", [["changeTracking"], [{"type": "changeTracking", "modes": ["git-diff"]}, "html"]])
def test_change_tracking_requires_markdown(lab: Any, formats: list[Any]) -> None:
    reply = lab.post(lab.site.url("/p"), formats=formats)
    assert (reply.status_code, "markdown" in reply.json()["error"]) == (400, True)
    assert lab.site.requests == []


@pytest.mark.parametrize("extra", [{"modes": ["json"]}, {"prompt": "What is new?"}, {"schema": {"type": "object"}}])
def test_modes_that_need_a_language_model_are_refused(lab: Any, extra: dict[str, Any]) -> None:
    reply = lab.post(lab.site.url("/p"), formats=["markdown", {"type": "changeTracking", **extra}])
    assert (reply.status_code, reply.json()["code"]) == (503, "FEATURE_NOT_CONFIGURED")
    assert "changeTracking" in reply.json()["error"]
    assert lab.site.requests == []


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_version_and_its_page_are_stored_atomically(cancelled: bool) -> None:
    store, access = Store(), Access("red", "one")

    def work(db: Connection) -> int:
        job = job_records.NewJob(
            "7b5d9b0e-0000-4000-8000-000000000000", "batch_scrape", access, "http://a.test/", 100.0
        )
        job_records.create(db, job)
        page_queue.add(db, job.id, [("http://a.test/", 0)], 100.0)
        (todo,) = page_queue.waiting(db, job.id)
        if cancelled:
            job_records.end(db, job.id, "cancelled", 101.0, drained=False)
        version = page_history.new_version(b"key", "One")
        job_records.finish_page(db, job.id, todo, Stored("s", b"{}", 1, "http://a.test/", version), 102.0)
        return int(db.execute("SELECT count(*) FROM page_history").fetchone()[0])

    try:
        assert store.write_now(work) == (0 if cancelled else 1)
    finally:
        store.close()
