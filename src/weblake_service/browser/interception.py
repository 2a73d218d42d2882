"""Intercepts the requests of a page: adds the headers of the scrape, leaves pictures out, and serves a known response.

Playwright's extra headers are sent to every host that a page loads from, and those of its routes are kept across
redirects. Here Chromium pauses each request before it is sent, and each redirected request again, and only requests to
the requested site get the headers. Cross-site frames are separate processes and are not intercepted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from weblake_service.browser.context_settings import SiteCredentials
from weblake_service.web.fetch import FetchedResponse
from weblake_service.web.redirect_chain import is_same_site

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page, Route

#: Types of resources, as Chromium names them, that have no text.
PICTURES = ("Image", "Font", "Media")
#: Headers of a known response that a browser needs, besides its type.
_KEPT_HEADERS = ("content-security-policy", "cross-origin-opener-policy", "cross-origin-embedder-policy")


async def intercept(
    page: Page,
    url: str,
    private: SiteCredentials,
    egress_proxy: tuple[str, str],
    *,
    pictures: bool = True,
    source: FetchedResponse | None = None,
) -> None:
    """Intercept the further requests of a page, as far as the arguments need it.

    A client that intercepts requests must also answer authentication challenges, so this module supplies the
    credentials of the site and of the egress proxy.

    Args:
        page: The page.
        url: The URL that the page will load.
        private: Its headers are added to the requests to the site of the URL.
        egress_proxy: The name and the password for the egress proxy.
        pictures: Whether pictures, fonts and media are loaded.
        source: The response to the URL, if it was fetched before; it is then not requested again.
    """
    patterns = [{"urlPattern": "*"}] if private.headers or private.login else []
    if not pictures:
        patterns += [{"urlPattern": "*", "resourceType": one} for one in PICTURES]
    if source is not None:
        # By Playwright, which would otherwise not report the response.
        await page.route(re.compile(f"^{re.escape(url.partition('#')[0])}(#.*)?$"), partial(_serve, source), times=1)
    if not patterns:
        return
    protocol = await page.context.new_cdp_session(page)
    tasks: set[asyncio.Task[None]] = set()
    #: Ids of requests that were already answered: wrong credentials are not repeated.
    tried: set[str] = set()

    def paused(event: dict[str, Any]) -> None:
        if not pictures and event["resourceType"] in PICTURES:
            blocked = {"requestId": event["requestId"], "errorReason": "BlockedByClient"}
            later(_answer(protocol, "Fetch.failRequest", blocked))
        else:
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
    stops = [{**pattern, "requestStage": "Request"} for pattern in patterns]
    await protocol.send("Fetch.enable", {"patterns": stops, "handleAuthRequests": True})


async def _serve(source: FetchedResponse, route: Route) -> None:
    kept = {name: source.headers[name] for name in _KEPT_HEADERS if name in source.headers}
    kept["content-type"] = source.content_type if "html" in source.content_type.lower() else "text/html"
    await route.fulfill(status=source.status, headers=kept, body=source.body)


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
    login_answer = {"requestId": event["requestId"], "authChallengeResponse": answer}
    await _answer(protocol, "Fetch.continueWithAuth", login_answer)


async def _continue_request(protocol: CDPSession, event: dict[str, Any], home: str, headers: Mapping[str, str]) -> None:
    answer: dict[str, Any] = {"requestId": event["requestId"]}
    request = event["request"]
    if is_same_site(home, request["url"]):
        sent = {name.lower(): value for name, value in request["headers"].items()} | dict(headers)
        answer["headers"] = [{"name": name, "value": value} for name, value in sent.items()]
    await _answer(protocol, "Fetch.continueRequest", answer)


async def _answer(protocol: CDPSession, command: str, answer: dict[str, Any]) -> None:
    # The page may have been closed meanwhile.
    with suppress(Exception):
        await protocol.send(command, answer)
