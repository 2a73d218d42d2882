"""Missing, crashing and hanging browsers, killed services and failing sites leave no process and no file behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import browser_lab
import httpx
import pytest
from browser_lab import BrowserLab, children, command, picture, running
from polling import until

from weblake_service.browser import chromium
from weblake_service.config import ServiceConfig

pytestmark = pytest.mark.system


#: Browsers of other services in this process, which stop when they have been idle for two minutes.
_OTHERS = set[int]()


@pytest.fixture(scope="module")
def lab() -> Iterator[BrowserLab]:
    _OTHERS.update(browsers())
    # Two slots, so that a slot that is not released is noticed.
    for lab in browser_lab.open_lab(config=ServiceConfig(max_browser_pages=2)):
        lab.site.page("/fine", b"<title>Fine</title><main><h1>Fine</h1></main>")
        yield lab


def shot(lab: BrowserLab, path: str = "/fine", **options: object) -> httpx.Response:
    return lab.post(lab.site.url(path), formats=["screenshot"], maxAge=0, **options)


def browsers() -> set[int]:
    """Return the main processes of the browsers that this process started for the tests of this module."""
    return browser_lab.browsers() - _OTHERS


def test_a_page_that_never_ends_ends_at_its_timeout(lab: BrowserLab) -> None:
    lab.site.page("/endless", b"<title>x</title><script>while (true) {}</script>")
    lab.site.page("/later", b"<main>x</main><script>onload = () => setTimeout(() => { while (true) {} }, 300)</script>")
    lab.site.pages["/silent"] = lambda handler: lab.site.stop.wait(120)
    for path in ("/endless", "/later", "/silent"):
        began = time.monotonic()
        reply = shot(lab, path, timeout=1500, waitFor=700)
        assert (reply.status_code, reply.json()["code"]) == (408, "SCRAPE_TIMEOUT"), reply.text
        assert "1.5 s" in reply.json()["error"]
        assert time.monotonic() - began < 30
    lab.site.stop.set()
    assert shot(lab).status_code == 200


def test_a_killed_browser_is_restarted(lab: BrowserLab) -> None:
    assert shot(lab).status_code == 200
    (before,) = browsers()
    os.kill(before, signal.SIGKILL)
    assert picture(shot(lab).json()["data"]["screenshot"])[0] == "png"
    assert before not in running({before})
    # Killed with a page open: the page is loaded again.
    arrived, go = threading.Event(), threading.Event()

    def slow(handler: Any) -> None:
        arrived.set()
        go.wait(120)
        handler.reply(200, b"<main>slow</main>", {})

    lab.site.pages["/slow"] = slow
    replies: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: replies.append(shot(lab, "/slow")))
    asking.start()
    assert arrived.wait(120)
    (now,) = browsers()
    os.kill(now, signal.SIGKILL)
    go.set()
    asking.join(120)
    assert replies[0].status_code == 200, replies[0].text


def kill_renderers() -> set[int]:
    """Kill the processes of all pages, and return them."""
    (browser,) = browsers()
    renderers = {pid for pid in children(browser) if "--type=renderer" in command(pid)}
    for pid in renderers:
        with suppress(ProcessLookupError):  # that of an earlier page may just have ended
            os.kill(pid, signal.SIGKILL)
    return renderers


def test_a_page_that_crashes_fails_only_itself(lab: BrowserLab) -> None:
    arrived = threading.Event()

    def page(handler: Any) -> None:
        handler.reply(200, b"<main>x</main><img src=/held>", {})

    def held(handler: Any) -> None:
        arrived.set()
        lab.site.stop.wait(120)

    lab.site.stop.clear()
    lab.site.pages |= {"/crashing": page, "/held": held}
    until(lambda: not lab.service._parts.web._browsers._contexts._after)  # type: ignore[union-attr]
    replies: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: replies.append(shot(lab, "/crashing", waitFor=3000)))
    asking.start()
    assert arrived.wait(120)
    before = browsers()
    kill_renderers()
    asking.join(120)
    lab.site.stop.set()
    assert (replies[0].status_code, replies[0].json()["code"]) == (500, "SCRAPE_SITE_ERROR"), replies[0].text
    assert "crashed" in replies[0].json()["error"]
    assert (reply := shot(lab)).status_code == 200, reply.text
    assert browsers() == before


def test_a_load_that_the_browser_aborts_is_repeated(lab: BrowserLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chromium aborts a load that it gives to a process which has just ended, before it notices the end."""
    from playwright.async_api import Error, Page

    loads, load = list[str](), Page.goto

    async def aborted_once(page: Page, url: str, **options: Any) -> Any:
        loads.append(url)
        if len(loads) == 1:
            raise Error(f"Page.goto: net::ERR_ABORTED at {url}")
        return await load(page, url, **options)

    monkeypatch.setattr(Page, "goto", aborted_once)
    assert (reply := shot(lab)).status_code == 200, reply.text
    assert len(loads) == 2


def test_an_unreachable_site_differs_from_a_broken_response(lab: BrowserLab) -> None:
    gone = lab.post("http://nobody.invalid/", formats=["screenshot"])
    assert (gone.status_code, gone.json()["code"]) == (500, "SCRAPE_DNS_RESOLUTION_ERROR"), gone.text
    down = lab.post("http://127.0.0.1:9/", formats=["screenshot"])
    assert (down.status_code, down.json()["code"]) == (500, "SCRAPE_SITE_ERROR")
    assert "127.0.0.1" in down.json()["error"]
    lab.site.pages["/broken"] = lambda handler: handler.wfile.write(b"nonsense\r\n\r\n")
    assert shot(lab, "/broken").json()["code"] == "SCRAPE_SITE_ERROR"


def test_a_page_that_loads_too_much_is_aborted(lab: BrowserLab, monkeypatch: pytest.MonkeyPatch) -> None:
    from weblake_service.browser import scrape_browser

    monkeypatch.setattr(scrape_browser, "_MAX_BYTES", 100_000)
    lab.site.page("/large", b"<main>x</main><img src=/much>")
    lab.site.page("/much", b"x" * 400_000, content_type="image/png")
    reply = shot(lab, "/large")
    assert (reply.status_code, reply.json()["code"]) == (500, "SCRAPE_SITE_ERROR")
    assert "more than one page may load" in reply.json()["error"]


def test_a_page_whose_script_hides_its_size_is_read_and_bounded(
    lab: BrowserLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of 80 million characters that hid its size took 1.3 GB of the service's memory."""
    for path, returned in (("/empty", "''"), ("/odd", "({length: 'x'})")):
        script = f"Object.defineProperty(Element.prototype, 'outerHTML', {{get() {{ return {returned} }}}})"
        lab.site.page(path, f"<!doctype html><main><p>{'Words of it. ' * 100}</main><script>{script}</script>".encode())
        document = lab.scrape(lab.site.url(path), formats=["markdown", "rawHtml"], waitFor=1, maxAge=0)
        assert document["markdown"].count("Words of it.") == 100
        assert document["rawHtml"].startswith("<!DOCTYPE html><html><head></head><body><main>")
    monkeypatch.setattr("weblake_service.browser.actions._MAX_CHARS", 1000)
    for path in ("/empty", "/odd"):
        reply = lab.post(lab.site.url(path), formats=["markdown"], waitFor=1, maxAge=0)
        assert (reply.status_code, reply.json()["code"]) == (500, "SCRAPE_SITE_ERROR")
        assert "has grown beyond 1000 characters" in reply.json()["error"]


@pytest.mark.parametrize(
    ("size", "expected"), [("width: 900px; height: 40000px", 16_000), ("width: 40000px; height: 15000px", 15_016)]
)
def test_a_screenshot_of_an_immense_page_is_cut(lab: BrowserLab, size: str, expected: int) -> None:
    hidden = "Object.defineProperty(Element.prototype, 'scrollHeight', {get() { return 1 }})"
    lab.site.page("/immense", f"<script>{hidden}</script><main style='{size}'>x</main>".encode())
    found = lab.scrape(lab.site.url("/immense"), formats=[{"type": "screenshot", "fullPage": True}], maxAge=0)
    assert picture(found["screenshot"]) == ("png", 1280, expected)


def test_certificates_are_verified_on_request(lab: BrowserLab, tmp_path: Path) -> None:
    from https_site import secure

    with secure(tmp_path) as site:
        site.page("/a", b"<main>secret</main>")
        url = site.url("/a", "localhost").replace("http:", "https:")
        assert lab.scrape(url, formats=["markdown"], waitFor=1)["markdown"] == "secret"
        reply = lab.post(url, formats=["markdown"], waitFor=1, skipTlsVerification=False)
        assert (reply.status_code, reply.json()["code"]) == (500, "SCRAPE_SSL_ERROR"), reply.text


def test_a_missing_browser_is_named(lab: BrowserLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal() -> str:
        reply = shot(lab)
        assert (reply.status_code, reply.json()["code"]) == (503, "FEATURE_NOT_CONFIGURED")
        return str(reply.json()["error"])

    monkeypatch.setenv("WEBLAKE_CHROMIUM", "/nowhere/chromium")
    assert "/nowhere/chromium" in refusal()
    monkeypatch.delenv("WEBLAKE_CHROMIUM")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install chromium" in refusal()
    monkeypatch.undo()
    monkeypatch.setattr(chromium, "find_spec", lambda name: None)
    assert "pip install 'weblake[browser]'" in refusal()
    assert lab.http.get("/health").status_code == 200


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_browser_process_or_file_outlives_the_service(tmp_path: Path, lab: BrowserLab, how: int) -> None:
    browser_lab.require_chromium()
    # Not below pytest's directory: Chromium has a socket there, and the paths of sockets have a short limit.
    temporary = Path(tempfile.mkdtemp(prefix="wl-"))
    service = subprocess.Popen(
        [sys.executable, "-m", "weblake", "serve", "--port", "0", "--data", str(tmp_path / "data"), "--allow-private"],
        env={**os.environ, "WEBLAKE_API_KEY": "k", "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    family: set[int] = set()
    try:
        assert service.stdout is not None
        url = json.loads(service.stdout.readline())["url"]
        reply = httpx.post(
            f"{url}/v2/scrape",
            json={"url": lab.site.url("/fine"), "formats": ["screenshot"]},
            headers={"Authorization": "Bearer k"},
            timeout=120,
            trust_env=False,
            verify=False,
        )
        assert reply.status_code == 200, reply.text
        family = children(service.pid)
        assert any("--remote-debugging-pipe" in command(pid) for pid in family)
        # The service's key stays in the service.
        for pid in family:
            if "--remote-debugging-pipe" in command(pid):
                assert b"WEBLAKE_API_KEY" not in Path(f"/proc/{pid}/environ").read_bytes()
        os.kill(service.pid, how)
        service.wait(120)
        until(lambda: not running(family))
        if how == signal.SIGTERM:
            assert not list(temporary.glob("weblake-browser-*"))
    finally:
        for pid in running(family | {service.pid}):
            os.kill(pid, signal.SIGKILL)
        service.wait(120)
        assert service.stdout is not None
        service.stdout.close()
        shutil.rmtree(temporary, ignore_errors=True)
