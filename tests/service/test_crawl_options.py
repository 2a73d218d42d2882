"""Every option of a crawl, over HTTP: which pages are visited, their order and number, and the status's warnings."""

from __future__ import annotations

import time
from typing import Any

import pytest

HOME = "http://site.test/docs/"
PAGES = {
    HOME: [
        f"{HOME}a", f"{HOME}b?x=1", f"{HOME}b?x=2", f"{HOME}old", "http://site.test/blog",
        "http://sub.site.test/docs/s", "http://other.test/o", f"{HOME}a/", f"{HOME}photo.png",
    ],
    f"{HOME}a": [f"{HOME}a/deep"],
    f"{HOME}a/deep": [f"{HOME}a/deeper"],
}  # fmt: skip
OWN = [HOME, f"{HOME}a", f"{HOME}b?x=1", f"{HOME}b?x=2", f"{HOME}old", f"{HOME}a/deep", f"{HOME}a/deeper"]


@pytest.fixture
def crawled(bench: Any) -> Any:
    bench.web.links = PAGES
    bench.web.sitemaps[HOME] = [f"{HOME}listed"]

    def crawl(**options: object) -> list[str]:
        status = bench.wait_until_ended(
            bench.crawl(HOME, **{"sitemap": "skip", "maxConcurrency": 1, **options}), "crawl"
        )
        return [document["metadata"]["sourceURL"] for document in status["data"]]

    return crawl


@pytest.mark.parametrize(
    ("options", "pages"),
    [
        ({}, OWN),
        ({"maxDiscoveryDepth": 0}, OWN[:1]),
        ({"maxDiscoveryDepth": 2}, OWN[:6]),
        ({"includePaths": ["/a"]}, [HOME, f"{HOME}a", f"{HOME}a/deep", f"{HOME}a/deeper"]),
        ({"excludePaths": ["/a"]}, [HOME, *OWN[2:5]]),
        ({"includePaths": ["x=1"]}, OWN[:1]),
        ({"includePaths": ["x=1"], "regexOnFullURL": True}, [HOME, f"{HOME}b?x=1"]),
        ({"ignoreQueryParameters": True}, [HOME, f"{HOME}a", f"{HOME}b", f"{HOME}old", *OWN[5:]]),
        ({"crawlEntireDomain": True, "limit": 6}, [*OWN[:5], "http://site.test/blog"]),
        ({"allowSubdomains": True, "limit": 6}, [*OWN[:5], "http://sub.site.test/docs/s"]),
        ({"allowExternalLinks": True, "limit": 7}, [*OWN[:5], "http://sub.site.test/docs/s", "http://other.test/o"]),
        ({"deduplicateSimilarURLs": False, "limit": 6}, [*OWN[:5], f"{HOME}a/"]),
        ({"sitemap": "include", "limit": 3}, [HOME, f"{HOME}listed", f"{HOME}a"]),
        ({"sitemap": "only"}, [HOME, f"{HOME}listed"]),
        ({"sitemap": "include", "maxDiscoveryDepth": 0}, [HOME, f"{HOME}listed"]),
        ({"limit": 1}, OWN[:1]),
    ],
)
def test_options_select_the_visited_pages(crawled: Any, options: dict[str, Any], pages: list[str]) -> None:
    assert crawled(**options) == pages


def test_the_delay_is_kept_between_any_two_pages(bench: Any) -> None:
    bench.web.links = {HOME: [f"{HOME}{number}" for number in range(4)]}
    began = time.monotonic()
    bench.wait_until_ended(bench.crawl(HOME, delay=0.06, maxConcurrency=4), "crawl")
    assert time.monotonic() - began >= 4 * 0.06
    assert bench.web.most_flying == 1


def test_the_crawl_delay_of_robots_txt_is_kept(bench: Any) -> None:
    bench.web.links = {HOME: [f"{HOME}{number}" for number in range(3)]}
    bench.web.delay = 0.05
    began = time.monotonic()
    bench.wait_until_ended(bench.crawl(HOME), "crawl")
    assert time.monotonic() - began >= 3 * 0.05
    bench.web.held.update(bench.web.links[HOME])
    bench.crawl(HOME, ignoreRobotsTxt=True, scrapeOptions={"maxAge": 0})
    bench.until(lambda: bench.web.flying == 3)


def test_the_status_warns_of_pages_blocked_by_robots_txt(bench: Any) -> None:
    bench.web.links = {HOME: [f"{HOME}{number}" for number in range(3)]}
    bench.web.blocked = {f"{HOME}0", f"{HOME}1"}
    job = bench.crawl(HOME)
    status = bench.wait_until_ended(job, "crawl")
    assert "keeps 2 pages from being fetched" in status["warning"]
    assert (status["total"], status["completed"]) == (2, 2)
    assert bench.http.get(f"/v2/crawl/{job}/errors").json()["robotsBlocked"] == [f"{HOME}0", f"{HOME}1"]
    free = bench.wait_until_ended(bench.crawl(HOME, ignoreRobotsTxt=True), "crawl")
    assert "warning" not in free


def test_a_disallowed_site_reports_robots_txt(bench: Any) -> None:
    bench.web.blocked = {HOME}
    bench.web.note = "http://site.test/robots.txt answered 503."
    status = bench.wait_until_ended(bench.crawl(HOME), "crawl")
    assert (status["status"], status["total"], status["data"]) == ("completed", 0, [])
    assert status["warning"].startswith("http://site.test/robots.txt answered 503. robots.txt keeps one page")


def test_the_list_of_active_crawls_shows_scrape_options_unchanged(bench: Any) -> None:
    bench.web.held.add("*")
    given = {"formats": [{"type": "markdown"}], "onlyMainContent": False}
    first, second = bench.crawl(HOME, scrapeOptions=given), bench.crawl("http://b.test")
    bench.batch(HOME)
    crawls = bench.http.get("/v2/crawl/active").json()["crawls"]
    assert [one["id"] for one in crawls] == [second, first]
    assert (crawls[1]["options"]["scrapeOptions"], crawls[1]["teamId"]) == (given, "local")
    assert (crawls[0]["options"], crawls[0]["url"]) == ({"scrapeOptions": {}}, "http://b.test")
    for job in (first, second):
        assert bench.http.delete(f"/v2/crawl/{job}").json() == {"status": "cancelled"}
    assert bench.http.get("/v2/crawl/active").json()["crawls"] == []
