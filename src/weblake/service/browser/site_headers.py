"""Headers of a request that its own site gets, hop by hop, and no other. Imports nothing of ours.

Playwright's extra headers go to every host that a page loads from, and those of its routes along with redirects. Here
Chromium stops each request before it is sent, a redirected one anew, and only those to the site that was asked for get
the headers. Frames of other sites are processes of their own, which are not even looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import httpx

from weblake.service.web.chain import same_site

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


async def send_headers(page: Page, url: str, headers: Mapping[str, str]) -> None:
    """From now on the page's requests to the site of a URL carry the headers."""
    home = httpx.URL(url)
    protocol = await page.context.new_cdp_session(page)
    tasks: set[asyncio.Task[None]] = set()

    def paused(event: dict[str, Any]) -> None:
        task = asyncio.get_running_loop().create_task(_go_on(protocol, event, home, headers))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    protocol.on("Fetch.requestPaused", paused)
    await protocol.send("Fetch.enable", {"patterns": [{"urlPattern": "*", "requestStage": "Request"}]})


async def _go_on(protocol: CDPSession, event: dict[str, Any], home: httpx.URL, headers: Mapping[str, str]) -> None:
    answer: dict[str, Any] = {"requestId": event["requestId"]}
    request = event["request"]
    if _is_home(home, request["url"]):
        sent = {name.lower(): value for name, value in request["headers"].items()} | dict(headers)
        answer["headers"] = [{"name": name, "value": value} for name, value in sent.items()]
    # The page may have gone in the meantime.
    with suppress(Exception):
        await protocol.send("Fetch.continueRequest", answer)


def _is_home(home: httpx.URL, url: str) -> bool:
    try:
        return same_site(home, httpx.URL(url))
    except (httpx.InvalidURL, ValueError):
        return False
