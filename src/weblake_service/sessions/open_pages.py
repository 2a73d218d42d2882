"""The open pages of a browser, and which of them is in front."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from weblake import aio
from weblake_service.sessions.attached_page import AttachedPage, PageActionError
from weblake_service.sessions.cdp import Cdp, CdpError

#: Seconds that a page may take to report whether it is in front.
_STATE_TIMEOUT_S = 2.0
#: Number of checks for a closing page, and the seconds between them.
_MAX_CLOSE_CHECKS, _CLOSE_CHECK_S = 200, 0.01
_PAGE_STATE_SCRIPT = "[document.visibilityState === 'visible', document.hasFocus(), performance.timeOrigin]"


@dataclass(frozen=True)
class OpenPage:
    """One open page."""

    id: str
    title: str
    url: str


async def open_pages(cdp: Cdp) -> list[OpenPage]:
    """Return all pages, in the browser's own order."""
    infos = (await cdp.send("Target.getTargets"))["targetInfos"]
    kept = [info for info in infos if info["type"] == "page" and not info["url"].startswith("devtools://")]
    return [OpenPage(info["targetId"], info.get("title", ""), info["url"]) for info in kept]


async def front_page(cdp: Cdp, pages: list[OpenPage] | None = None) -> str | None:
    """Return the page in front: the one that was opened or activated last. None if there is no page.

    Chromium reports no order of its pages, but an opened page comes to the front, and only the page in front is
    visible.
    """
    pages = await open_pages(cdp) if pages is None else pages
    if len(pages) < 2:
        return pages[0].id if pages else None
    looks = await asyncio.gather(*(_page_state(cdp, page.id) for page in pages))
    return max(zip(looks, pages, strict=True), key=lambda pair: pair[0])[1].id


async def new_page(cdp: Cdp, url: str = "about:blank") -> str:
    """Open a page in front of the others; return its id."""
    return str((await cdp.send("Target.createTarget", {"url": url}))["targetId"])


async def bring_to_front(cdp: Cdp, page: str) -> None:
    """Activate a page.

    Raises:
        PageActionError: The page does not exist.
    """
    await _send(cdp, "Target.activateTarget", page)


async def close_page(cdp: Cdp, page: str) -> None:
    """Close a page.

    Raises:
        PageActionError: The page does not exist.
    """
    await _send(cdp, "Target.closeTarget", page)
    # The response arrives before the page is closed, and until then it is listed.
    for _ in range(_MAX_CLOSE_CHECKS):
        if all(one.id != page for one in await open_pages(cdp)):
            return
        await asyncio.sleep(_CLOSE_CHECK_S)


async def _send(cdp: Cdp, method: str, page: str) -> None:
    try:
        await cdp.send(method, {"targetId": page})
    except CdpError as error:
        raise PageActionError(f"The page {page} is not there any more: {error}. List the pages that are.") from error


async def _page_state(cdp: Cdp, page: str) -> tuple[bool, bool, float]:
    """Return whether a page is visible, whether it has the focus, and when it was loaded."""

    with suppress(CdpError, PageActionError, TimeoutError):
        async with aio.timeout(_STATE_TIMEOUT_S):
            attached = await AttachedPage.attach(cdp, page, watch=False)
            try:
                visible, focused, loaded = await attached.evaluate(_PAGE_STATE_SCRIPT, gesture=False)
                return bool(visible), bool(focused), float(loaded)
            finally:
                await attached.detach()
    return False, False, 0.0
