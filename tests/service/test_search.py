"""POST /v2/search over a real socket: results, scrapes, costs, refusals, and what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from weblake_service.config import ServiceKey, TeamPlan
from weblake_service.page_failure import PageFailure

A, B, C = "http://site.test/a", "http://docs.site.test/b", "http://other.test/c"
UUID = "00000000-0000-4000-8000-00000000000{}"


def scraped(bench: Any, *urls: str, **options: object) -> None:
    for url in urls:
        reply = bench.http.post("/v2/scrape", json={"url": url, **options})
        assert reply.status_code == 200, reply.text


def search(bench: Any, query: str, **options: object) -> dict[str, Any]:
    reply = bench.http.post("/v2/search", json={"query": query, **options})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def urls(reply: dict[str, Any]) -> list[str]:
    return [one["url"] for one in reply["data"]["web"]]


def credits(bench: Any) -> int:
    periods = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    return int(sum(one["totalCredits"] for one in periods))


@pytest.fixture
def indexed(bench: Any) -> Any:
    """Return a service that scraped three pages."""
    bench.web.bodies = {
        A: "# Lakes\n\nA data lake keeps [raw files](http://hidden.test/target) in open formats.",
        B: "# Warehouses\n\nA data warehouse keeps tables.",
        C: "# Streams\n\nNothing of the others.",
    }
    scraped(bench, A, B, C)
    return bench


def test_an_empty_index_is_reported_and_free(bench: Any) -> None:
    reply = search(bench, "anything")
    assert (reply["success"], reply["data"], reply["creditsUsed"]) == (True, {"web": []}, 0)
    assert "nothing to search yet" in reply["warning"]
    assert credits(bench) == 0


def test_a_result_has_title_passage_url_and_position(indexed: Any) -> None:
    reply = search(indexed, "data files")
    (found,) = reply["data"]["web"]
    assert found == {
        "url": A,
        "title": f"Title of {A}",
        "description": "Lakes A data lake keeps raw files in open formats.",
        "position": 1,
    }
    assert "3 pages that this service scraped" in reply["warning"]
    assert [one["position"] for one in search(indexed, "data")["data"]["web"]] == [1, 2]
    assert urls(search(indexed, "target")) == []


def test_highlights_are_optional(indexed: Any) -> None:
    (found,) = search(indexed, "files", highlights=False)["data"]["web"]
    # The page has no description, so a part of its text is used.
    assert found["description"].startswith("Lakes")


def test_filters_narrow_the_results(indexed: Any) -> None:
    assert urls(search(indexed, "keeps", includeDomains=["docs.site.test"])) == [B]
    assert urls(search(indexed, "keeps", excludeDomains=["https://docs.site.test/"])) == [A]
    assert urls(search(indexed, "keeps site:site.test -warehouse")) == [A]
    assert urls(search(indexed, '"data warehouse"')) == [B]
    assert len(urls(search(indexed, "keeps OR streams", limit=2))) == 2
    assert urls(search(indexed, "keeps", categories=["pdf"])) == []
    both = indexed.http.post(
        "/v2/search", json={"query": "x", "includeDomains": ["a.test"], "excludeDomains": ["b.test"]}
    )
    assert both.status_code == 400


def test_the_age_filter_uses_the_clock_of_the_service(indexed: Any) -> None:
    assert len(urls(search(indexed, "keeps", tbs="qdr:h"))) == 2
    indexed.service.advance(2 * 3600)
    indexed.http.post("/v2/scrape", json={"url": A, "maxAge": 0})
    assert urls(search(indexed, "keeps", tbs="qdr:h")) == [A]
    assert urls(search(indexed, "keeps", sources=[{"type": "web", "tbs": "qdr:h"}])) == [A]
    assert len(urls(search(indexed, "keeps", tbs="qdr:d"))) == 2
    assert urls(search(indexed, "keeps", tbs="sbd:1")) == [A, B]
    assert urls(search(indexed, "keeps", tbs="cdr:1,cd_max:1/1/2020")) == []
    assert len(urls(search(indexed, "keeps", tbs="cdr:1,cd_min:1/1/2020,cd_max:12/31/2099"))) == 2


def test_unsupported_sources_are_empty_with_a_warning(indexed: Any) -> None:
    reply = search(indexed, "keeps", sources=["web", "news", {"type": "images"}])
    assert (len(reply["data"]["web"]), reply["data"]["news"], reply["data"]["images"]) == (2, [], [])
    assert "news and images" in reply["warning"]
    assert search(indexed, "keeps", sources=["news"])["data"] == {"news": []}
    assert "location" in search(indexed, "keeps", country="DE")["warning"]
    refused = indexed.http.post("/v2/search", json={"query": "keeps", "categories": ["research"]})
    assert (refused.status_code, "`research`" in refused.json()["error"]) == (503, True)


@pytest.mark.parametrize(
    ("options", "ignored", "places"),
    [
        # As firecrawl-mcp 3.26 sends each search.
        (
            {
                "sources": ["web", "alexandria"],
                "domainTools": True,
                "toolDetail": "compact",
                "limit": 5,
                "origin": "mcp",
            },
            ["the source 'alexandria'", "'domainTools'", "'toolDetail'"],
            {"web": 2},
        ),
        ({"sources": [{"type": "alexandria", "depth": 3}, {"type": "web"}]}, ["the source 'alexandria'"], {"web": 2}),
        ({"sources": ["videos"]}, ["the source 'videos'"], {}),
        ({"sources": [{"type": "web", "lang": "de"}]}, ["'lang'"], {"web": 2}),
        ({"includeDomain": ["a.test"]}, ["'includeDomain' (did you mean `includeDomains`?)"], {"web": 2}),
        ({"threatProtection": {}, "enterprise": ["default"]}, ["'threatProtection'"], {"web": 2}),
    ],
)
def test_unknown_options_and_sources_are_ignored_with_a_warning(
    indexed: Any, options: dict[str, Any], ignored: list[str], places: dict[str, int]
) -> None:
    reply = search(indexed, "keeps", **options)
    assert {source: len(found) for source, found in reply["data"].items()} == places
    assert reply["warning"].endswith(f"Not known here and ignored: {', '.join(ignored)}.")


def test_the_warning_about_unknown_options_is_short(indexed: Any) -> None:
    reply = search(indexed, "keeps", **{f"{'x' * 500}{n}": n for n in range(1000)})
    assert len(reply["warning"]) < 2000


def test_results_are_scraped_stored_and_billed(indexed: Any) -> None:
    before, asked = credits(indexed), len(indexed.web.asked)
    reply = search(indexed, "keeps", scrapeOptions={"formats": ["markdown"], "maxAge": 0})
    first, second = reply["data"]["web"]
    assert first["markdown"] == indexed.web.bodies[first["url"]]
    assert {first["position"], second["position"]} == {1, 2}
    assert first["metadata"]["sourceURL"] == first["url"]
    assert len(indexed.web.asked) == asked + 2
    assert (reply["creditsUsed"], credits(indexed) - before) == (4, 4)
    for one in (first, second):
        read = indexed.http.get(f"/v2/scrape/{one['metadata']['scrapeId']}").json()["data"]
        assert read["markdown"] == one["markdown"]
    assert "markdown" not in search(indexed, "keeps", scrapeOptions={})["data"]["web"][0]
    assert "markdown" not in search(indexed, "keeps", scrapeOptions={"formats": []})["data"]["web"][0]


def test_an_unscrapable_result_reports_its_error(indexed: Any) -> None:
    indexed.web.failures = {A: PageFailure("SCRAPE_SITE_ERROR", "It is down."), B: ZeroDivisionError("a defect")}
    reply = search(indexed, "keeps", scrapeOptions={"formats": ["markdown"], "maxAge": 0})
    told = {one["url"]: one["metadata"] for one in reply["data"]["web"]}
    assert told[A] == {"sourceURL": A, "url": A, "error": "It is down.", "code": "SCRAPE_SITE_ERROR"}
    assert told[B]["code"] == "UNKNOWN_ERROR"
    assert reply["creditsUsed"] == 2


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 400, "query"),
        ({"query": ""}, 400, "empty"),
        ({"query": "x" * 501}, 400, "query"),
        ({"query": "x", "limit": 0}, 400, "limit"),
        ({"query": "x", "limit": 101}, 400, "limit"),
        ({"query": "x", "sources": [5]}, 400, "sources"),
        ({"query": "x", "scrapeOptions": {"format": []}}, 400, "formats"),
        ({"query": "x", "sources": [{}]}, 400, "source"),
        ({"query": "x", "categories": [{}]}, 400, "categories"),
        *(
            ({"query": "x", "tbs": tbs}, 400, "tbs")
            for tbs in (
                "last week",
                "qdr:x",
                "qdr:d99999",
                "cdr:1,cd_min:2026-01-01",
                "cdr:1,cd_max:13/45/2026",
                "cd_max:",
            )
        ),
        ({"query": "x", "includeDomains": ["///"]}, 400, "no domain"),
        ({"query": "x", "scrapeOptions": {"formats": ["summary"]}}, 503, "summary"),
        ({"query": "x", "scrapeOptions": {"formats": ["nonsense"]}}, 400, "formats"),
        ({"query": "x", "enterprise": ["zdr"]}, 403, "retention"),
    ],
)
def test_invalid_searches_are_refused(bench: Any, body: dict[str, object], status: int, word: str) -> None:
    reply = bench.http.post("/v2/search", json=body)
    assert (reply.status_code, word in reply.text) == (status, True), reply.text


def test_every_ten_results_cost_two_credits(bench: Any) -> None:
    for n in range(11):
        bench.web.bodies[f"http://site.test/{n}"] = "common"
    bench.wait_until_ended(bench.batch(*bench.web.bodies))
    before = credits(bench)
    assert search(bench, "common", limit=10)["creditsUsed"] == 2
    assert search(bench, "common", limit=100)["creditsUsed"] == 4
    assert search(bench, "absent")["creditsUsed"] == 0
    assert credits(bench) - before == 6


def test_a_search_needs_credits_for_itself_and_its_pages(make_bench: Any) -> None:
    bench = make_bench(plan_credits=5)
    bench.web.bodies = {A: "alpha", B: "alpha"}
    scraped(bench, A, B)
    refused = bench.http.post("/v2/search", json={"query": "alpha", "scrapeOptions": {"formats": ["markdown"]}})
    assert (refused.status_code, refused.json()["code"]) == (402, "INSUFFICIENT_CREDITS")
    assert len(urls(search(bench, "alpha"))) == 2
    assert bench.http.post("/v2/search", json={"query": "alpha"}).status_code == 402


def test_a_search_that_takes_too_long_times_out(indexed: Any) -> None:
    before = credits(indexed)
    indexed.web.held.add("*")
    body = {"query": "keeps", "timeout": 50, "scrapeOptions": {"formats": ["markdown"], "maxAge": 0}}
    reply = indexed.http.post("/v2/search", json=body)
    indexed.web.held.clear()
    assert (reply.status_code, reply.json()["code"]) == (408, "SEARCH_TIMEOUT")
    assert credits(indexed) == before


def test_a_team_finds_only_its_own_pages(make_bench: Any) -> None:
    keys = [ServiceKey("test-key-one", "one", "one"), ServiceKey("test-key-two", "two", "two")]
    bench = make_bench(keys=keys, teams={"two": TeamPlan(zero_data_retention=True)})
    bench.web.bodies = {A: "alpha", B: "alpha"}
    one, two = ({"Authorization": f"Bearer test-key-{name}"} for name in ("one", "two"))

    def post(path: str, team: dict[str, str], **body: object) -> Any:
        reply = bench.http.post(path, json=body, headers=team)
        assert reply.status_code == 200, reply.text
        return reply.json()

    post("/v2/scrape", one, url=A)
    post("/v2/scrape", one, url=B, headers={"Cookie": "session=1"})
    assert urls(post("/v2/search", one, query="alpha")) == [A]
    assert urls(post("/v2/search", two, query="alpha")) == []
    # A page from the cache still counts as scraped by this team.
    post("/v2/scrape", two, url=A)
    assert urls(post("/v2/search", two, query="alpha")) == [A]
    post("/v2/scrape", two, url=B, zeroDataRetention=True)
    assert urls(post("/v2/search", two, query="alpha", enterprise=["zdr"])) == [A]
    shown = bench.http.get("/v2/team/activity?endpoint=search", headers=two).json()["data"]
    assert [entry["target"] for entry in shown] == [None, "alpha", "alpha"]


def test_the_index_survives_a_restart_and_is_cleared_by_a_reset(make_bench: Any, tmp_path: Any) -> None:
    first = make_bench(tmp_path / "service.db")
    first.web.bodies[A] = "alpha"
    scraped(first, A)
    first.service.stop()
    second = make_bench(tmp_path / "service.db")
    assert urls(search(second, "alpha")) == [A]
    assert second.http.post("/_weblake/reset").status_code < 300
    assert urls(search(second, "alpha")) == []
