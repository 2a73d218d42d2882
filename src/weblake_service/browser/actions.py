"""Runs the actions of a scrape request in order and returns their results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weblake_service.browser.page_monitor import PageMonitor
from weblake_service.browser.screenshots import pdf, screenshot
from weblake_service.page.html_page import without_marks
from weblake_service.page.script_filled import HIDDEN_MARK
from weblake_service.page_failure import PageFailure
from weblake_service.responses import encode

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

#: Milliseconds to wait for an element of an action, and for an element of a wait action.
_ACTION_TIMEOUT_MS, _WAIT_TIMEOUT_MS = 5_000, 30_000
#: Maximum clicks of one action that clicks all matches.
_MAX_CLICKS = 500
#: Maximum bytes of the results of all actions of a page.
_MAX_RESULT_BYTES = 96 << 20
#: Maximum characters of HTML.
_MAX_CHARS = 32 << 20
#: Playwright's error texts for a selector, key or number that is invalid on any page.
_INVALID_INPUT_ERRORS = ("parsing css selector", "not a valid selector", "Unknown key", "outside of [0.1 - 2]")
_SCROLL_PAGE = "window.scrollBy({{top: {way} * window.innerHeight, behavior: 'instant'}})"
_AS_JSON = "function() { return JSON.stringify(this) }"
_SCROLL_ELEMENT = "(element, way) => element.scrollBy({top: way * element.clientHeight, behavior: 'instant'})"


class ActionRunner:
    """Runs actions on one page; `timeout_s` is the page's timeout, and one wait takes at most half of it."""

    def __init__(self, page: Page, watch: PageMonitor, timeout_s: float, style: str) -> None:
        self._page = page
        self._watch = watch
        self._style = style
        self._max_wait_ms = int(timeout_s * 500)
        self._protocol: CDPSession | None = None
        self._bytes = 0
        self._found: dict[str, list[Any]] = {"screenshots": [], "scrapes": [], "javascriptReturns": [], "pdfs": []}
        self._kinds: dict[str, Callable[[Mapping[str, Any]], Awaitable[None]]] = {
            "wait": self._wait,
            "screenshot": self._screenshot,
            "click": self._click,
            "write": self._write,
            "press": self._press,
            "scroll": self._scroll,
            "scrape": self._scrape,
            "executeJavascript": self._execute,
            "pdf": self._pdf,
        }

    async def run(self, actions: Sequence[object]) -> dict[str, list[Any]]:
        """Return the results of the actions: screenshots, scrapes, javascriptReturns, pdfs, each in order.

        Raises:
            PageFailure: SCRAPE_ACTION_ERROR; an action failed.
        """
        from playwright.async_api import Error

        for number, action in enumerate(actions, 1):
            assert isinstance(action, Mapping)
            kind = str(action["type"])
            try:
                await self._kinds[kind](action)
            except (Error, _ScriptError) as error:
                if self._watch.crashed.is_set() or not self._page.context.browser or self._page.is_closed():
                    raise
                raise _action_failure(number, action, str(error)) from error
        return self._found

    def _add(self, kind: str, value: object) -> None:
        self._bytes += len(value) if isinstance(value, str) else len(encode(value))
        if self._bytes > _MAX_RESULT_BYTES:
            message = f"The actions return more than {_MAX_RESULT_BYTES} bytes. Ask for fewer."
            raise PageFailure("SCRAPE_ACTION_ERROR", message, status=400)
        self._found[kind].append(value)

    async def _wait(self, action: Mapping[str, Any]) -> None:
        if "milliseconds" in action:
            await asyncio.sleep(action["milliseconds"] / 1000)
            return
        await self._run_action(action).wait_for(state="visible", timeout=min(_WAIT_TIMEOUT_MS, self._max_wait_ms))

    async def _screenshot(self, action: Mapping[str, Any]) -> None:
        self._add("screenshots", await screenshot(self._page, action, self._style))

    async def _click(self, action: Mapping[str, Any]) -> None:
        found = self._page.locator(f"css={action['selector']}")
        if action.get("all"):
            for element in (await found.element_handles())[:_MAX_CLICKS]:
                # An element that is hidden, or was removed by an earlier click, is clicked with a synthetic event.
                await element.dispatch_event("click")
        else:
            await found.first.click(timeout=min(_ACTION_TIMEOUT_MS, self._max_wait_ms))
        await self._watch.wait_until_idle()

    async def _write(self, action: Mapping[str, Any]) -> None:
        await self._page.keyboard.type(action["text"])

    async def _press(self, action: Mapping[str, Any]) -> None:
        await self._page.keyboard.press(action["key"])
        await self._watch.wait_until_idle()

    async def _scroll(self, action: Mapping[str, Any]) -> None:
        way = -1 if action.get("direction") == "up" else 1
        if "selector" in action:
            await self._run_action(action).evaluate(
                _SCROLL_ELEMENT, way, timeout=min(_ACTION_TIMEOUT_MS, self._max_wait_ms)
            )
        else:
            await evaluate_isolated(self._page, _SCROLL_PAGE.format(way=way))
        await self._watch.wait_until_idle()

    async def _scrape(self, action: Mapping[str, Any]) -> None:
        self._add("scrapes", {"url": self._page.url, "html": without_marks(await content(self._page))})

    async def _pdf(self, action: Mapping[str, Any]) -> None:
        self._add("pdfs", await pdf(self._page, action))

    async def _execute(self, action: Mapping[str, Any]) -> None:
        script = action["script"]
        result = await self._evaluate(script)
        if "Illegal return" in _script_error_message(result):
            # Some clients send a function body instead of an expression.
            result = await self._evaluate(f"(async () => {{{script}\n}})()")
        if thrown := _script_error_message(result):
            raise _ScriptError(thrown)
        value = result["result"]
        self._add("javascriptReturns", {"type": value["type"], "value": value.get("value")})
        await self._watch.wait_until_idle()

    async def _evaluate(self, script: str) -> dict[str, Any]:
        # Evaluated through CDP: a page's Content-Security-Policy can forbid eval, but not the debugger.
        if self._protocol is None:
            self._protocol = await self._page.context.new_cdp_session(self._page)
        command_params = {"expression": script, "awaitPromise": True, "userGesture": True}
        result = dict(await self._protocol.send("Runtime.evaluate", command_params))
        value = result["result"]
        if "objectId" in value and "exceptionDetails" not in result:
            # As one string: the driver takes seconds for an object with many values.
            call = {"objectId": value["objectId"], "functionDeclaration": _AS_JSON, "returnByValue": True}
            result = dict(await self._protocol.send("Runtime.callFunctionOn", call))
            text = str(result["result"].get("value", "null")).encode("utf-8", "replace")
            result["result"] = {"type": value["type"], "value": msgspec.Raw(text)}
        return result

    def _run_action(self, action: Mapping[str, Any]) -> Any:
        return self._page.locator(f"css={action['selector']}").first


class _ScriptError(Exception):
    """A script of the request threw an exception."""


async def evaluate_isolated(page: Page, expression: str) -> object:
    """Return the value of an expression in a page; None if it throws.

    In the page's own world, a script of the page could replace the functions that the expression calls.
    """
    protocol = await page.context.new_cdp_session(page)
    frames = await protocol.send("Page.getFrameTree")
    world = await protocol.send("Page.createIsolatedWorld", {"frameId": frames["frameTree"]["frame"]["id"]})
    command_params = {"expression": expression, "contextId": world["executionContextId"], "returnByValue": True}
    result = await protocol.send("Runtime.evaluate", command_params)
    # Not in a `finally`: a page that hangs does not answer, and the deadline could not end the wait.
    await protocol.detach()
    return result["result"].get("value")


async def content(page: Page) -> str:
    """Return the page's current HTML: open shadow roots are declared in it, and what is hidden has HIDDEN_MARK.

    Raises:
        PageFailure: A script made it larger than the limit for one page.
    """
    html = await evaluate_isolated(page, f"({_content_script()})({_MAX_CHARS}, {HIDDEN_MARK!r})")
    if not isinstance(html, str):
        message = f"{page.url} has grown beyond {_MAX_CHARS} characters of HTML in the browser."
        raise PageFailure("SCRAPE_SITE_ERROR", message)
    return html


@cache
def _content_script() -> str:
    return Path(__file__).with_name("content.js").read_text("utf-8")


def _script_error_message(result: Mapping[str, Any]) -> str:
    details = result.get("exceptionDetails")
    if not isinstance(details, Mapping):
        return ""
    return str(details.get("exception", {}).get("description") or details.get("text") or "it threw something")


def _action_failure(number: int, action: Mapping[str, Any], error_text: str) -> PageFailure:
    what = str(action["type"])
    what += f" {action['selector']!r}" if "selector" in action else f" {action['key']!r}" if "key" in action else ""
    why = (error_text.strip().splitlines() or ["no reason given"])[0].partition(": ")
    reason = (why[2] or why[0])[:300].rstrip(".")
    message = f"Action {number} ({what[:200]}) failed: {reason}. Mend the action, or wait for its element before it."
    # An action that is invalid on any page is an error of the request.
    unreadable = any(sign in error_text for sign in _INVALID_INPUT_ERRORS)
    return PageFailure("SCRAPE_ACTION_ERROR", message, status=400 if unreadable else 500)
