"""POST /v2/map: which URLs belong to a site, their order, and the warnings if a part of the site is missing."""

from __future__ import annotations

from typing import Any

import loopback_site as loopback
import pytest

from weblake_service.page_failure import PageFailure

site = loopback.site

HOME = "http://site.test/"
KEY = "00000000-0000-4000-8000-000000000001"


def reply(bench: Any, url: str = HOME, **options: object) -> dict[str, Any]:
    answer = bench.http.post("/v2/map", json={"url": url, **options})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def mapped(bench: Any, url: str = HOME, **options: object) -> list[str]:
    return [link["url"] for link in reply(bench, url, **options)["links"]]


def credits(bench: Any) -> int:
    periods = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    return int(sum(one["totalCredits"] for one in periods))


def test_each_url_of_the_site_is_listed_once(bench: Any) -> None:
    bench.web.sitemaps[HOME] = [
        "http://site.test/a", "https://www.site.test/a/", "http://SITE.test:80/a#part", "http://site.test/a/index.html",
        "http://site.test:8080/a", "http://notsite.test/a", "http://site.test.evil.test/", "ftp://site.test/f",
        "javascript:alert(1)", "http://[broken", "", "http://site.test/%61?y=1&x=2", "http://site.test/A",
    ]  # fmt: skip
    assert mapped(bench) == [HOME, "http://site.test/a", "http://site.test/A"]
    with_query = mapped(bench, ignoreQueryParameters=False)
    assert with_query == [HOME, "http://site.test/a", "http://site.test/%61?y=1&x=2", "http://site.test/A"]


def test_subdomains_are_included_on_request(bench: Any) -> None:
    bench.web.links[HOME] = ["http://docs.site.test/x", "http://a.docs.site.test/", "http://site.test/x"]
    assert mapped(bench) == [HOME, *bench.web.links[HOME]]
    assert mapped(bench, includeSubdomains=False) == [HOME, "http://site.test/x"]


@pytest.mark.parametrize("mode", ["include", "only"])
def test_a_site_that_moved_to_another_host_is_mapped(bench: Any, mode: str) -> None:
    moved = "http://moved.example/"
    bench.web.finals[HOME] = moved
    bench.web.links[HOME] = ["http://moved.example/link", "http://other.test/"]
    bench.web.sitemaps[moved] = ["http://moved.example/listed", "http://other.test/"]
    listed = mapped(bench, sitemap=mode)
    assert listed == (["http://moved.example/listed"] if mode == "only" else [moved, f"{moved}listed", f"{moved}link"])


def test_the_sitemap_is_read_although_the_home_page_fails(bench: Any) -> None:
    bench.web.failures[HOME] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    bench.web.sitemaps[HOME] = ["http://site.test/a"]
    told = reply(bench)
    assert ([link["url"] for link in told["links"]], "It is down." in told["warning"]) == (["http://site.test/a"], True)
    bench.web.failures.clear()
    bench.web.statuses[HOME] = 404
    bench.web.links[HOME] = ["http://site.test/help"]
    told = reply(bench)
    assert [link["url"] for link in told["links"]] == ["http://site.test/a", "http://site.test/help"]
    assert "404" in told["warning"]


def test_a_site_without_urls_gives_a_warning(bench: Any) -> None:
    told = reply(bench, sitemap="only")
    assert (told["links"], "No sitemap" in told["warning"]) == ([], True)
    assert "warning" not in reply(bench)
    before = credits(bench)
    bench.web.failures[HOME] = PageFailure("SCRAPE_TIMEOUT", "Slow.", status=408)
    failed = bench.http.post("/v2/map", json={"url": HOME})
    assert (failed.status_code, failed.json()["code"], credits(bench)) == (408, "SCRAPE_TIMEOUT", before)


def test_limits_are_exact_and_applied_after_the_search(bench: Any) -> None:
    bench.web.sitemaps[HOME] = [f"{HOME}page-{n}" for n in range(5050)] + [f"{HOME}pricing/plans"]
    assert len(mapped(bench)) == 5000
    assert len(mapped(bench, limit=1)) == 1
    assert len(mapped(bench, limit=100_000)) == 5052
    assert mapped(bench, limit=1, search="plans pricing") == [f"{HOME}pricing/plans"]
    for bad in (0, 100_001, "many"):
        assert bench.http.post("/v2/map", json={"url": HOME, "limit": bad}).status_code == 400


def test_pages_scraped_earlier_have_titles(bench: Any) -> None:
    other = "http://docs.site.test/guide"
    bench.web.links[HOME] = [other, "http://site.test/unknown"]
    assert bench.http.post("/v2/scrape", json={"url": other}).status_code == 200
    links = {link["url"]: link for link in reply(bench)["links"]}
    assert links[other]["title"] == f"Title of {other}"
    assert "title" not in links["http://site.test/unknown"]
    assert links[HOME]["title"] == f"Title of {HOME}"
    assert mapped(bench, search="title docs")[0] == other
    assert all("title" not in link for link in reply(bench, ignoreCache=True)["links"] if link["url"] == other)


def test_search_matches_the_words_of_a_path(bench: Any) -> None:
    wanted = f"{HOME}%E4%BE%A1%E6%A0%BC"
    bench.web.sitemaps[HOME] = [f"{HOME}a", f"{HOME}repricing", f"{HOME}our_pricing", wanted]
    assert mapped(bench, search="Pricing!")[:2] == [f"{HOME}our_pricing", f"{HOME}repricing"]
    assert mapped(bench, search="価格")[0] == wanted
    assert mapped(bench, search=" ?! ") == mapped(bench)


def test_a_map_is_billed_listed_and_replayed(bench: Any) -> None:
    headers = {"x-idempotency-key": KEY}
    first = bench.http.post("/v2/map", json={"url": HOME}, headers=headers)
    again = bench.http.post("/v2/map", json={"url": HOME}, headers=headers)
    assert (again.content, credits(bench), bench.web.asked) == (first.content, 1, [HOME])
    (entry,) = bench.http.get("/v2/team/activity?endpoint=map").json()["data"]
    assert entry["target"] == HOME
