"""Sends the headers of a request to its own site only, checked at each redirect.

Playwright's extra headers are sent to every host that a page loads from, and those of its routes are kept across
redirects. Here Chromium pauses each request before it is sent, and each redirected request again, and only requests to
the requested site get the headers. Cross-site frames are separate processes and are not intercepted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weblake_service.browser.context_settings import SiteCredentials
from weblake_service.web.redirect_chain import is_same_site

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page


async def send_headers(page: Page, url: str, private: SiteCredentials, egress_proxy: tuple[str, str]) -> None:
    """Add the headers of the request to the page's further requests to the site of a URL.

    A client that intercepts requests must also answer authentication challenges, so this module supplies the
    credentials of the site and of the egress proxy.
    """
    protocol = await page.context.new_cdp_session(page)
    tasks: set[asyncio.Task[None]] = set()
    #: Ids of requests that were already answered: wrong credentials are not repeated.
    tried: set[str] = set()

    def paused(event: dict[str, Any]) -> None:
        later(_continue_request(protocol, event, url, private.headers))

    def on_auth_required(event: dict[str, Any]) -> None:
        first = event["requestId"] not in tried
        if event["authChallenge"]["source"] != "Proxy":
            tried.add(event["requestId"])
        later(_answer_auth_request(protocol, event, private if first else None, egress_proxy))

    def later(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    protocol.on("Fetch.requestPaused", paused)
    protocol.on("Fetch.authRequired", on_auth_required)
    stops = {"patterns": [{"urlPattern": "*", "requestStage": "Request"}], "handleAuthRequests": True}
    await protocol.send("Fetch.enable", stops)


async def _answer_auth_request(
    protocol: CDPSession, event: dict[str, Any], private: SiteCredentials | None, egress_proxy: tuple[str, str]
) -> None:
    challenge = event["authChallenge"]
    login = egress_proxy if challenge["source"] == "Proxy" else None
    if (
        login is None
        and private is not None
        and private.login is not None
        and challenge["origin"] == private.login["origin"]
    ):
        login = (private.login["username"], private.login["password"])
    answer = {"response": "CancelAuth"}
    if login is not None:
        answer = {"response": "ProvideCredentials", "username": login[0], "password": login[1]}
    with suppress(Exception):
        await protocol.send(
            "Fetch.continueWithAuth", {"requestId": event["requestId"], "authChallengeResponse": answer}
        )


async def _continue_request(protocol: CDPSession, event: dict[str, Any], home: str, headers: Mapping[str, str]) -> None:
    answer: dict[str, Any] = {"requestId": event["requestId"]}
    request = event["request"]
    if is_same_site(home, request["url"]):
        sent = {name.lower(): value for name, value in request["headers"].items()} | dict(headers)
        answer["headers"] = [{"name": name, "value": value} for name, value in sent.items()]
    # The page may have been closed meanwhile.
    with suppress(Exception):
        await protocol.send("Fetch.continueRequest", answer)
