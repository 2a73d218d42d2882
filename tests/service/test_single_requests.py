"""The door, single scrapes, maps, reports and limits, over a real socket."""

from __future__ import annotations

import socket
import threading
import uuid
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

import httpx
import pytest

from weblake.compat import read_time
from weblake.errors import InvalidOption, StorageRefused
from weblake_service.config import ServiceKey
from weblake_service.page_failure import PageFailure
from weblake_service.server import LocalService

A, B = "http://site.test/a", "http://site.test/b"
ROUTES = ["/v2/scrape", "/v2/crawl/active", "/v2/team/activity", "/v2/nothing", "/v2/batch/scrape/x", "/v2/browser"]


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic test-key", "test-key", "Bearer"])
def test_every_route_requires_the_key(bench: Any, path: str, header: str | None) -> None:
    with httpx.Client(base_url=bench.service.url, trust_env=False) as nobody:
        reply = nobody.get(path, headers={"Authorization": header} if header else {})
        posted = nobody.post(path, json={}, headers={"Authorization": header} if header else {})
    for one in (reply, posted):
        assert one.status_code == 401
        assert one.json()["success"] is False
        assert one.headers["weblake-idempotency"] == "replay"


def test_every_response_declares_idempotent_replay(bench: Any) -> None:
    for reply in (bench.http.get("/v2/crawl/active"), bench.http.get("/v2/x"), bench.http.post("/v2/scrape", json={})):
        assert reply.headers["weblake-idempotency"] == "replay"


def test_foreign_host_names_are_refused(bench: Any) -> None:
    assert bench.http.get("/v2/crawl/active", headers={"Host": "evil.test"}).status_code == 403
    port = bench.service.url.rpartition(":")[2]
    assert bench.http.get("/v2/crawl/active", headers={"Host": f"localhost:{port}"}).status_code == 200
    job = bench.batch(A)
    reply = bench.http.get(f"/v2/batch/scrape/{job}?limit=1", headers={"Host": f"localhost:{port}"})
    assert "127.0.0.1" not in reply.text


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{", "BAD_REQUEST_INVALID_JSON"), (b"\xff", "BAD_REQUEST_INVALID_JSON"), (b"[]", "BAD_REQUEST")],
)
def test_bodies_that_are_not_json_objects_are_refused(bench: Any, content: bytes, code: str) -> None:
    for path in ("/v2/scrape", "/v2/batch/scrape", "/v2/crawl", "/v2/map"):
        reply = bench.http.post(path, content=content)
        assert (reply.status_code, reply.json()["code"]) == (400, code)


def test_invalid_options_are_named(bench: Any) -> None:
    reply = bench.http.post("/v2/scrape", json={"url": A, "timeout": 999})
    assert reply.status_code == 400
    assert "timeout" in reply.json()["details"][0]["message"]
    missing = bench.http.post("/v2/batch/scrape", json={})
    assert (missing.status_code, "urls" in missing.json()["error"]) == (400, True)
    assert bench.http.post("/v2/scrape", json={"url": "ftp://site.test/"}).status_code == 400


def test_an_unknown_option_is_refused_with_the_nearest_name(bench: Any) -> None:
    refused = bench.http.post("/v2/scrape", json={"url": A, "onlyMainContnt": False})
    said = "'onlyMainContnt' is not an option here. Did you mean `onlyMainContent`?"
    assert (refused.status_code, refused.json()["error"], refused.json()["code"]) == (400, said, "BAD_REQUEST")
    nested = {"url": A, "scrapeOptions": {"formats": [{"type": "screenshot", "fullpage": True}]}}
    refused = bench.http.post("/v2/crawl", json=nested)
    said = "'fullpage' is not an option of `scrapeOptions.formats[0]`. Did you mean `fullPage`?"
    assert (refused.status_code, refused.json()["error"]) == (400, said)


@pytest.mark.parametrize(
    ("path", "body", "option", "nearest"),
    [
        ("/v2/extract", {"urls": [A], "promt": "x"}, "promt", "prompt"),
        ("/v2/extract", {"urls": [A], "scrapeOptions": {"format": []}}, "format", "formats"),
        ("/v2/agent", {"prompt": "x", "maxCredit": 9}, "maxCredit", "maxCredits"),
        ("/v2/agent", {"prompt": "x", "webhook": {"url": "https://x.test", "event": []}}, "event", "events"),
        ("/v2/crawl/params-preview", {"url": A, "prompt": "x", "promt": "x"}, "promt", "prompt"),
        ("/v2/map", {"url": A, "serch": "x"}, "serch", "search"),
        ("/v2/search", {"query": "x", "sources": [{"type": "web", "tb": "d"}]}, "tb", "tbs"),
        ("/v2/browser", {"tll": 30}, "tll", "ttl"),
        ("/v2/browser/x/execute", {"code": "1", "lang": "node"}, "lang", "language"),
        (f"/v2/scrape/{uuid.UUID(int=1)}/interact", {"code": "1", "timout": 3}, "timout", "timeout"),
        ("/v2/crawl", {"url": A, "webhook": {"url": "https://x.test", "metdata": {}}}, "metdata", "metadata"),
        (
            "/v2/batch/scrape",
            {"urls": [A], "actions": [{"type": "wait", "selectr": "a"}]},
            "selectr",
            "selector",
        ),
        ("/v2/scrape", {"url": A, "location": {"countri": "DE"}}, "countri", "country"),
    ],
)
def test_every_operation_refuses_unknown_options(
    bench: Any, path: str, body: dict[str, Any], option: str, nearest: str
) -> None:
    """Before it says what is not set up: a test without a language model finds the typo as well."""
    refused = bench.http.post(path, json=body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"].startswith(f"{option!r} is not an option ")
    assert f"Did you mean `{nearest}`?" in refused.json()["error"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v2/team/activity?endpiont=crawl", "'endpiont' is not an option here. Did you mean `endpoint`?"),
        ("/v2/browser?state=active", "'state' is not an option here. Did you mean `status`?"),
        (f"/v2/crawl/{uuid.UUID(int=1)}?skpi=1", "'skpi' is not an option here. Did you mean `skip`?"),
        (f"/v2/batch/scrape/{uuid.UUID(int=1)}?limits=1", "'limits' is not an option here. Did you mean `limit`?"),
        ("/v2/team/queue-status?x=1", "'x' is not an option here: this address takes no query."),
    ],
)
def test_a_query_is_validated_against_the_contract(bench: Any, path: str, says: str) -> None:
    refused = bench.http.get(path)
    assert (refused.status_code, refused.json()["error"]) == (400, says)


def test_a_form_is_validated_against_the_contract(bench: Any) -> None:
    form = {"option": '{"onlyMainContent": false}'}
    refused = bench.http.post("/v2/parse", files={"file": ("a.html", b"<p>x</p>")}, data=form)
    assert refused.status_code == 400
    assert "'option' is not a part of this form: it has `file` and `options`." in refused.json()["error"]


def test_the_options_of_the_public_sdk_are_accepted(bench: Any) -> None:
    assert bench.http.post("/v2/scrape", json={"url": A, "origin": "sdk", "integration": None}).status_code == 200


def test_a_body_that_is_too_large_is_refused(make_bench: Any) -> None:
    bench = make_bench(max_body=1000)
    big = {"urls": ["http://site.test/" + "x" * 2000]}
    assert bench.http.post("/v2/batch/scrape", json=big).status_code == 413
    assert bench.http.post("/v2/batch/scrape", content=iter([b"x" * 600, b"x" * 600])).status_code == 413


def test_a_scrape_is_returned_stored_and_billed(bench: Any) -> None:
    reply = bench.http.post("/v2/scrape", json={"url": A}).json()
    metadata = reply["data"]["metadata"]
    assert (reply["success"], metadata["sourceURL"], metadata["scrapeId"]) == (True, A, reply["scrape_id"])
    assert bench.http.get(f"/v2/scrape/{reply['scrape_id']}").json()["data"] == reply["data"]
    (entry,) = bench.http.get("/v2/team/activity?endpoint=scrape").json()["data"]
    assert (entry["id"], entry["target"], entry["endpoint"]) == (reply["scrape_id"], A, "scrape")
    assert bench.http.get("/v2/team/credit-usage/historical").json()["periods"][0]["totalCredits"] == 1


def test_a_failed_scrape_has_a_status_and_code_and_is_free(bench: Any) -> None:
    bench.web.failures = {A: PageFailure("SCRAPE_TIMEOUT", "Too slow.", status=408), B: ZeroDivisionError("a defect")}
    reply = bench.http.post("/v2/scrape", json={"url": A})
    assert (reply.status_code, reply.json()) == (
        408,
        {"success": False, "error": "Too slow.", "code": "SCRAPE_TIMEOUT"},
    )
    defect = bench.http.post("/v2/scrape", json={"url": B})
    assert (defect.status_code, defect.json()["code"]) == (500, "UNKNOWN_ERROR")
    assert bench.http.get("/v2/team/credit-usage/historical").json()["periods"] == []


def test_private_targets_are_refused_unless_allowed(make_bench: Any) -> None:
    bench = make_bench(allow_private=False)
    for url in ("http://127.0.0.1/", "http://[::1]:80/", "http://localhost./", "http://2130706433/", "10.0.0.1"):
        for path in ("/v2/scrape", "/v2/crawl", "/v2/map"):
            reply = bench.http.post(path, json={"url": url})
            assert (reply.status_code, reply.json()["code"]) == (403, "unsafe_domain_blocked"), url
    hook = bench.http.post("/v2/batch/scrape", json={"urls": [A], "webhook": "http://127.0.0.1:1/"})
    assert (hook.status_code, "webhook" in hook.json()["error"]) == (400, True)


def test_the_cache_serves_recent_pages(bench: Any) -> None:
    first = bench.http.post("/v2/scrape", json={"url": A}).json()["data"]
    second = bench.http.post("/v2/scrape", json={"url": A}).json()["data"]
    assert (first["metadata"]["cacheState"], second["metadata"]["cacheState"]) == ("miss", "hit")
    assert first["metadata"]["scrapeId"] != second["metadata"]["scrapeId"]
    assert first["markdown"] == second["markdown"]
    other = bench.http.post("/v2/scrape", json={"url": A, "onlyMainContent": False}).json()["data"]
    assert other["metadata"]["cacheState"] == "hit"
    headers = bench.http.post("/v2/scrape", json={"url": A, "headers": {"Cookie": "a=b"}}).json()["data"]
    assert headers["metadata"]["cacheState"] == "miss"
    bench.service.advance(172_800 + 1)
    assert bench.http.post("/v2/scrape", json={"url": A}).json()["data"]["metadata"]["cacheState"] == "miss"
    assert bench.web.asked.count(A) == 3


def test_error_pages_and_pages_without_store_in_cache_are_not_cached(bench: Any) -> None:
    bench.web.statuses[A] = 500
    for body in ({"url": A}, {"url": B, "storeInCache": False}):
        for _ in range(2):
            assert bench.http.post("/v2/scrape", json=body).json()["data"]["metadata"]["cacheState"] == "miss"


def test_min_age_reads_only_the_cache(bench: Any) -> None:
    reply = bench.http.post("/v2/scrape", json={"url": A, "minAge": 1})
    assert (reply.status_code, reply.json()["code"]) == (404, "SCRAPE_NO_CACHED_DATA")
    bench.http.post("/v2/scrape", json={"url": A})
    assert bench.http.post("/v2/scrape", json={"url": A, "minAge": 60_000}).status_code == 404
    bench.service.advance(61)
    assert bench.http.post("/v2/scrape", json={"url": A, "minAge": 60_000}).status_code == 200
    assert bench.web.asked == [A]


def test_lockdown_reads_the_cache_stores_nothing_and_has_its_own_price(bench: Any) -> None:
    miss = bench.http.post("/v2/scrape", json={"url": A, "lockdown": True})
    assert (miss.status_code, miss.json()["code"]) == (404, "SCRAPE_LOCKDOWN_CACHE_MISS")
    assert A not in miss.text
    bench.http.post("/v2/scrape", json={"url": A})
    bench.service.advance(30 * 24 * 3600)
    hit = bench.http.post("/v2/scrape", json={"url": A, "lockdown": True}).json()
    assert hit["data"]["metadata"]["cacheState"] == "hit"
    assert bench.http.get(f"/v2/scrape/{hit['scrape_id']}").status_code == 404
    assert bench.http.get("/v2/team/activity").json()["data"][0]["target"] is None
    used = sum(
        period["totalCredits"] for period in bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    )
    assert used == 1 + 1 + 5
    assert bench.web.asked == [A]


FEATURES = [
    ({"formats": ["screenshot"]}, "weblake[browser]"),
    ({"formats": ["summary"]}, "weblake[llm]"),
    ({"formats": [{"type": "json", "prompt": "x"}]}, "weblake[llm]"),
    ({"formats": ["markdown", {"type": "changeTracking", "modes": ["git-diff", "json"]}]}, "weblake[llm]"),
    ({"actions": [{"type": "wait", "milliseconds": 1}]}, "weblake[browser]"),
    ({"waitFor": 5}, "weblake[browser]"),
    ({"mobile": True}, "weblake[browser]"),
    ({"profile": {"name": "p"}}, "weblake[browser]"),
    ({"proxy": "enhanced"}, "proxy"),
]


@pytest.mark.parametrize(("options", "needs"), FEATURES)
def test_missing_browser_and_language_model_are_named_at_the_start(
    bench: Any, options: Any, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBLAKE_CHROMIUM", "/nowhere/chromium")
    for path, body in (
        ("/v2/scrape", {"url": A, **options}),
        ("/v2/batch/scrape", {"urls": [A], **options}),
        ("/v2/crawl", {"url": A, "scrapeOptions": options}),
    ):
        reply = bench.http.post(path, json=body)
        assert (reply.status_code, reply.json()["code"]) == (503, "FEATURE_NOT_CONFIGURED")
        assert needs in reply.json()["error"]
    assert bench.web.asked == []


def test_explicit_default_values_are_accepted(bench: Any) -> None:
    body = {"url": A, "waitFor": 0, "mobile": False, "actions": [], "proxy": "auto", "location": {"country": "US"}}
    body |= {"formats": ["markdown", {"type": "links"}], "blockAds": True, "parsers": ["pdf"], "redactPII": False}
    assert bench.http.post("/v2/scrape", json=body).status_code == 200


def test_cleaning_by_a_model_is_skipped_with_a_warning(bench: Any) -> None:
    data = bench.http.post("/v2/scrape", json={"url": A, "onlyCleanContent": True}).json()["data"]
    assert "onlyCleanContent" in data["warning"]


def test_unknown_paths_and_methods_are_refused(bench: Any) -> None:
    for method, path, status in (("GET", "/v2/nothing", 404), ("PUT", "/v2/crawl", 405), ("GET", "/v2/scrape", 405)):
        reply = bench.http.request(method, path)
        assert (reply.status_code, reply.json()["success"]) == (status, False)


HOME = "http://www.site.test/"


def test_a_map_lists_urls_of_sitemap_and_links_once(bench: Any) -> None:
    bench.web.sitemaps[HOME] = ["http://www.site.test/a?x=1", "http://docs.site.test/guide", "http://other.test/"]
    bench.web.links[HOME] = ["http://www.site.test/a?x=2", "http://site.test/pricing#top", "mailto:a@site.test"]

    def found(**options: object) -> list[str]:
        reply = bench.http.post("/v2/map", json={"url": HOME, **options}).json()
        return [link["url"] for link in reply["links"]]

    everything = [HOME, "http://www.site.test/a", "http://docs.site.test/guide", "http://site.test/pricing"]
    assert found() == everything
    assert found(includeSubdomains=False) == [everything[0], everything[1], everything[3]]
    assert found(limit=2) == everything[:2]
    assert found(sitemap="skip") == [everything[0], everything[1], everything[3]]
    assert found(sitemap="only") == everything[1:3]
    assert found(search="pricing")[0] == everything[3]
    assert len(found(search="pricing")) == 4
    assert len(found(ignoreQueryParameters=False)) == 5
    first = bench.http.post("/v2/map", json={"url": HOME}).json()["links"][0]
    assert first["title"] == f"Title of {HOME}"


def test_a_map_that_times_out_or_finds_nothing_is_reported(bench: Any) -> None:
    bench.web.held.add(HOME)
    slow = bench.http.post("/v2/map", json={"url": HOME, "timeout": 20})
    assert (slow.status_code, slow.json()["code"]) == (408, "MAP_TIMEOUT")
    bench.web.held.clear()
    bench.web.failures[HOME] = PageFailure("SCRAPE_DNS_RESOLUTION_ERROR", "No such host.")
    assert bench.http.post("/v2/map", json={"url": HOME}).json()["code"] == "SCRAPE_DNS_RESOLUTION_ERROR"
    bench.web.sitemaps[HOME] = [f"{HOME}x"]
    assert [one["url"] for one in bench.http.post("/v2/map", json={"url": HOME}).json()["links"]] == [f"{HOME}x"]


def test_activity_is_paginated_filtered_and_expires_after_a_day(bench: Any) -> None:
    ids = [bench.http.post("/v2/scrape", json={"url": f"http://site.test/{n}"}).json()["scrape_id"] for n in range(5)]
    batch = bench.batch(A, B)
    seen, cursor = [], None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = bench.http.get("/v2/team/activity", params=query).json()
        assert len(page["data"]) <= 2
        assert page["has_more"] == (page["cursor"] is not None)
        seen += [entry["id"] for entry in page["data"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == [batch, *reversed(ids)]
    (entry,) = bench.http.get("/v2/team/activity?endpoint=batch_scrape").json()["data"]
    assert (entry["target"], entry["api_version"]) == (A, "v2")
    for bad in ("limit=0", "limit=101", "endpoint=x", "cursor=x", "cursor=%00", "limit=1.5"):
        assert bench.http.get(f"/v2/team/activity?{bad}").status_code == 400, bad
    bench.service.advance(24 * 3600 + 1)
    assert bench.http.get("/v2/team/activity").json()["data"] == []


def test_usage_is_reported_by_month_and_by_key(make_bench: Any) -> None:
    bench = make_bench(keys={"etl": "test-key-1", "adhoc": "test-key-2"})
    other = {"Authorization": "Bearer test-key-2"}
    bench.ended(bench.batch(A, B))
    bench.http.post("/v2/scrape", json={"url": A}, headers=other)
    (period,) = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    assert period["totalCredits"] == 3
    assert "apiKey" not in period
    now = datetime.now(timezone.utc)
    assert period["startDate"] == f"{now:%Y-%m}-01T00:00:00.000Z"
    assert period["endDate"] > f"{now:%Y-%m}-27T23:59:59.999Z"
    for spelling in ("True", "1", "TRUE", ""):
        assert len(bench.http.get(f"/v2/team/credit-usage/historical?byApiKey={spelling}").json()["periods"]) == 1
    split = bench.http.get("/v2/team/token-usage/historical?byApiKey=true").json()["periods"]
    assert {one["apiKey"]: one["totalTokens"] for one in split} == {"etl": 30, "adhoc": 15}
    bench.service.advance(32 * 24 * 3600)
    bench.http.post("/v2/scrape", json={"url": A, "maxAge": 0})
    months = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    assert [month["totalCredits"] for month in months] == [3, 1]
    assert months[0]["startDate"] < months[1]["startDate"]


def test_two_teams_do_not_see_each_other(make_bench: Any) -> None:
    keys = [ServiceKey("test-key-1", "one", "red"), ServiceKey("test-key-2", "two", "blue")]
    bench = make_bench(keys=keys)
    blue = {"Authorization": "Bearer test-key-2"}
    job = bench.batch(A)
    scrape_id = bench.ended(job)["data"][0]["metadata"]["scrapeId"]
    for path in (f"/v2/batch/scrape/{job}", f"/v2/scrape/{scrape_id}"):
        assert bench.http.get(path, headers=blue).status_code == 404
    assert bench.http.get(f"/v2/batch/scrape/{job}/errors", headers=blue).status_code == 403
    assert bench.http.delete(f"/v2/batch/scrape/{job}", headers=blue).status_code == 403
    assert bench.http.get("/v2/team/activity", headers=blue).json()["data"] == []
    assert bench.http.get("/v2/team/credit-usage/historical", headers=blue).json()["periods"] == []


def test_a_scrape_without_enough_credits_is_refused(make_bench: Any) -> None:
    bench = make_bench(plan_credits=3)
    bench.web.held.add("*")
    assert bench.http.post("/v2/batch/scrape", json={"urls": [A] * 4}).status_code == 402
    assert bench.http.post("/v2/crawl", json={"url": A}).status_code == 402
    job = bench.crawl(A, limit=2)
    both = bench.http.post("/v2/batch/scrape", json={"urls": [A, B]})
    assert (both.status_code, both.json()["success"]) == (402, False)
    bench.web.held.clear()
    bench.ended(job, "crawl")
    assert bench.http.get("/v2/team/credit-usage").json()["data"]["remainingCredits"] == 2
    assert bench.http.get("/v2/team/token-usage").json()["data"]["planTokens"] == 45
    bench.ended(bench.batch(A, B))
    assert bench.http.post("/v2/scrape", json={"url": A}).status_code == 402
    assert bench.http.get("/v2/team/activity").json()["data"][0]["endpoint"] == "batch_scrape"


def test_the_rate_limit_sends_retry_after(make_bench: Any) -> None:
    bench = make_bench(requests_per_minute=2)
    for _ in range(2):
        assert bench.http.post("/v2/scrape", json={"url": A}).status_code == 200
    reply = bench.http.post("/v2/batch/scrape", json={"urls": [A]})
    wait = int(reply.headers["retry-after"])
    assert reply.status_code == 429
    assert 55 <= wait <= 60
    assert f"retry after {wait}s" in reply.json()["error"]
    assert bench.http.get("/v2/crawl/active").status_code == 200
    bench.service.advance(wait)
    assert bench.http.post("/v2/scrape", json={"url": A}).status_code == 200


def test_a_full_queue_is_refused(make_bench: Any) -> None:
    bench = make_bench(max_queued_pages=3)
    bench.web.held.add("*")
    bench.batch(A, B)
    reply = bench.http.post("/v2/batch/scrape", json={"urls": [A, B]})
    assert (reply.status_code, "retry-after" in reply.headers) == (429, True)


def test_concurrent_scrapes_are_queued_and_report_it(make_bench: Any) -> None:
    bench = make_bench(concurrency=1)
    bench.web.held.add(A)
    got: list[Any] = []

    def ask(url: str) -> None:
        headers = {"Authorization": "Bearer test-key"}
        with httpx.Client(base_url=bench.service.url, headers=headers, trust_env=False, timeout=20) as client:
            got.append(client.post("/v2/scrape", json={"url": url}).json()["data"]["metadata"])

    first = threading.Thread(target=ask, args=(A,))
    first.start()
    bench.until(lambda: bench.web.flying)
    second = threading.Thread(target=ask, args=(B,))
    second.start()
    bench.until(lambda: len(bench.service.requests()) == 2)
    bench.web.held.clear()
    first.join()
    second.join()
    limited = {one["sourceURL"]: one["concurrencyLimited"] for one in got}
    assert limited == {A: False, B: True}


def test_the_admin_routes_report_and_reset_the_service(bench: Any) -> None:
    nobody = httpx.Client(base_url=bench.service.url, trust_env=False)
    assert nobody.get("/_weblake/health").json()["status"] == "ok"
    for path in ("requests", "counts", "faults"):
        assert nobody.get(f"/_weblake/{path}").status_code == 401
    nobody.close()
    key = "0e7c7d9e-2f3f-4cf0-8a52-6a3b8f2f9f11"
    bench.http.post("/v2/scrape", json={"url": A}, headers={"x-idempotency-key": key})
    (entry,) = bench.http.get("/_weblake/requests").json()["requests"]
    assert (entry["method"], entry["path"], entry["status"]) == ("POST", "/v2/scrape", 200)
    assert entry["idempotencyKey"] == key
    assert "test-key" not in str(entry)
    assert bench.http.get("/_weblake/counts").json()["counts"] == {"pages_billed": 1, "scrape_started": 1}
    before = bench.http.get("/_weblake/health").json()["now"]
    assert bench.http.post("/_weblake/clock/advance", json={"seconds": 3600}).json()["now"] > before
    for bad in ({"seconds": -1}, {"seconds": "x"}, {}):
        assert bench.http.post("/_weblake/clock/advance", json=bad).status_code == 400
    job = bench.batch(A)
    assert bench.http.post("/_weblake/reset").json() == {"success": True}
    assert bench.http.get(f"/v2/batch/scrape/{job}").status_code == 404
    assert bench.http.get("/_weblake/counts").json()["counts"] == {}
    assert abs(read_time(bench.http.get("/_weblake/health").json()["now"]).timestamp() - _now()) < 60


def _now() -> float:
    return datetime.now(timezone.utc).timestamp()


def test_a_reset_stops_running_jobs(bench: Any) -> None:
    bench.web.held.add("*")
    bench.batch(A, B)
    bench.until(lambda: bench.web.flying == 2)
    bench.service.reset()
    bench.until(lambda: bench.web.flying == 0)
    bench.web.held.clear()
    assert bench.http.get("/_weblake/counts").json()["counts"] == {}
    assert bench.ended(bench.batch(A))["completed"] == 1


def test_the_contract_is_served(bench: Any) -> None:
    packaged = files("weblake.api").joinpath("spec/service-api.openapi.yaml").read_bytes()
    assert bench.http.get("/openapi.yaml").content == packaged


def test_a_used_port_and_invalid_keys_are_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidOption, match="cannot listen"):
            LocalService(port=taken.getsockname()[1]).start()
    for bad in ("", "with space", "ümlaut", {"a": "test-key", "b": "test-key"}):
        with pytest.raises(InvalidOption):
            LocalService(keys=bad)


def test_the_database_is_used_by_one_service(make_bench: Any, tmp_path: Any) -> None:
    db = tmp_path / "deep" / "service.db"
    bench = make_bench(db)
    with pytest.raises(StorageRefused, match="already serves"):
        make_bench(db)
    bench.service.stop()
    make_bench(db)
