"""Actions on a page: navigate, click, type, press keys, select, scroll. Used by `agent-browser` and by the agent.

Elements are identified by a CSS selector, or by a ref of the last snapshot (`@e5`). A failed action raises a
PageActionError with a message that helps a person or a model to continue.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from weblake_service.sessions import element_scripts
from weblake_service.sessions.accessibility_snapshot import Snapshot
from weblake_service.sessions.attached_page import AttachedPage, PageActionError
from weblake_service.sessions.cdp import Cdp
from weblake_service.sessions.keyboard import KEYS, MODIFIERS, parse_chord
from weblake_service.sessions.open_pages import front_page, new_page
from weblake_service.sessions.page_reader import Element, PageReader

#: Load timeout of a page in seconds.
_LOAD_TIMEOUT_S = 30.0
#: Seconds in which a click may start a navigation, and in which that navigation must finish.
_NAVIGATION_START_S, _NAVIGATION_TIMEOUT_S = 0.1, 10.0
#: Seconds in which a reload must start.
_RELOAD_START_S = 2.0
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)")
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
_DEFAULT_SCROLL_PIXELS = 600
#: Number of checks whether an element still moves before it is clicked anyway, and the seconds between them.
_MAX_MOVE_CHECKS, _MOVE_CHECK_S = 20, 0.03


class PageActions(PageReader):
    """Performs and observes actions on one page."""

    @classmethod
    async def attach(cls, cdp: Cdp, target: str | None = None, known: Snapshot | None = None) -> PageActions:
        """Return the actions for a page: by default the page in front, or a new one if there is none.

        Raises:
            PageActionError: The page does not exist.
        """
        chosen = target or await front_page(cdp) or await new_page(cdp)
        return cls(await AttachedPage.attach(cdp, chosen), known)

    async def detach(self) -> None:
        """Detach; the page is not changed."""
        await self.page.detach()

    # Navigation

    async def goto(self, url: str, timeout_s: float = _LOAD_TIMEOUT_S) -> None:
        """Open a URL, by https if it has no scheme, and wait until it has loaded."""
        address = url if _SCHEME.match(url) else f"https://{url}"
        reply = await self.page.send("Page.navigate", {"url": address})
        if reply.get("errorText"):
            raise PageActionError(f"{address} could not be opened: {reply['errorText']}.")
        loader = reply.get("loaderId")
        if loader and not await self.page.loaded(loader, timeout_s):
            raise PageActionError(
                f"{address} did not finish loading within {timeout_s:g} s; what is there can be used."
            )

    async def back(self) -> None:
        """Go back to the previous page of the history."""
        await self._go_in_history(-1, "before")

    async def forward(self) -> None:
        """Go forward to the next page of the history."""
        await self._go_in_history(1, "after")

    async def _go_in_history(self, way: int, word: str) -> None:
        history = await self.page.send("Page.getNavigationHistory")
        number = history["currentIndex"] + way
        if not 0 <= number < len(history["entries"]):
            raise PageActionError(f"There is no page {word} this one.")
        since = self.page.navigation_mark()
        await self.page.send("Page.navigateToHistoryEntry", {"entryId": history["entries"][number]["id"]})
        await self.page.wait_for_navigation(since, _LOAD_TIMEOUT_S)

    async def reload(self) -> None:
        """Reload the page."""
        since = self.page.navigation_mark()
        await self.page.send("Page.reload")
        await self.page.wait_for_load(since, _RELOAD_START_S, _LOAD_TIMEOUT_S)

    # Input

    async def click(self, where: str, count: int = 1) -> None:
        """Click an element with mouse events, and wait for a navigation that the click starts."""
        since = self.page.navigation_mark()
        x, y = await self._clickable_point(where)
        await self._dispatch_mouse_event("mouseMoved", x, y)
        for number in range(1, count + 1):
            await self._dispatch_mouse_event("mousePressed", x, y, button="left", clickCount=number, buttons=1)
            await self._dispatch_mouse_event("mouseReleased", x, y, button="left", clickCount=number)
        await self.page.wait_for_load(since, _NAVIGATION_START_S, _NAVIGATION_TIMEOUT_S)

    async def hover(self, where: str) -> None:
        """Move the mouse over an element."""
        x, y = await self._clickable_point(where, enabled=False)
        await self._dispatch_mouse_event("mouseMoved", x, y)

    async def focus(self, where: str) -> None:
        """Set the focus to an element."""
        element = await self.find(where)
        await self.page.call(element.object, "function () { this.focus(); }")

    async def fill(self, where: str, text: str) -> None:
        """Replace the content of a field by a text."""
        element = await self.find(where)
        ready = await self.page.call(element.object, element_scripts.PREPARE_INPUT, text)
        if ready.get("trouble"):
            raise PageActionError(f"{element.name} {ready['trouble']}.")
        if ready.get("done"):
            return
        if text:
            await self.page.send("Input.insertText", {"text": text})
        else:
            await self.press("Delete")

    async def type(self, text: str, where: str | None = None) -> None:
        """Type a text key by key after the existing content of an element, or at the focus."""
        if where is not None:
            await self.focus(where)
        since = self.page.navigation_mark()
        for character in text.replace("\r\n", "\n"):
            key = KEYS.get("Enter" if character == "\n" else "Tab" if character == "\t" else character)
            if key is None:
                await self.page.send("Input.insertText", {"text": character})
                continue
            shift = MODIFIERS["Shift"] if key.shifted else 0
            await self.page.send("Input.dispatchKeyEvent", key.event("down", shift))
            await self.page.send("Input.dispatchKeyEvent", key.event("up", shift))
        if "\n" in text:
            await self.page.wait_for_load(since, _NAVIGATION_START_S, _NAVIGATION_TIMEOUT_S)

    async def press(self, keys: str, where: str | None = None) -> None:
        """Press a key such as `Enter` or `Control+a` on an element, or at the focus."""
        held, key = parse_chord(keys)
        if where is not None:
            await self.focus(where)
        since = self.page.navigation_mark()
        modifiers = 0
        for modifier in held:
            modifiers |= MODIFIERS[modifier.key]
            await self.page.send("Input.dispatchKeyEvent", modifier.event("down", modifiers))
        if key.shifted:
            modifiers |= MODIFIERS["Shift"]
        await self.page.send("Input.dispatchKeyEvent", key.event("down", modifiers))
        await self.page.send("Input.dispatchKeyEvent", key.event("up", modifiers))
        for modifier in reversed(held):
            modifiers &= ~MODIFIERS[modifier.key]
            await self.page.send("Input.dispatchKeyEvent", modifier.event("up", modifiers))
        await self.page.wait_for_load(since, _NAVIGATION_START_S, _NAVIGATION_TIMEOUT_S)

    async def select(self, where: str, *wanted: str) -> list[str]:
        """Select options of a `<select>` by their values or labels; return the labels of the selected options."""
        since = self.page.navigation_mark()
        element = await self.find(where)
        reply = await self.page.call(element.object, element_scripts.SELECT_OPTIONS, list(wanted))
        if reply.get("trouble"):
            raise PageActionError(f"{element.name} {reply['trouble']}.")
        await self.page.wait_for_load(since, _NAVIGATION_START_S, _NAVIGATION_TIMEOUT_S)
        return [str(label) for label in reply["chosen"]]

    async def check(self, where: str, on: bool = True) -> None:
        """Set a checkbox, a switch or a radio button; clear it if `on` is false."""
        for attempt in range(2):
            if await self.is_checked(where) is on:
                return
            if attempt == 0:
                await self.click(where)
        raise PageActionError(f"{where} was clicked and is still {'not ' if on else ''}checked.")

    async def scroll(self, way: str, pixels: int = _DEFAULT_SCROLL_PIXELS, where: str | None = None) -> tuple[int, int]:
        """Scroll the page or an element up, down, left or right; return its scroll position."""
        if way not in _DIRECTIONS:
            raise PageActionError(f"{way!r} is no direction; there are {', '.join(_DIRECTIONS)}.")
        x, y = (step * pixels for step in _DIRECTIONS[way])
        if where is None:
            left, top = await self.page.evaluate(f"({element_scripts.SCROLL_BY}).call(globalThis, {x}, {y})")
        else:
            left, top = await self.call_on_element(where, element_scripts.SCROLL_BY, x, y)
        return int(left), int(top)

    async def scroll_into_view(self, where: str) -> None:
        """Scroll until an element is in the window."""
        element = await self.find(where)
        await self.page.send("DOM.scrollIntoViewIfNeeded", {"objectId": element.object})

    async def _clickable_point(self, where: str, *, enabled: bool = True) -> tuple[float, float]:
        """Return the point of the window at which to click an element, after scrolling it into view.

        Raises:
            PageActionError: It is hidden, disabled or covered.
        """
        element = await self.find(where)
        trouble = await self.page.call(element.object, element_scripts.FIND_OBSTACLE)
        if trouble and (enabled or trouble == "gone"):
            raise PageActionError(f"{element.name} is {trouble}. Take a snapshot to see what can be clicked.")
        x, y = await self._stable_center(element)
        cover = await self.page.call(element.object, element_scripts.FIND_COVER, x, y)
        if cover and enabled:
            raise PageActionError(f"{element.name} is covered by {cover}. Close that first, or scroll.")
        return x, y

    async def _stable_center(self, element: Element) -> tuple[float, float]:
        """Return the centre of an element after it has stopped moving."""
        before = None
        for _ in range(_MAX_MOVE_CHECKS):
            try:
                await self.page.send("DOM.scrollIntoViewIfNeeded", {"objectId": element.object})
                quads = (await self.page.send("DOM.getContentQuads", {"objectId": element.object}))["quads"]
            except PageActionError as error:
                raise PageActionError(f"{element.name} is not visible ({error}).") from error
            # A link that wraps over two lines has two boxes, and the centre of both may be in neither.
            quad = next((quad for quad in quads if _area(quad) >= 1), None)
            if quad is None:
                raise PageActionError(
                    f"{element.name} has no size to be clicked on. Take a snapshot to see what is there."
                )
            if quad == before:
                break
            before = quad
            await asyncio.sleep(_MOVE_CHECK_S)
        assert before is not None
        return sum(before[0::2]) / 4, sum(before[1::2]) / 4

    async def _dispatch_mouse_event(self, kind: str, x: float, y: float, **more: Any) -> None:
        await self.page.send("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})


def _area(quad: list[float]) -> float:
    """Return the area of a quadrilateral."""
    x, y = quad[0::2], quad[1::2]
    return abs(sum(x[n] * y[(n + 1) % 4] - x[(n + 1) % 4] * y[n] for n in range(4))) / 2
