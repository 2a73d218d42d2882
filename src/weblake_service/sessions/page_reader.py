"""Reads a page and finds elements by CSS selector or ref."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from weblake_service.sessions import element_scripts
from weblake_service.sessions.accessibility_snapshot import Snapshot, take_snapshot
from weblake_service.sessions.attached_page import AttachedPage, PageActionError

#: Seconds to wait for an element to become visible, and for an element to exist.
_VISIBLE_TIMEOUT_S, _EXISTS_TIMEOUT_S = 30.0, 5.0
#: Seconds between two checks.
_CHECK_S = 0.1
_REF = re.compile(r"@(e\d+)|ref=(e\d+)|(e\d+)")


@dataclass(frozen=True)
class Element:
    """An element of the page."""

    #: The selector or ref as requested, for messages.
    name: str
    #: The browser's remote object id.
    object: str


class PageReader:
    """Reads one page. `known` is the last snapshot, or an earlier one: its refs identify elements."""

    def __init__(self, page: AttachedPage, known: Snapshot | None = None) -> None:
        self.page = page
        self.last_snapshot = known

    async def snapshot(
        self, *, interactive: bool = False, compact: bool = False, depth: int | None = None, css: str | None = None
    ) -> Snapshot:
        """Return a snapshot of the page, with refs for elements that accept actions."""
        root = None
        if css:
            element = await self.find(css)
            node = (await self.page.send("DOM.describeNode", {"objectId": element.object}))["node"]
            root = int(node["backendNodeId"])
        self.last_snapshot = await take_snapshot(
            self.page, interactive=interactive, compact=compact, depth=depth, root=root
        )
        return self.last_snapshot

    async def screenshot(self, *, full_page: bool = False) -> bytes:
        """Return a screenshot of the window, or of the full page, as a PNG."""
        await self.page.send("Page.bringToFront")
        reply = await self.page.send("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": full_page})
        return base64.b64decode(reply["data"])

    async def text(self, where: str | None = None) -> str:
        """Return the visible text of an element or of the page."""
        if where is None:
            return str(await self.page.evaluate("document.body ? document.body.innerText : ''"))
        return str(await self.call_on_element(where, "function () { return this.innerText ?? this.textContent; }"))

    async def html(self, where: str | None = None) -> str:
        """Return the current HTML of an element or of the page."""
        if where is None:
            return str(await self.page.evaluate("document.documentElement.outerHTML"))
        return str(await self.call_on_element(where, "function () { return this.outerHTML; }"))

    async def value(self, where: str) -> str:
        """Return the value of a field."""
        found = await self.call_on_element(where, "function () { return this.value; }")
        if found is None:
            raise PageActionError(f"{where} holds no value; read its text.")
        return str(found)

    async def attribute(self, where: str, name: str) -> str | None:
        """Return an attribute of an element; None if it does not have the attribute."""
        found = await self.call_on_element(where, "function (name) { return this.getAttribute(name); }", name)
        return None if found is None else str(found)

    async def title(self) -> str:
        """Return the title of the page."""
        return str(await self.page.evaluate("document.title"))

    async def url(self) -> str:
        """Return the URL of the page."""
        return str(await self.page.evaluate("location.href"))

    async def count(self, css: str) -> int:
        """Return the number of elements that match a CSS selector."""
        return int(await self.page.evaluate(f"document.querySelectorAll({json.dumps(css)}).length"))

    async def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression, which may await; it must be serialisable as JSON."""
        return await self.page.evaluate(script)

    async def wait_for(self, css: str, timeout_s: float = _VISIBLE_TIMEOUT_S) -> None:
        """Wait until an element for a CSS selector is visible."""
        if not await self._wait_until(f"({element_scripts.HAS_VISIBLE})({json.dumps(css)})", timeout_s):
            raise PageActionError(
                f"{css} did not become visible within {timeout_s:g} s. Take a snapshot to see what is."
            )

    # Element lookup

    async def find(self, where: str) -> Element:
        """Return the element of a CSS selector or a ref; wait for the element of a selector.

        Raises:
            PageActionError: There is none, or the ref belongs to another page.
        """
        ref = _REF.fullmatch(where.strip())
        if ref:
            return await self._find_ref(ref[1] or ref[2] or ref[3])
        if not await self._wait_until(f"!!document.querySelector({json.dumps(where)})", _EXISTS_TIMEOUT_S):
            raise PageActionError(f"There is no element {where} on the page. Take a snapshot to see what is.")
        found = await self.page.evaluate(f"document.querySelector({json.dumps(where)})", by_value=False)
        if "objectId" not in found:
            raise PageActionError(f"The element {where} went away. Take a snapshot to see what is there.")
        return Element(where, found["objectId"])

    async def call_on_element(self, where: str, function: str, *arguments: object) -> Any:
        """Return the result of a JavaScript function that is called on an element."""
        element = await self.find(where)
        return await self.page.call(element.object, function, *arguments)

    async def _find_ref(self, ref: str) -> Element:
        if self.last_snapshot is None:
            raise PageActionError(f"@{ref} is not known: no snapshot of this page was taken. Take one first.")
        known = self.last_snapshot.refs.get(ref)
        if known is None:
            last = f"they go to @e{len(self.last_snapshot.refs)}" if self.last_snapshot.refs else "it had none"
            raise PageActionError(f"@{ref} is none of the last snapshot's refs ({last}). Take a new snapshot.")
        name = f'@{ref} ({known.role} "{known.name}")' if known.name else f"@{ref} ({known.role})"
        # The browser's element ids restart in another process: the same id may be another element.
        if await self.page.loader() != self.last_snapshot.loader:
            raise PageActionError(f"{name} is of a page that is gone: another was loaded since. Take a new snapshot.")
        gone = f"{name} is not on the page any more. Take a new snapshot."
        try:
            found = await self.page.send("DOM.resolveNode", {"backendNodeId": known.node})
        except PageActionError as error:
            raise PageActionError(gone) from error
        element = Element(name, found["object"]["objectId"])
        if not await self.page.call(element.object, "function () { return this.isConnected; }"):
            raise PageActionError(gone)
        return element

    async def _wait_until(self, expression: str, timeout_s: float) -> bool:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not await self.page.evaluate(expression):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_CHECK_S)
        return True

    async def is_visible(self, where: str) -> bool:
        """Return whether the element exists and is visible."""
        if _REF.fullmatch(where.strip()):
            return bool(await self.call_on_element(where, element_scripts.IS_VISIBLE))
        return bool(await self.page.evaluate(f"({element_scripts.HAS_VISIBLE})({json.dumps(where)})"))

    async def is_enabled(self, where: str) -> bool:
        """Return whether an element is not disabled."""
        return not await self.call_on_element(where, element_scripts.FIND_OBSTACLE)

    async def is_checked(self, where: str) -> bool:
        """Return whether a checkbox, radio button or switch is set.

        Raises:
            PageActionError: It is none of these.
        """
        checked = await self.call_on_element(where, element_scripts.IS_CHECKED)
        if checked is None:
            raise PageActionError(f"{where} is no checkbox, radio button or switch.")
        return bool(checked)
