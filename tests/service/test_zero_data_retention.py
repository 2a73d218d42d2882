"""Lockdown and zero data retention: nothing of these scrapes is stored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scrape_lab
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

site, open_lab = scrape_lab.site, scrape_lab.open_lab
lab, lab_service = scrape_lab.lab, scrape_lab.lab_service


def traces(folder: Path, *secrets: str) -> list[str]:
    """Return the files that contain one of the secrets, plain or as JSON or a URL would encode it."""
    found = []
    for file in folder.rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        found += [file.name for secret in secrets if secret.encode() in data]
    return found


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=8, max_size=20), st.booleans())
def test_a_lockdown_miss_leaves_no_trace_of_the_url(
    open_lab: Callable[..., Any],
    tmp_path_factory: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    word: str,
    with_key: bool,
) -> None:
    secret = f"zq{word}"
    folder = tmp_path_factory.mktemp("private")
    lab = open_lab(folder / "service.db")
    url = f"http://{secret}.test/{secret}?q={secret}"
    caplog.set_level(logging.DEBUG)
    headers = {"x-idempotency-key": "0d4c6e2e-6f43-4b0e-9f0a-5e8e9f2f1a11"} if with_key else {}
    body = {"url": url, "lockdown": True, "formats": ["markdown", "changeTracking"]}
    miss = lab.http.post("/v2/scrape", json=body, headers=headers)
    assert (miss.status_code, miss.json()["code"]) == (404, "SCRAPE_LOCKDOWN_CACHE_MISS")
    told = [lab.http.get(path).text for path in ("/v2/team/activity", "/_weblake/requests", "/_weblake/counts")]
    assert lab.credits() == 1
    assert lab.site.requests == []
    assert traces(folder, secret) == []
    lab.service.stop()
    assert traces(folder, secret) == []
    captured = capfd.readouterr()
    for text in (miss.text, *told, caplog.text, captured.out, captured.err):
        assert secret not in text


def test_a_lockdown_hit_costs_five_credits_and_stores_nothing(open_lab: Callable[..., Any], tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "service.db")
    url = lab.site.page("/p", b"<main>One</main>")
    lab.scrape(url)
    lab.service.advance(365 * 24 * 3600)
    reply = lab.post(url, lockdown=True, formats=["markdown", "html", "changeTracking"]).json()
    assert (reply["data"]["markdown"], reply["data"]["metadata"]["cacheState"]) == ("One", "hit")
    assert reply["data"]["metadata"]["creditsUsed"] == 5
    assert "changeTracking" not in reply["data"]
    assert "not tracked" in reply["data"]["warning"]
    assert lab.http.get(f"/v2/scrape/{reply['scrape_id']}").status_code == 404
    assert lab.http.get("/v2/team/activity").json()["data"][0]["target"] is None
    assert lab.credits() == 6
    assert lab.fetch_count("/p") == 1
    lab.service.advance(366 * 24 * 3600)
    assert lab.post(url, lockdown=True).status_code == 404, "two years are the default"
    assert lab.post(url, lockdown=True, maxAge=10**12).status_code == 200


def test_zero_data_retention_must_be_enabled(lab: Any) -> None:
    url = lab.site.page("/p", b"<main>One</main>")
    for path, body in (
        ("/v2/scrape", {"url": url}),
        ("/v2/batch/scrape", {"urls": [url]}),
        ("/v2/crawl", {"url": url}),
    ):
        reply = lab.http.post(path, json={**body, "zeroDataRetention": True})
        assert (reply.status_code, reply.json()["code"]) == (403, "ZDR_NOT_ENABLED"), path
    assert lab.site.requests == []
    assert lab.credits() == 0


@pytest.mark.parametrize("kept", [False, True])
def test_zero_data_retention_does_not_change_the_price(
    open_lab: Callable[..., Any], tmp_path: Path, kept: bool
) -> None:
    lab = open_lab(tmp_path / "service.db", zero_data_retention=True)
    url = lab.site.page("/zqpage", b"<title>zqtitle</title><main>zqtext</main>")
    options = {} if kept else {"zeroDataRetention": True}
    headers = {"x-idempotency-key": "0d4c6e2e-6f43-4b0e-9f0a-5e8e9f2f1a11"}
    body = {"url": url, "formats": ["markdown", "changeTracking"], **options}
    reply = lab.http.post("/v2/scrape", json=body, headers=headers).json()
    assert reply["data"]["markdown"] == "zqtext"
    assert lab.http.get(f"/v2/scrape/{reply['scrape_id']}").status_code == (200 if kept else 404)
    assert lab.post(url, minAge=1).status_code == (200 if kept else 404)
    (*_, entry) = lab.http.get("/v2/team/activity").json()["data"]
    assert (entry["id"], entry["target"]) == (reply["scrape_id"], url if kept else None)
    lab.service.stop()
    if kept:
        # Control: the search finds what is stored.
        assert traces(tmp_path, "zqpage", "zqtext") != []
    else:
        assert reply["data"]["metadata"]["creditsUsed"] == 2
        assert "changeTracking" not in reply["data"]


def test_the_database_contains_nothing_of_a_page_without_retention(
    open_lab: Callable[..., Any], tmp_path: Path
) -> None:
    lab = open_lab(tmp_path / "service.db", zero_data_retention=True)
    url = lab.site.page("/zqpage", b"<title>zqtitle</title><main>zqtext</main>")
    assert lab.scrape(url, zeroDataRetention=True)["markdown"] == "zqtext"
    lab.site.page("/zqbroken", b"zqbytes\x00", content_type="video/mp4")
    assert lab.post(lab.site.url("/zqbroken"), zeroDataRetention=True).status_code == 500
    assert traces(tmp_path, "zqpage", "zqtitle", "zqtext", "zqbroken", "zqbytes") == []
    lab.service.stop()
    assert traces(tmp_path, "zqpage", "zqtitle", "zqtext", "zqbroken", "zqbytes") == []


@pytest.mark.parametrize(
    ("option", "status", "credits"), [("zeroDataRetention", 200, 2), ("lockdown", 404, 1)], ids=["hit", "lockdown miss"]
)
def test_a_repeat_of_a_scrape_of_which_nothing_was_kept_is_refused_and_not_billed_again(
    open_lab: Callable[..., Any], tmp_path: Path, option: str, status: int, credits: int
) -> None:
    lab = open_lab(tmp_path / "service.db", zero_data_retention=True)
    url = lab.site.page("/zqpage", b"<title>zqtitle</title><main>zqtext</main>")
    headers = {"x-idempotency-key": "0d4c6e2e-6f43-4b0e-9f0a-5e8e9f2f1a11"}

    def send() -> Any:
        return lab.http.post("/v2/scrape", json={"url": url, option: True}, headers=headers)

    assert (send().status_code, lab.credits()) == (status, credits)
    repeat = send()
    assert (repeat.status_code, repeat.json()["code"]) == (409, "IDEMPOTENCY_RESPONSE_NOT_KEPT")
    assert lab.credits() == credits
    assert traces(tmp_path, "zqpage", "zqtitle", "zqtext") == []
    lab.service.advance(24 * 3600)
    assert (send().status_code, lab.credits()) == (status, 2 * credits)


def test_a_search_of_which_nothing_was_kept_is_not_billed_again(open_lab: Callable[..., Any], tmp_path: Path) -> None:
    lab = open_lab(tmp_path / "service.db", zero_data_retention=True)
    lab.scrape(lab.site.page("/p", b"<title>Apples</title><main>Apples and pears</main>"))
    headers = {"x-idempotency-key": "0d4c6e2e-6f43-4b0e-9f0a-5e8e9f2f1a11"}
    body = {"query": "zqapples OR apples", "scrapeOptions": {"formats": ["markdown"], "lockdown": True}}
    first = lab.http.post("/v2/search", json=body, headers=headers)
    assert first.status_code == 200, first.text
    billed = lab.credits()
    assert billed > 1
    assert lab.http.post("/v2/search", json=body, headers=headers).status_code == 409
    assert lab.credits() == billed
    assert traces(tmp_path, "zqapples") == []


def test_a_free_failure_without_retention_may_be_repeated_with_its_key(open_lab: Callable[..., Any]) -> None:
    lab = open_lab(zero_data_retention=True)
    url = lab.site.page("/p", b"zq\x00", content_type="video/mp4")
    headers = {"x-idempotency-key": "0d4c6e2e-6f43-4b0e-9f0a-5e8e9f2f1a11"}
    body = {"url": url, "zeroDataRetention": True}
    assert [lab.http.post("/v2/scrape", json=body, headers=headers).status_code for _ in range(2)] == [500, 500]
    lab.site.page("/p", b"<main>One</main>")
    assert lab.http.post("/v2/scrape", json=body, headers=headers).status_code == 200
    assert lab.credits() == 2


def test_jobs_without_retention_store_no_page_and_no_url(open_lab: Callable[..., Any]) -> None:
    lab = open_lab(zero_data_retention=True)
    url = lab.site.page("/p", b"<main>One</main>")
    for path, body in (("/v2/batch/scrape", {"urls": [url]}), ("/v2/crawl", {"url": url, "sitemap": "skip"})):
        job = lab.http.post(path, json={**body, "zeroDataRetention": True}).json()["id"]
        status = lab.wait_until_ended(f"{path}/{job}")
        assert (status["completed"], status["creditsUsed"]) == (1, 2)
        assert lab.http.get("/v2/team/activity").json()["data"][0]["target"] is None
        assert lab.post(url, minAge=1).status_code == 404


def test_an_unexpected_error_of_a_private_scrape_does_not_log_its_url(
    open_lab: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from weblake_service.jobs import page_cache

    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("defect at http://zqsecret.test/")

    lab = open_lab()
    monkeypatch.setattr(page_cache, "find", broken)
    reply = lab.post("http://zqsecret.test/", lockdown=True)
    assert (reply.status_code, reply.json()["code"]) == (500, "UNKNOWN_ERROR")
    assert "RuntimeError" in caplog.text
    assert "zqsecret" not in caplog.text + reply.text
