"""The page of a live view in a separate browser, as its user sees it: frames appear, and clicks arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import browser_lab
import pytest
from cdp_lab import Page, connected
from playwright.async_api import Page as Window
from playwright.async_api import async_playwright, expect
from session_lab import Sessions

from weblake_service.config import ServiceConfig

pytestmark = pytest.mark.system

START = """<!doctype html><title>Start &lt;b&gt;</title><style>body{margin:20px;font:20px sans-serif;height:4000px;
background:#def}button,input{display:block;margin:20px 0;height:60px;width:320px;font:inherit}</style><h1>A page</h1>
<button id=count onclick="this.textContent = ++n + ' clicks'">no clicks</button>
<button id=ask onclick="answer = confirm('Is <b>this</b> so?')">ask</button>
<input id=field><script>let n = 0, answer = 'not asked'</script>"""


@pytest.fixture(scope="module")
def sessions() -> Iterator[Sessions]:
    for lab in browser_lab.open_lab(config=ServiceConfig(max_browser_sessions=2)):
        lab.site.page("/", START.encode(), content_type="text/html; charset=utf-8")
        lab.site.page("/other", b"<!doctype html><title>Other</title><h1>Another page</h1>")
        yield Sessions(lab)


@pytest.fixture(scope="module")
def seen(sessions: Sessions) -> dict[str, Any]:
    return sessions.create(ttl=3600, activityTtl=3600)


@asynccontextmanager
async def shown(
    session: dict[str, Any], site: str, view: str, width: int = 1100, dark: bool = False
) -> AsyncIterator[tuple[Window, Page]]:
    """Yield the live view of a session in a window of another browser, and the page that it shows."""
    async with asyncio.timeout(280), connected(session["cdpUrl"]) as beside, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        try:
            window = await browser.new_page(
                viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
            )
            window.set_default_timeout(90_000)
            said: list[str] = []
            window.on("console", lambda message: message.type == "error" and said.append(message.text))
            window.on("pageerror", lambda error: said.append(str(error)))
            page = await Page.only(beside, f"{site}/")
            await window.goto(session[view])
            # The canvas has this height once it shows a frame, and the background of the page has this colour.
            async with asyncio.timeout(90):
                # Not wait_for_function: from its second look on, the content security policy refuses it.
                while not await window.evaluate(_PAINTED):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await expect(window.locator("#title")).to_have_text("Start <b>", timeout=90_000)
            yield window, page
            assert said == [], "neither the content security policy nor the script has reported an error"
        finally:
            await browser.close()


_PAINTED = """() => { const [r, g, b] = document.getElementById('picture').getContext('2d')
    .getImageData(2, 2, 1, 1).data; return Math.abs(r - 0xdd) + Math.abs(g - 0xee) + Math.abs(b - 0xff) < 12 }"""


async def click(window: Window, page: Page, selector: str) -> None:
    """Click in the view at the position of this element of the page."""
    x, y = await page.middle(selector)
    inner = await page.run("[innerWidth, innerHeight]")
    box = await window.locator("#picture").bounding_box()
    assert box is not None
    await window.mouse.click(box["x"] + x * box["width"] / inner[0], box["y"] + y * box["height"] / inner[1])


def test_input_in_the_view_reaches_the_page(seen: dict[str, Any], sessions: Sessions) -> None:
    site = sessions.lab.site.url("")

    async def work() -> None:
        async with shown(seen, site, "interactiveLiveViewUrl") as (window, page):
            assert await window.locator("#status").inner_text() == "Connected. You can act in the page."
            await click(window, page, "#count")
            await page.until("count.textContent", "1 clicks")
            await click(window, page, "#field")
            await page.until("document.activeElement.id", "field")
            await window.keyboard.type("Hello")
            await page.until("field.value", "Hello")
            await window.get_by_label("Text to type into the page").fill(" wörld")
            await window.get_by_role("button", name="Type", exact=True).click()
            await page.until("field.value", "Hello wörld")
            await click(window, page, "#ask")
            await window.get_by_role("alertdialog").wait_for()
            assert "Is <b>this</b> so?" in await window.get_by_role("alertdialog").inner_text()
            await window.get_by_role("button", name="OK").click()
            await page.until("answer", True)
            address = window.get_by_label("Address")
            assert await address.input_value() == f"{site}/"
            await address.fill(f"{site}/other")
            await address.press("Enter")
            await page.until("document.title", "Other")
            await window.get_by_role("button", name="Back").click()
            await page.until("document.title", "Start <b>")
            title = window.locator("#title")
            await expect(title).to_have_text("Start <b>", timeout=90_000)
            await page.run("window.open('/other') !== null")
            await window.get_by_role("button", name="Tab 2").wait_for()
            # A new tab is followed when it is opened, and again when its page comes.
            await expect(title).to_have_text("Other", timeout=90_000)
            await window.get_by_role("button", name="Tab 1").click()
            await page.until("document.visibilityState", "visible")
            await expect(title).to_have_text("Start <b>", timeout=90_000)
            # Last: while a page scrolls smoothly, positions of clicks change.
            await window.locator("#picture").hover()
            await window.mouse.wheel(0, 300)
            await page.until("scrollY > 0")

    asyncio.run(work())


def test_a_read_only_viewer_has_no_controls(seen: dict[str, Any], sessions: Sessions) -> None:
    site = sessions.lab.site.url("")

    async def work() -> None:
        async with shown(seen, site, "liveViewUrl", width=390, dark=True) as (window, page):
            assert await window.locator("#status").inner_text() == "Connected. You can watch."
            assert await window.locator("button:visible, input:visible").count() == 0
            await click(window, page, "#count")
            await window.keyboard.type("x")
            await page.run("document.title = 'Watched'")
            await expect(window.locator("#title")).to_have_text("Watched", timeout=90_000)
            assert await page.run("count.textContent") == "no clicks"
            wide = await window.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], "nothing overflows on a phone"

    asyncio.run(work())


def test_the_page_shows_that_the_session_ended(sessions: Sessions) -> None:
    async def work() -> None:
        async with shown(sessions.create(), sessions.lab.site.url(""), "interactiveLiveViewUrl") as (window, page):
            await page.close_browser()
            await window.get_by_text("The session has ended.").wait_for()
            assert await window.locator("button:visible").count() == 0

    asyncio.run(work())
