"""Authentication, validation, single scrapes, maps, reports and limits, over a real socket."""

from __future__ import annotations

import socket
import uuid
from datetime import datetime, timezone
from importlib.resources import files
from typing import Any

import pytest

from weblake.errors import InvalidOption
from weblake_service.page_failure import PageFailure
from weblake_service.server import LocalService

A, B = "http://site.test/a", "http://site.test/b"


def test_every_response_declares_idempotent_replay(bench: Any) -> None:
    replies = [bench.http.get("/v2/crawl/active"), bench.http.get("/v2/x"), bench.http.post("/v2/scrape", json={})]
    replies += [
        bench.http.get(path, headers={"Authorization": "Bearer wrong"}) for path in ("/v2/x", "/v2/team/activity")
    ]
    assert [reply.status_code for reply in replies] == [200, 404, 400, 401, 401]
    for reply in replies:
        assert reply.headers["weblake-idempotency"] == "replay"


def test_next_links_have_the_host_of_the_request(bench: Any) -> None:
    host = f"localhost:{bench.service.url.rpartition(':')[2]}"
    job = bench.batch(A, B)
    bench.wait_until_ended(job)
    link = bench.http.get(f"/v2/batch/scrape/{job}?limit=1", headers={"Host": host}).json()["next"]
    assert link.startswith(f"http://{host}/v2/batch/scrape/{job}?")


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"{", "BAD_REQUEST_INVALID_JSON"), (b"\xff", "BAD_REQUEST_INVALID_JSON"), (b"[]", "BAD_REQUEST")],
)
def test_bodies_that_are_not_json_objects_are_refused(bench: Any, content: bytes, code: str) -> None:
    for path in ("/v2/scrape", "/v2/batch/scrape", "/v2/crawl", "/v2/map"):
        reply = bench.http.post(path, content=content)
        assert (reply.status_code, reply.json()["code"]) == (400, code)


@pytest.mark.parametrize("path", ["/v2/scrape", "/v2/batch/scrape", "/v2/map", "/v2/search", "/v2/extract"])
def test_no_body_is_a_body_without_options(bench: Any, path: str) -> None:
    none, empty = bench.http.post(path), bench.http.post(path, json={})
    assert (none.status_code, none.json()) == (400, empty.json())


def test_invalid_options_are_named(bench: Any) -> None:
    reply = bench.http.post("/v2/scrape", json={"url": A, "timeout": 999})
    assert reply.status_code == 400
    assert "timeout" in reply.json()["details"][0]["message"]
    missing = bench.http.post("/v2/batch/scrape", json={})
    assert (missing.status_code, "urls" in missing.json()["error"]) == (400, True)
    assert bench.http.post("/v2/scrape", json={"url": "ftp://site.test/"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "option", "nearest"),
    [
        ("/v2/extract", {"urls": [A], "promt": "x"}, "promt", "prompt"),
        ("/v2/extract", {"urls": [A], "scrapeOptions": {"format": []}}, "format", "formats"),
        ("/v2/agent", {"prompt": "x", "maxCredit": 9}, "maxCredit", "maxCredits"),
        ("/v2/agent", {"prompt": "x", "webhook": {"url": "https://x.test", "event": []}}, "event", "events"),
        ("/v2/crawl/params-preview", {"url": A, "prompt": "x", "promt": "x"}, "promt", "prompt"),
        ("/v2/map", {"url": A, "serch": "x"}, "serch", "search"),
        ("/v2/search", {"query": "x", "scrapeOptions": {"format": []}}, "format", "formats"),
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
        ("/v2/scrape", {"url": A, "onlyMainContnt": False}, "onlyMainContnt", "onlyMainContent"),
    ],
)
def test_every_operation_refuses_unknown_options(
    bench: Any, path: str, body: dict[str, Any], option: str, nearest: str
) -> None:
    """Typos are reported before missing features, so that a test without a language model finds them as well."""
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
        ("/v2/team/credit-usage?byApiKey=true", "'byApiKey' is not an option here: this address takes no query."),
        *(
            (f"/v2/team/{report}-usage/historical?{query}", says)
            for report in ("credit", "token")
            for query, says in (
                ("byKey=true", "'byKey' is not an option here. Did you mean `byApiKey`?"),
                ("byApiKey=maybe", "byApiKey is 'maybe', not one of true, false, 1, 0, yes, no, on, off."),
                ("byApiKey=", "byApiKey is '', not one of true, false, 1, 0, yes, no, on, off."),
                ("byApiKey=true&byApiKey=false", "byApiKey is given more than once: give one value."),
            )
        ),
        ("/v2/team/activity?limit=1&limit=2", "limit is given more than once: give one value."),
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


def test_a_failed_scrape_has_a_status_and_code_and_is_free(bench: Any, caplog: pytest.LogCaptureFixture) -> None:
    bench.web.failures = {A: PageFailure("SCRAPE_TIMEOUT", "Too slow.", status=408)}
    reply = bench.http.post("/v2/scrape", json={"url": A})
    expected = {"success": False, "error": "Too slow.", "code": "SCRAPE_TIMEOUT"}
    assert (reply.status_code, reply.json()) == (408, expected)
    for error in (ZeroDivisionError("a defect"), RuntimeError("cannot schedule new futures after shutdown")):
        bench.web.failures[B] = error
        defect = bench.http.post("/v2/scrape", json={"url": B})
        assert (defect.status_code, defect.json()["code"]) == (500, "UNKNOWN_ERROR")
    # A request at the end of its process, as after Ctrl-C, is no defect.
    assert [record.getMessage() for record in caplog.records] == ["A request failed in an unforeseen way."]
    assert bench.http.get("/v2/team/credit-usage/historical").json()["periods"] == []


def test_cleaning_by_a_model_is_skipped_with_a_warning(bench: Any) -> None:
    data = bench.http.post("/v2/scrape", json={"url": A, "onlyCleanContent": True}).json()["data"]
    assert "onlyCleanContent" in data["warning"]


def test_unknown_paths_and_methods_are_refused(bench: Any) -> None:
    for method, path, status in (("GET", "/v2/nothing", 404), ("PUT", "/v2/crawl", 405), ("GET", "/v2/scrape", 405)):
        reply = bench.http.request(method, path)
        assert (reply.status_code, reply.json()["success"]) == (status, False)


HOME = "http://www.site.test/"


def test_usage_is_reported_by_month_and_by_key(make_bench: Any) -> None:
    bench = make_bench(keys={"etl": "test-key-1", "adhoc": "test-key-2"})
    other = {"Authorization": "Bearer test-key-2"}
    bench.wait_until_ended(bench.batch(A, B))
    bench.http.post("/v2/scrape", json={"url": A}, headers=other)
    (period,) = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    assert period["totalCredits"] == 3
    assert "apiKey" not in period
    now = datetime.now(timezone.utc)
    assert period["startDate"] == f"{now:%Y-%m}-01T00:00:00.000Z"
    assert period["endDate"] > f"{now:%Y-%m}-27T23:59:59.999Z"
    for report in ("credit", "token"):
        for count, spellings in ((1, "false False 0 no OFF"), (2, "true True TRUE 1 yes Yes on")):
            for spelling in spellings.split():
                reply = bench.http.get(f"/v2/team/{report}-usage/historical?byApiKey={spelling}")
                assert (reply.status_code, len(reply.json()["periods"])) == (200, count), spelling
    split = bench.http.get("/v2/team/token-usage/historical?byApiKey=true").json()["periods"]
    assert {one["apiKey"]: one["totalTokens"] for one in split} == {"etl": 30, "adhoc": 15}
    bench.service.advance(32 * 24 * 3600)
    bench.http.post("/v2/scrape", json={"url": A, "maxAge": 0})
    months = bench.http.get("/v2/team/credit-usage/historical").json()["periods"]
    assert [month["totalCredits"] for month in months] == [3, 1]
    assert months[0]["startDate"] < months[1]["startDate"]


def test_the_request_log_and_the_counts_are_returned(bench: Any) -> None:
    key = "0e7c7d9e-2f3f-4cf0-8a52-6a3b8f2f9f11"
    bench.http.post("/v2/scrape", json={"url": A}, headers={"x-idempotency-key": key})
    (entry,) = bench.http.get("/_weblake/requests").json()["requests"]
    assert (entry["method"], entry["path"], entry["status"]) == ("POST", "/v2/scrape", 200)
    assert entry["idempotencyKey"] == key
    assert "test-key" not in str(entry)
    assert bench.http.get("/_weblake/counts").json()["counts"] == {"pages_billed": 1, "scrape_started": 1}


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
