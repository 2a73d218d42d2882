"""The cache: what is served from it, what is stored in it, and that a hit equals a fresh scrape."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scrape_lab
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake_service.clock import iso

site, open_lab = scrape_lab.site, scrape_lab.open_lab
lab, lab_service = scrape_lab.lab, scrape_lab.lab_service

#: Fields in which a hit may differ, as documented.
TOLD = ("scrapeId", "cacheState", "cachedAt", "creditsUsed", "concurrencyLimited", "concurrencyQueueDurationMs")

WORDS = st.lists(
    st.sampled_from(["alpha", "béta", "<b>gamma</b>", "<a href=/x>delta</a>", "&amp;", "目次"]), max_size=8
)
BLOCKS = st.lists(
    st.one_of(
        WORDS.map(lambda words: f"<p>{' '.join(words)}</p>"),
        st.sampled_from(
            [
                "<nav><a href='/nav'>Menu</a></nav>",
                "<div class=cookie-banner>We use cookies</div>",
                "<img src='data:image/png;base64,AAAA' alt=dot>",
                "<img src=/a.png alt=a>",
                "<table><tr><th>h<td>d</table>",
                "<aside class=x>Aside</aside>",
                "<meta property='og:locale:alternate' content=de_DE>",
                "<h2 id=part>Part</h2>",
            ]
        ),
    ),
    min_size=1,
    max_size=8,
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "formats": st.lists(
            st.sampled_from(
                [
                    "markdown",
                    "html",
                    "rawHtml",
                    "links",
                    "images",
                    {"type": "attributes", "selectors": [{"selector": "a", "attribute": "href"}]},
                ]
            ),
            min_size=1,
            max_size=4,
            unique_by=str,
        ),
        "onlyMainContent": st.booleans(),
        "includeTags": st.sampled_from([[], ["p"], ["nav", "h2"], ["article"]]),
        "excludeTags": st.sampled_from([[], ["p"], [".x"]]),
        "removeBase64Images": st.booleans(),
        "blockAds": st.booleans(),
        "skipTlsVerification": st.just(True),
    },
)


def without_told(document: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in document["metadata"].items() if name not in TOLD}
    return {**document, "metadata": rest}


@settings(max_examples=examples(150, 15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BLOCKS, OPTIONS, OPTIONS, st.sampled_from(["/p", "/old", "/p?b=2&a=1"]))
def test_a_hit_equals_a_fresh_scrape(
    lab: Any, blocks: list[str], first: dict[str, Any], then: dict[str, Any], path: str
) -> None:
    lab.service.reset()
    body = f"<html lang=en><head><title>T</title></head><body><main>{''.join(blocks)}</main></body></html>"
    lab.site.page("/p", body.encode())
    lab.site.pages["/old"] = lambda handler: handler.reply(302, b"", {"Location": "/p"})
    url = lab.site.url(path)
    lab.scrape(url, **first)
    hit = lab.scrape(url, **then)
    fresh = lab.scrape(url, **then, maxAge=0)
    assert (hit["metadata"]["cacheState"], fresh["metadata"]["cacheState"]) == ("hit", "miss")
    assert without_told(hit) == without_told(fresh)
    assert list(hit) == list(fresh)


def test_a_hit_reports_its_time_and_url(lab: Any) -> None:
    url = lab.site.page("/p", b"<main>One</main>")
    before = time.time()
    lab.scrape(url)
    lab.service.advance(60)
    lab.site.page("/p", b"<main>Two</main>")
    again = f"{url}#part"
    hit = lab.scrape(again, formats=["markdown", "links", "rawHtml"])
    assert (hit["markdown"], hit["rawHtml"], hit["links"]) == ("One", "<main>One</main>", [])
    assert (hit["metadata"]["sourceURL"], hit["metadata"]["url"]) == (again, url)
    assert hit["metadata"]["cachedAt"] < iso(before + 30)
    assert hit["metadata"]["creditsUsed"] == 1
    assert lab.fetch_count("/p") == 1


def test_max_age_is_in_milliseconds_and_zero_disables_the_cache(lab: Any) -> None:
    url = lab.site.page("/p", b"<main>One</main>")
    lab.scrape(url)
    lab.service.advance(10)
    for age, state in ((0, "miss"), (60_000, "hit"), (1, "miss"), (None, "hit")):
        options = {} if age is None else {"maxAge": age}
        assert lab.scrape(url, **options)["metadata"]["cacheState"] == state
    lab.service.advance(10)
    assert lab.scrape(url, maxAge=10_000)["metadata"]["cacheState"] == "miss"
    lab.service.advance(2 * 24 * 3600 - 1)
    assert lab.scrape(url)["metadata"]["cacheState"] == "hit"
    lab.service.advance(2)
    assert lab.scrape(url)["metadata"]["cacheState"] == "miss"


def test_min_age_reads_only_the_cache(lab: Any) -> None:
    url = lab.site.page("/p", b"<main>One</main>")
    missing = lab.post(url, minAge=1)
    assert (missing.status_code, missing.json()["code"]) == (404, "SCRAPE_NO_CACHED_DATA")
    lab.scrape(url)
    assert lab.post(url, minAge=60_000).status_code == 404
    lab.service.advance(30 * 24 * 3600)
    assert lab.scrape(url, minAge=1, formats=["html"])["metadata"]["cacheState"] == "hit"
    assert lab.post(url, minAge=1, maxAge=60_000).status_code == 404
    assert lab.fetch_count("/p") == 1
    assert lab.credits() == 2


@pytest.mark.parametrize(
    "options", [{"storeInCache": False}, {"headers": {"Cookie": "a=b"}}, {"lockdown": True}, {"minAge": 1}]
)
def test_scrapes_without_store_in_cache_are_not_cached(lab: Any, options: dict[str, Any]) -> None:
    url = lab.site.page("/p", b"<main>One</main>")
    lab.post(url, **options)
    assert lab.post(url, minAge=1).status_code == 404


def test_a_scrape_with_custom_headers_bypasses_the_cache(lab: Any) -> None:
    lab.site.pages["/me"] = lambda handler: handler.reply(200, f"<p>{handler.headers['X-User']}</p>".encode(), {})
    url = lab.site.url("/me")
    assert lab.scrape(url)["markdown"] == "None"
    assert lab.scrape(url, headers={"X-User": "ann"})["markdown"] == "ann"
    assert lab.scrape(url, headers={"X-User": "bob"})["markdown"] == "bob"
    assert lab.scrape(url)["metadata"]["cacheState"] == "hit"
    assert lab.scrape(url)["markdown"] == "None"


def test_error_pages_and_pages_of_urls_with_credentials_are_not_cached(lab: Any) -> None:
    bad = lab.site.page("/bad", b"<main>Sorry</main>", status=500)
    good = lab.site.page("/good", b"<main>Good</main>").replace("http://", "http://ann:test-pass@")
    for url in (bad, good):
        assert [lab.scrape(url)["metadata"]["cacheState"] for _ in range(2)] == ["miss", "miss"]


def test_an_unverified_cached_page_is_not_served_when_verification_is_required(lab: Any) -> None:
    url = lab.site.page("/p", b"<main>One</main>")
    lab.scrape(url)
    assert lab.scrape(url, skipTlsVerification=False)["metadata"]["cacheState"] == "miss"
    assert lab.scrape(url, skipTlsVerification=False)["metadata"]["cacheState"] == "hit"
    assert lab.scrape(url)["metadata"]["cacheState"] == "hit"
    assert lab.fetch_count("/p") == 2


def test_the_cache_survives_a_restart(open_lab: Callable[..., Any], tmp_path: Path) -> None:
    first = open_lab(tmp_path / "service.db")
    url = first.site.page("/p", b"<main>One</main>")
    first.scrape(url)
    first.service.stop()
    assert open_lab(tmp_path / "service.db").scrape(url, lockdown=True)["markdown"] == "One"
