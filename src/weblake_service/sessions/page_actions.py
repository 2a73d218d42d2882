"""Actions on a page with Playwright: navigate, click, type, read, take snapshots. Used by `agent-browser` and prompts.

Elements are identified by a CSS selector, or by a ref of the last snapshot (`@e5`). A failed action raises a
PageActionError with a message that helps a person or a model to continue.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from playwright.async_api import Dialog, Error, Frame, Locator, Page, Request

#: Milliseconds for an element to accept an action, for a page to load, and for a load that an action has started.
_ACTION_TIMEOUT_MS, _LOAD_TIMEOUT_MS, _NAVIGATION_TIMEOUT_MS = 5_000.0, 30_000.0, 10_000.0
#: Seconds in which a key must have started a navigation.
_NAVIGATION_START_S = 0.1
#: Seconds for all steps together; longer than the timeout of each.
_TOTAL_TIMEOUT_S = 40.0
_REF = re.compile(r"(?:@|ref=)?(e\d+)")
#: Playwright's refs by those of the last snapshot of a page.
_KNOWN_REFS: WeakKeyDictionary[Page, dict[str, str]] = WeakKeyDictionary()
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)")
_DIRECTIONS = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
#: What Playwright's log says of an element that does not accept an action.
_OBSTACLE = re.compile(r"element is not|did not find some options|.* intercepts pointer events")
#: A line of a snapshot: the role, the name in quotation marks, and the ref.
_LINE = re.compile(r'\s*- \'?(?P<role>[a-z]+)(?: "(?P<name>(?:[^"\\]|\\.)*)")?(?:.*? \[ref=(?P<ref>\w+)\])?')
#: Roles of elements that accept actions.
_INTERACTIVE_ROLES = {
    "button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio", "option",
    "radio", "searchbox", "slider", "spinbutton", "switch", "tab", "textbox", "treeitem",
}  # fmt: skip
#: Scrolls the element, or the scrollable part of the page: of a page that does not scroll, the box in its middle.
_SCROLL_BY = """(box, [x, y]) => {
  const scrolls = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
  const page = document.scrollingElement || document.documentElement;
  if (box === document.documentElement && !scrolls(page)) {
    box = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
    while (box && !(/auto|scroll/.test(getComputedStyle(box).overflow) && scrolls(box))) box = box.parentElement;
  }
  (box === document.documentElement || !box ? page : box).scrollBy({ left: x, top: y, behavior: 'instant' });
}"""


class PageActionError(Exception):
    """An action failed; the message says what failed, why, and what to do next."""


@asynccontextmanager
async def acting_on(page: Page) -> AsyncIterator[PageActions]:
    """Yield the actions on a page; dialogs that open meanwhile are answered.

    Raises:
        PageActionError: An action of the block failed, or the page does not respond.
    """
    from playwright.async_api import Error

    actions = PageActions(page)
    page.on("dialog", actions.answer_dialog)
    try:
        async with asyncio.timeout(_TOTAL_TIMEOUT_S):
            yield actions
    except TimeoutError as error:
        waited = f"The page did not answer within {_TOTAL_TIMEOUT_S:g} s"
        raise PageActionError(f"{waited}: a script may keep it busy. Reload it.") from error
    except Error as error:
        raise PageActionError(_reason(error)) from error
    finally:
        page.remove_listener("dialog", actions.answer_dialog)


class PageActions:
    """Performs actions on one page; see `acting_on`."""

    def __init__(self, page: Page) -> None:
        self.page = page
        #: The dialogs that were answered.
        self.dialogs: list[str] = []

    async def find(self, where: str) -> Locator:
        """Return the element of a CSS selector or a ref.

        Raises:
            PageActionError: The ref is none of the last snapshot, or its element does not exist any more.
        """
        ref = _REF.fullmatch(where.strip())
        if ref is None:
            return self.page.locator(f"css={where}").first
        from playwright.async_api import Error

        found = self.page.locator(f"aria-ref={_KNOWN_REFS.get(self.page, {}).get(ref[1], 'none')}")
        with suppress(Error):  # its frame does not exist any more
            if await found.count():
                return found
        raise PageActionError(
            f"@{ref[1]} is not on the page any more, or no ref of its last snapshot. Take a new snapshot."
        )

    async def snapshot(
        self, *, interactive: bool = False, compact: bool = False, depth: int | None = None, css: str | None = None
    ) -> str:
        """Return the accessibility snapshot of the page, one line for each element.

        Elements that accept actions or have a name have refs, numbered from 1.

        Args:
            interactive: Whether to list only elements that accept actions.
            compact: Whether to omit elements without a name or text of their own.
            depth: The maximum number of levels below the first.
            css: An element; only its content is listed.
        """
        # Playwright counts the document as a level.
        levels = None if depth is None else depth + 1
        if css is None:
            text = await self.page.aria_snapshot(mode="ai", depth=levels, timeout=_LOAD_TIMEOUT_MS)
        else:
            found = await self.find(css)
            await found.wait_for(state="attached", timeout=_ACTION_TIMEOUT_MS)
            text = await found.aria_snapshot(mode="ai", depth=levels, timeout=_LOAD_TIMEOUT_MS)
        refs = _KNOWN_REFS[self.page] = dict[str, str]()
        lines = []
        for line in text.replace(" [active]", "").splitlines():  # the focus is of no use to the reader
            match = _LINE.match(line)
            accepts = match is not None and match["role"] in _INTERACTIVE_ROLES
            named = match is not None and match["name"]
            if (interactive and not accepts) or (compact and not (accepts or named) and line.endswith(("]", "]:"))):
                continue
            if match is not None and match["ref"]:
                at, end = match.span("ref")
                before_value = line.find(": ", end)
                if match["role"] == "textbox" and before_value >= 0 and await self._is_password(match["ref"]):
                    line = f"{line[:before_value]}: •••"  # a snapshot is sent to a language model
                if accepts or named:
                    refs[f"e{len(refs) + 1}"] = match["ref"]
                    line = f"{line[:at]}e{len(refs)}{line[end:]}"
                else:
                    line = line[: at - len(" [ref=")] + line[end + 1 :]
            lines.append(line.strip().rstrip(":") if interactive else line)
        return "\n".join(lines)

    async def _is_password(self, ref: str) -> bool:
        from playwright.async_api import Error

        with suppress(Error):  # the element does not exist any more
            return await self.page.locator(f"aria-ref={ref}").get_attribute("type", timeout=1000) == "password"
        return True

    # Navigation

    async def goto(self, url: str, timeout_ms: float = _LOAD_TIMEOUT_MS) -> None:
        """Open a URL, by https if it has no scheme, and wait until it has loaded."""
        await self.page.goto(url if _SCHEME.match(url) else f"https://{url}", timeout=timeout_ms)

    async def go(self, way: str) -> None:
        """Go `back` or `forward` in the history, or `reload` the page."""
        if way == "reload":
            await self.page.reload(timeout=_LOAD_TIMEOUT_MS)
            return
        before, step = self.page.url, self.page.go_back if way == "back" else self.page.go_forward
        if await step(timeout=_LOAD_TIMEOUT_MS) is None and self.page.url == before:
            raise PageActionError(f"There is no page {'before' if way == 'back' else 'after'} this one.")

    async def wait_for_load(self) -> None:
        """Wait until the page that an action has opened is loaded, for some seconds."""
        from playwright.async_api import TimeoutError as LoadTimeout

        if not self.page.is_closed():
            with suppress(LoadTimeout):
                await self.page.wait_for_load_state(timeout=_NAVIGATION_TIMEOUT_MS)

    @asynccontextmanager
    async def _followed(self) -> AsyncIterator[None]:
        """Wait for the page that keys open at the end of the block; Playwright itself waits only after other input."""
        requested, committed = asyncio.Event(), asyncio.Event()

        def on_request(request: Request) -> None:
            if request.is_navigation_request() and request.frame == self.page.main_frame:
                requested.set()

        def on_navigated(frame: Frame) -> None:
            if frame == self.page.main_frame:
                committed.set()

        self.page.on("request", on_request)
        self.page.on("framenavigated", on_navigated)
        try:
            yield
            with suppress(TimeoutError):
                async with asyncio.timeout(_NAVIGATION_START_S):
                    await requested.wait()
                async with asyncio.timeout(_NAVIGATION_TIMEOUT_MS / 1000):
                    await committed.wait()
        finally:
            self.page.remove_listener("request", on_request)
            self.page.remove_listener("framenavigated", on_navigated)
        await self.wait_for_load()

    # Elements

    async def on_element(self, where: str, action: str, *arguments: object) -> Any:
        """Call a method of Playwright's Locator on an element, wait for the page that it opens, return its result."""
        element = await self.find(where)
        result = await getattr(element, action)(*arguments, timeout=_ACTION_TIMEOUT_MS)
        await self.wait_for_load()
        return result

    async def type(self, where: str, text: str) -> None:
        """Type a text key by key after the content of an element."""
        element = await self.find(where)
        await element.press("Control+End", timeout=_ACTION_TIMEOUT_MS)
        async with self._followed():
            await element.press_sequentially(text, timeout=_LOAD_TIMEOUT_MS)

    async def press(self, key: str) -> None:
        """Press a key such as `Enter` or `Control+a` at the focus."""
        async with self._followed():
            await self.page.keyboard.press(key)

    async def scroll(self, way: str, pixels: int = 600, where: str = "html") -> None:
        """Scroll the page or an element up, down, left or right."""
        if way not in _DIRECTIONS:
            raise PageActionError(f"{way!r} is no direction; there are {', '.join(_DIRECTIONS)}.")
        await self.on_element(where, "evaluate", _SCROLL_BY, [step * pixels for step in _DIRECTIONS[way]])

    async def text(self) -> str:
        """Return the visible text of the page."""
        return str(await self.page.evaluate("document.body ? document.body.innerText : ''"))

    async def count(self, css: str) -> int:
        """Return the number of elements for a CSS selector."""
        return await self.page.locator(f"css={css}").count()

    async def wait_for(self, css: str) -> None:
        """Wait until an element for a CSS selector is visible."""
        await self.page.locator(f"css={css}").first.wait_for(timeout=_LOAD_TIMEOUT_MS)

    async def answer_dialog(self, dialog: Dialog) -> None:
        """Accept an alert or beforeunload dialog, dismiss a confirm or prompt dialog."""
        yes = dialog.type in {"alert", "beforeunload"}
        self.dialogs.append(f"{dialog.type} ({'accepted' if yes else 'dismissed'}): {dialog.message}")
        from playwright.async_api import Error

        with suppress(Error):  # another client has answered it
            await (dialog.accept() if yes else dialog.dismiss())


def refs_of(snapshot: str) -> dict[str, dict[str, str]]:
    """Return role and name of the elements of a snapshot, by ref."""
    matches = filter(None, map(_LINE.match, snapshot.splitlines()))
    return {match["ref"]: {"role": match["role"], "name": match["name"] or ""} for match in matches if match["ref"]}


def _reason(error: Error) -> str:
    """Return why an action failed, in one line: what Playwright says, and what it has waited for."""
    first, *log = error.message.splitlines() or ["no reason given"]
    steps = [line.strip(" -") for line in log]
    text = re.sub(r"^\w+\.\w+: (Error: )?", "", first).rstrip(".")
    if "exceeded" not in text:
        return f"{text}."
    seen = [line for line in steps if _OBSTACLE.match(line)] or steps[1:2]
    return f"{text} ({seen[-1] if seen else 'no reason given'}). Take a snapshot to see what is on the page."
