"""Interact: the page of a scrape is restored in a browser, used, and billed when it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import browser_lab
import httpx
import pytest
from browser_lab import BrowserLab
from polling import until
from session_lab import CLICKS, Sessions, wire

from weblake_service.config import ServiceConfig, ServiceKey
from weblake_service.server import LocalService
from weblake_service.sessions import session_records

NOBODY = "1b671a64-40d5-491e-99b0-da01ff1f3341"


@pytest.fixture(scope="module")
def lab() -> Iterator[BrowserLab]:
    config = ServiceConfig(max_browser_sessions=2, zero_data_retention=True)
    for lab in browser_lab.open_lab(allow_code_execution=True, config=config):
        lab.site.page("/clicks", CLICKS)
        yield lab


@pytest.fixture
def red(lab: BrowserLab) -> Iterator[Sessions]:
    yield Sessions(lab)
    lab.service.reset()
    lab.site.requests.clear()


@pytest.mark.system
def test_calls_share_the_browser_with_the_page_of_the_scrape(red: Sessions) -> None:
    url = red.lab.site.url("/clicks")
    scrape = red.scrape(url, actions=[{"type": "click", "selector": "button"}])
    began = time.monotonic()
    first = red.interact(scrape, "await page.click('button'); [await page.title(), page.url()]")
    assert (first["success"], first["result"]) == (True, f'["clicked 2","{url}"]')
    assert set(first) == {
        "success", "cdpUrl", "liveViewUrl", "interactiveLiveViewUrl", "stdout", "stderr", "exitCode", "killed",
        "error", "result",
    }  # fmt: skip
    # Nothing is loaded again.
    asked = len(red.lab.requests_for("/clicks"))
    again = red.interact(scrape, "print(await page.title())\nawait page.title()", language="python")
    assert (again["stdout"], again["result"], again["cdpUrl"]) == ("clicked 2\n", "clicked 2", first["cdpUrl"])
    assert len(red.lab.requests_for("/clicks")) == asked
    with wire(first["cdpUrl"]) as client:
        assert client.title(client.page()) == "clicked 2"
    # A tab that a page opens stays: the rule of the scrape about tabs does not apply here.
    assert red.interact(scrape, f"await page.evaluate(() => {{ window.open('{url}') }}); 1")["exitCode"] == 0
    count = "context.pages().length"
    until(lambda: red.interact(scrape, count)["result"] == "2")
    red.lab.service.advance(100)
    before = red.credits_used()
    stopped = red.stop(scrape)
    lasted = stopped["sessionDurationMs"] / 1000
    assert stopped["creditsBilled"] == red.credits_used() - before == session_records.price(lasted)
    assert 100 <= lasted <= 100 + time.monotonic() - began
    # Stopped, it exists no more; and it is not restarted.
    assert red.call("DELETE", f"/v2/scrape/{scrape}/interact").status_code == 404
    assert red.credits_used() - before == stopped["creditsBilled"]
    gone = red.call("POST", f"/v2/scrape/{scrape}/interact", {"code": "1"})
    assert (gone.status_code, gone.json()["code"]) == (410, "SESSION_DESTROYED")
    assert [one["target"] for one in red.ok("GET", "/v2/team/activity?endpoint=interact")["data"]] == [url]
    # It is not a session of POST /v2/browser.
    assert red.listed() == []


@pytest.mark.system
def test_the_browser_uses_the_options_of_the_scrape(red: Sessions) -> None:
    body = b"<title>Mine</title><main id=m></main><script>m.textContent = screen.width + navigator.userAgent</script>"
    red.lab.site.page("/mine", body)
    scrape = red.scrape(
        red.lab.site.url("/mine"),
        mobile=True,
        headers={"X-Mine": "yes", "Cookie": "who=me"},
        location={"languages": ["de"]},
    )
    found = red.interact(scrape, "[await page.evaluate('screen.width'), await page.evaluate('document.cookie')]")
    assert found["result"] == '[390,"who=me"]', found
    agent = red.interact(scrape, "await page.evaluate('navigator.userAgent + navigator.language')")["result"]
    assert "Mobile" in agent
    assert agent.endswith("de")
    seen = red.lab.requests_for("/mine")[-1]
    assert (seen["x-mine"], seen["accept-language"].partition(",")[0]) == ("yes", "de")
    red.stop(scrape)


@pytest.mark.system
def test_pages_of_batches_and_crawls_can_be_interacted_with(red: Sessions) -> None:
    red.lab.site.page("/start", b"<title>One</title><main><a href=/clicks>Clicks</a></main>")
    started = red.ok("POST", "/v2/batch/scrape", {"urls": [red.lab.site.url("/clicks")], "mobile": True})
    batch = until(lambda: _done(red, f"/v2/batch/scrape/{started['id']}"))
    scrape = batch["data"][0]["metadata"]["scrapeId"]
    assert red.interact(scrape, "await page.evaluate('screen.width') + await page.title()")["result"] == "390Start"
    started = red.ok("POST", "/v2/crawl", {"url": red.lab.site.url("/start"), "limit": 1})
    crawl = until(lambda: _done(red, f"/v2/crawl/{started['id']}"))
    assert red.interact(crawl["data"][0]["metadata"]["scrapeId"], "await page.title()")["result"] == "One"


def _done(red: Sessions, path: str) -> dict[str, Any] | None:
    found = red.ok("GET", path)
    return found if found["status"] == "completed" else None


@pytest.mark.system
def test_refusals_conform_to_the_contract(red: Sessions) -> None:
    blue = Sessions(red.lab, "blue-key")
    scrape = red.scrape(red.lab.site.url("/clicks"))

    def refused(team: Sessions, method: str, scrape_id: str, **body: object) -> tuple[int, str | None]:
        reply = team.call(method, f"/v2/scrape/{scrape_id}/interact", body or None)
        return reply.status_code, reply.json().get("code")

    assert refused(red, "POST", NOBODY, code="1") == (404, None)
    assert refused(red, "DELETE", NOBODY) == (404, None)
    assert refused(red, "DELETE", scrape) == (404, None)
    assert refused(red, "POST", "nonsense", code="1")[0] == 400
    assert refused(blue, "POST", scrape, code="1") == (403, "FORBIDDEN")
    for body in (
        {},
        {"code": "1", "prompt": "x"},
        {"code": ""},
        {"code": "1", "timeout": 0.5},
        {"prompt": "x" * 10_001},
    ):
        assert refused(red, "POST", scrape, **body)[0] == 400, body
    prompted = red.call("POST", f"/v2/scrape/{scrape}/interact", {"prompt": "Say hello"})
    assert prompted.status_code == 503
    assert "WEBLAKE_LLM_BASE_URL" in prompted.json()["error"]
    assert red.interact(scrape, "1")["result"] == "1"
    assert refused(blue, "DELETE", scrape) == (403, "FORBIDDEN")
    # There is no page to restore.
    nothing_kept = red.scrape(red.lab.site.url("/clicks"), zeroDataRetention=True)
    red.lab.site.page("/file.pdf", b"%PDF-1.4 nonsense", content_type="application/pdf")
    failed = red.call("POST", "/v2/scrape", {"url": "http://127.0.0.1:9/", "maxAge": 0})
    assert failed.status_code == 500
    failed_id = red.ok("GET", "/v2/team/activity?limit=1")["data"][0]["id"]
    red.lab.site.page("/gone", b"<title>There</title>")
    went = red.scrape(red.lab.site.url("/gone"))
    red.lab.site.pages["/gone"] = lambda handler: handler.wfile.write(b"nonsense\r\n\r\n")
    for scrape_id in (nothing_kept, failed_id, went):
        status, code = refused(red, "POST", scrape_id, code="1")
        assert (status, code) == (409, "REPLAY_CONTEXT_UNAVAILABLE"), scrape_id
    # A page that could not be restored left no browser and cost nothing; the slot is free.
    other = red.scrape(red.lab.site.url("/clicks"))
    assert red.interact(other, "1")["result"] == "1"
    third = red.scrape(red.lab.site.url("/clicks"))
    assert refused(red, "POST", third, code="1") == (429, "SESSION_LIMIT_REACHED")
    red.stop(other)
    assert red.interact(third, "1")["result"] == "1"
    # A day later the scrape has expired.
    red.lab.service.advance(90_000)
    assert refused(red, "POST", third, code="1") == (404, None)


@pytest.mark.system
def test_a_session_without_credits_is_refused(lab: BrowserLab) -> None:
    keys = [ServiceKey("red-key", "one", "red")]
    poor = LocalService(keys=keys, allow_private=True, allow_code_execution=True, config=ServiceConfig(plan_credits=2))
    with poor, httpx.Client(base_url=poor.url, timeout=240, trust_env=False, verify=False) as http:
        sessions = Sessions(BrowserLab(poor, lab.site, http))
        scrape = sessions.scrape(lab.site.url("/clicks"))
        reply = sessions.call("POST", f"/v2/scrape/{scrape}/interact", {"code": "1"})
        assert (reply.status_code, reply.json()["code"]) == (402, "INSUFFICIENT_CREDITS")


@pytest.mark.system
def test_first_calls_at_the_same_time_share_one_browser(red: Sessions) -> None:
    scrape = red.scrape(red.lab.site.url("/clicks"))
    found: list[dict[str, Any]] = []
    asking = [threading.Thread(target=lambda: found.append(red.interact(scrape, "page.url()"))) for _ in range(3)]
    for one in asking:
        one.start()
    for one in asking:
        one.join(120)
    assert len({one["cdpUrl"] for one in found}) == 1
    assert len(found) == 3


@pytest.mark.system
def test_dialogs_are_left_to_the_session_user(red: Sessions) -> None:
    red.lab.site.page("/ask", b"<title>Ask</title><button onclick=\"document.title = prompt('Who?')\">Ask</button>")
    scrape = red.scrape(red.lab.site.url("/ask"))
    code = "page.on('dialog', dialog => dialog.accept('me')); await page.click('button'); await page.title()"
    assert red.interact(scrape, code)["result"] == "me"


@pytest.mark.system
def test_the_profile_is_saved_when_the_session_is_stopped(red: Sessions) -> None:
    red.lab.site.page("/cart", b"<main id=m></main><script>m.textContent = 'cart: ' + localStorage.cart</script>")
    url = red.lab.site.url("/cart")
    scrape = red.scrape(url, profile={"name": "shop"})
    assert red.interact(scrape, "await page.evaluate(() => { localStorage.cart = 'full' }); 1")["exitCode"] == 0
    red.stop(scrape)
    assert red.lab.scrape(url, profile={"name": "shop"}, maxAge=0)["markdown"] == "cart: full"
