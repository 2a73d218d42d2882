"""Renders one page in the browser: loads it, waits, runs its actions and captures the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import httpx

from weblake_service.browser.actions import ActionRunner, content
from weblake_service.browser.branding import branding
from weblake_service.browser.context_settings import SiteCredentials
from weblake_service.browser.interception import intercept
from weblake_service.browser.page_monitor import PageMonitor
from weblake_service.browser.playwright_browser import first_line
from weblake_service.browser.pool import PooledContext
from weblake_service.browser.rendering_options import requested_captures
from weblake_service.browser.screenshots import HIDDEN, screenshot, viewport_of
from weblake_service.page.ad_removal import KNOWN_SELECTORS
from weblake_service.page.content_types import ContentKind, kind_of
from weblake_service.page.requested_formats import format_entry, items, number
from weblake_service.page_failure import PageFailure, ServiceLimitReached
from weblake_service.web.addresses import ascii_host
from weblake_service.web.fetch import FetchedResponse

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

T = TypeVar("T")
_HTML_TYPE = "text/html; charset=utf-8"
#: Seconds to wait for a page that scripts still have to fill, and seconds between two looks at it.
_MAX_FILL_WAIT_S, _LOOK_AGAIN_S = 3.0, 0.1
#: Share of the timeout that waiting for requests and scripts may take: what has come by then is returned.
_MAX_WAITING_SHARE = 0.7
_CERTIFICATE_ERRORS = ("ERR_CERT", "ERR_SSL", "ERR_BAD_SSL", "SSL_")


class IsFile(Exception):
    """The URL is a file, which is fetched and converted as over HTTP."""


class PageRendering:
    """Renders one URL in one pooled context.

    Args:
        pooled: The context.
        url: The URL, without credentials.
        options: Scrape options by snake_case name.
        private: The credentials of the request.
        pictures: Whether pictures, fonts and media are loaded.
        source: The response to the URL, if it was fetched before; its main document is not requested again.
        is_shell: Returns whether scripts still have to fill a page, from its HTML and its URL.
    """

    def __init__(
        self,
        pooled: PooledContext,
        url: str,
        options: Mapping[str, object],
        private: SiteCredentials,
        *,
        pictures: bool = True,
        source: FetchedResponse | None = None,
        is_shell: Callable[[str, str], Awaitable[bool]] | None = None,
    ) -> None:
        self._pooled = pooled
        self._url = url
        self._options = options
        self._private = private
        self._pictures = pictures
        self._source = source
        self._is_shell = is_shell
        self._timeout_s = number(options.get("timeout"), 60_000) / 1000
        self._style = HIDDEN.format(selectors=KNOWN_SELECTORS) if options.get("block_ads") is not False else ""

    async def run(self) -> FetchedResponse:
        """Return the final page, with what the browser made besides its source, and why not the rest.

        Raises:
            PageFailure: It could not be loaded or read in time, or an action failed.
            IsFile: It is a file.
            playwright.async_api.Error: The browser ended.
        """
        page = next(iter(self._pooled.context.pages), None) or await self._pooled.context.new_page()
        now = time.monotonic()
        until = now + self._timeout_s
        watch = PageMonitor(page, pictures=self._pictures, until=now + self._timeout_s * _MAX_WAITING_SHARE)
        shot = format_entry(self._options, "screenshot")
        try:
            fetched = await self._step(self._read(page, watch, shot), page, watch, until)
            captured, failures = dict(fetched.captured), dict[str, PageFailure]()
            parts = {"screenshot": partial(screenshot, page, {**(shot or {}), "viewport": None}, self._style)}
            for name, make in (parts | {"branding": partial(branding, page)}).items():
                if name in requested_captures(self._options):
                    try:
                        captured[name] = await self._step(make(), page, watch, until)
                    except PageFailure as failure:
                        failures[name] = failure
        finally:
            watch.detach()
        return replace(fetched, captured=captured, failures=failures)

    async def _step(self, work: Coroutine[Any, Any, T], page: Page, watch: PageMonitor, until: float) -> T:
        """Return the result of one step; raises as `run`."""
        from playwright.async_api import Error

        run = asyncio.ensure_future(work)
        crash = asyncio.ensure_future(watch.crashed.wait())
        try:
            left = max(0.0, until - time.monotonic())
            ended, _ = await asyncio.wait([run, crash], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if not ended:
                message = f"{self._url} was not done in the browser within {self._timeout_s:g} s. Raise `timeout`."
                raise PageFailure("SCRAPE_TIMEOUT", message, status=408, reached=watch.answer is not None)
            broken = run.exception() if run.done() else None
            if not run.done() or (broken is not None and "crash" in str(broken) and self._pooled.engine.alive):
                if watch.answer is None:  # nothing of this page had arrived that could have ended it
                    raise Error("the process of its page had ended")
                message = f"{self._url} crashed in the browser. It may need more memory than one page may have."
                raise PageFailure("SCRAPE_SITE_ERROR", message)
            return run.result()
        except Error as error:
            if not self._pooled.engine.alive:
                raise
            said = "it closed itself" if page.is_closed() else first_line(error)
            message = f"{self._url} could not be read in the browser ({said})."
            raise PageFailure("SCRAPE_SITE_ERROR", message) from error
        finally:
            for task in (run, crash):
                task.cancel()
            await asyncio.gather(run, crash, return_exceptions=True)

    async def _override_languages(self, page: Page) -> None:
        """Set all languages of the request, because Playwright's context accepts only one."""
        settings = self._pooled.settings
        if len(settings.languages) < 2:
            return
        protocol = await page.context.new_cdp_session(page)
        agent = settings.user_agent(self._pooled.engine.browser.version)
        spoken = {"userAgent": agent, "acceptLanguage": ",".join(settings.languages)}
        await protocol.send("Emulation.setUserAgentOverride", spoken)

    async def _read(self, page: Page, watch: PageMonitor, shot: Mapping[str, Any] | None) -> FetchedResponse:
        """Load the page, run its actions, and return its source."""
        if self._private.cookies:
            await _add_cookies(self._pooled, self._private)
        login = self._pooled.egress_proxy.login
        await intercept(page, self._url, self._private, login, pictures=self._pictures, source=self._source)
        await self._override_languages(page)
        if shot is not None and isinstance(viewport := shot.get("viewport"), Mapping):
            await page.set_viewport_size(viewport_of(viewport))
        await self._load(page, watch)
        wait = self._options.get("wait_for")
        if isinstance(wait, int) and wait > 0:
            await asyncio.sleep(wait / 1000)
        captured: dict[str, object] = {}
        actions = items(self._options.get("actions"))
        if actions:
            captured["actions"] = await ActionRunner(page, watch, self._timeout_s, self._style).run(actions)
        self._check_page(page, watch)
        answer = watch.answer
        assert answer is not None
        body, content_type = await self._body(page, answer)
        return FetchedResponse(
            url=page.url,
            status=answer.status,
            headers=dict(answer.headers),
            body=body,
            content_type=content_type,
            redirects=_redirects(answer),
            reason=answer.status_text,
            rendered=content_type is _HTML_TYPE,
            captured=captured,
        )

    async def _load(self, page: Page, watch: PageMonitor) -> None:
        from playwright.async_api import Error

        try:
            # The caller has one deadline for all steps.
            await page.goto(self._url, wait_until="domcontentloaded", timeout=0)
        except Error as error:
            aborted = "ERR_ABORTED" in error.message
            # Nothing had answered yet: the browser ended the load itself, for example because a process was gone.
            unanswered = aborted and watch.answer is None and self._pooled.egress_proxy.failure_of(self._url) is None
            if page.is_closed() or watch.crashed.is_set() or unanswered or not self._pooled.engine.alive:
                raise
            if "Download is starting" in error.message or (watch.answer is not None and _is_file(watch.answer)):
                raise IsFile from None
            # A navigation that interrupts the load is not a failure; its target is checked below.
            sent_on = "interrupted by another navigation" in error.message
            if not sent_on and not (aborted and watch.answer is not None):
                raise self._failure_of(watch.failed or (self._url, error.message)) from None
        await watch.wait_until_idle()
        self._check_page(page, watch)
        if watch.answer is not None and _is_file(watch.answer):
            raise IsFile
        if self._is_shell is not None and await self._wait_for_text(page, watch, self._is_shell):
            await watch.wait_until_idle()
            self._check_page(page, watch)

    async def _wait_for_text(
        self, page: Page, watch: PageMonitor, is_shell: Callable[[str, str], Awaitable[bool]]
    ) -> bool:
        """Wait until scripts have filled the page, or have not changed it for long; return whether it has waited."""
        from playwright.async_api import Error

        until = min(time.monotonic() + _MAX_FILL_WAIT_S, watch.until)
        before, waited = "", False
        while True:
            try:
                html = await content(page)
            except (Error, PageFailure):
                html = before  # it goes to another document now
            if html != before and not await is_shell(html, page.url):
                return waited
            if time.monotonic() >= until:
                return True
            before, waited = html, True
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _check_page(self, page: Page, watch: PageMonitor) -> None:
        """Check that the current document is a page of a site, and not an internal page of the browser."""
        if self._pooled.egress_proxy.overflowed:
            message = f"{self._url} loads more than one page may load in the browser. Leave the browser out of it."
            raise PageFailure("SCRAPE_SITE_ERROR", message)
        is_page = page.url.startswith(("http://", "https://"))
        if watch.failed is not None and (
            not is_page or self._pooled.egress_proxy.failure_of(watch.failed[0]) is not None
        ):
            raise self._failure_of(watch.failed)
        if watch.answer is None or not is_page:
            message = f"{self._url} led to {page.url[:100]!r} in the browser, which is not a page of a site."
            raise PageFailure("SCRAPE_SITE_ERROR", message)

    def _failure_of(self, failed: tuple[str, str]) -> PageFailure | ServiceLimitReached:
        url, said = failed
        known = self._pooled.egress_proxy.failure_of(url)
        if known is not None:
            return known
        host = ascii_host(httpx.URL(url)) if url.startswith("http") else url[:100]
        error = next((word.strip("():;,.") for word in said.split() if "ERR_" in word), said[:100])
        if any(sign in said for sign in _CERTIFICATE_ERRORS):
            message = f"No secure connection to {host} ({error}). `skipTlsVerification` accepts its certificate."
            return PageFailure("SCRAPE_SSL_ERROR", message, reached=False)
        return PageFailure("SCRAPE_SITE_ERROR", f"{host} could not be loaded in the browser ({error}). Try again.")

    async def _body(self, page: Page, answer: Response) -> tuple[bytes, str]:
        """Return the body and its type: the browser's DOM for HTML, the response body for other text."""
        sent = answer.headers.get("content-type", "")
        if kind_of(sent, b"") in {ContentKind.TEXT} and not page.is_closed():
            return await answer.body(), sent
        return (await content(page)).encode("utf-8", "replace"), _HTML_TYPE


def _is_file(answer: Response) -> bool:
    kind = kind_of(answer.headers.get("content-type", "text/html"), b"")
    return kind in {ContentKind.PDF, ContentKind.OFFICE}


def _redirects(answer: Response) -> tuple[str, ...]:
    passed = []
    request = answer.request.redirected_from
    while request is not None:
        passed.append(request.url)
        request = request.redirected_from
    return tuple(reversed(passed))


async def _add_cookies(pooled: PooledContext, private: SiteCredentials) -> None:
    from playwright.async_api import Error

    try:
        await pooled.context.add_cookies(private.cookies)  # type: ignore[arg-type]
    except Error as error:
        message = f"The header Cookie cannot be sent by the browser ({error.message.splitlines()[0]}). Mend `headers`."
        raise PageFailure("BAD_REQUEST", message, status=400) from None
