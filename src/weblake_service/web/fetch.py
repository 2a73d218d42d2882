"""Fetches a URL over HTTP: pinned addresses, checked redirects, one deadline, bounded bodies.

It uses httpcore instead of an httpx client for two reasons: a network backend can pin the checked address while the
Host header and the TLS server name stay those of the URL, and a client's cookie jar would send one user's cookies with
another user's scrape. Cookies are kept for one redirect chain only.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import httpcore
import httpx

from weblake_service.page.content_types import ContentKind, kind_of
from weblake_service.page.links import refresh_target
from weblake_service.page_failure import PageFailure, ServiceLimitReached, translated_limits
from weblake_service.web.addresses import ascii_host, clean_url
from weblake_service.web.connection_pools import ConnectionPools
from weblake_service.web.decompression import BodyDecoder
from weblake_service.web.redirect_chain import RedirectChain

#: The User-Agent of the service; robots.txt rules for "weblake" apply to it.
USER_AGENT = "Mozilla/5.0 (compatible; weblake/0.1)"
#: Seconds until a request that a limit of the service stopped is sent again.
_LIMIT_AGAIN_S = 0.5
_NETWORK_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)
_DROPPED_ERRORS = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """The target's response, after redirects."""

    #: The URL of the final response, without credentials.
    url: str
    status: int
    #: Header names are in lower case; values of a repeated header are joined by ", ".
    headers: Mapping[str, str] = field(default_factory=dict)
    #: The decompressed body.
    body: bytes = b""
    content_type: str = ""
    #: The URLs that redirected here, in order.
    redirects: tuple[str, ...] = ()
    #: The reason phrase of the status.
    reason: str = ""
    #: The cookies that the response and the redirects before it set: name, value, domain, path.
    cookies: Sequence[Mapping[str, str]] = ()
    #: Whether the body is the DOM of a browser, and why a page that came over HTTP was rendered.
    rendered: bool = False
    script_filled: str = ""
    #: Results of a browser besides the source, by field name in the document: screenshot, branding, actions.
    captured: Mapping[str, object] = field(default_factory=dict)
    #: Why the browser could not make the other ones, by the same names.
    failures: Mapping[str, PageFailure] = field(default_factory=dict)


class Fetcher:
    """Fetches URLs over pooled connections; one per service, closed with `aclose`.

    `allow_private` permits loopback and private networks. `max_body` is the maximum size of one body in bytes. The
    environment's proxies are used, but never for loopback; behind a proxy, the proxy decides which address is used.
    """

    def __init__(self, *, allow_private: bool = False, max_body: int = 64 << 20) -> None:
        self.allow_private = allow_private
        self.max_body = max_body
        self._pools = ConnectionPools(allow_private=allow_private)

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        verify: bool = False,
        max_body: int | None = None,
        cut: bool = False,
        refresh: bool = False,
    ) -> FetchedResponse:
        """Return the target's response with any status, after up to 10 redirects.

        `timeout_s` covers everything from name resolution to the last byte. `verify` checks certificates (off by
        default, as in the contract). A body over `max_body` (default: the fetcher's) is a failure, or is truncated with
        `cut`. With `refresh`, a page that redirects by a refresh is followed, too. Raises PageFailure if there is no
        response, or ServiceLimitReached if a limit of the service lasted.
        """
        chain = RedirectChain(clean_url(url, allow_private=self.allow_private), headers or {}, USER_AGENT)
        limit = self.max_body if max_body is None else max_body
        # Before the timeout, which would be reported as a failure of the site.
        give_up = time.monotonic() + timeout_s / 2
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        fetched = await self._request_once(chain, verify, limit, cut)
                    except ServiceLimitReached:
                        if time.monotonic() > give_up:
                            raise
                        await asyncio.sleep(_LIMIT_AGAIN_S)
                        continue
                    if fetched is not None and not (refresh and self._refresh(chain, fetched)):
                        return fetched
        except TimeoutError as error:
            message = f"{url} did not answer in full within {timeout_s:g} s. Try again, or allow more with `timeout`."
            raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error

    async def post(
        self, url: str, body: bytes, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0
    ) -> int:
        """Post a body once, with certificate checks, and return the status; redirects are not followed.

        Used for webhooks, whose receivers are checked like any other target. Raises PageFailure if there is no
        response.
        """
        chain = RedirectChain(clean_url(url, allow_private=self.allow_private), headers or {}, USER_AGENT)
        try:
            async with asyncio.timeout(timeout_s), self._translate_errors(chain):
                pool = await self._pools.pool_for(chain.url, verify=True)
                response = await pool.handle_async_request(chain.request("POST", body))
                await response.aclose()
                return response.status
        except TimeoutError as error:
            message = f"{url} did not answer within {timeout_s:g} s. Check the receiver."
            raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error

    async def aclose(self) -> None:
        """Close all connections; the fetcher may be used again."""
        await self._pools.aclose()

    def _refresh(self, chain: RedirectChain, fetched: FetchedResponse) -> bool:
        """Follow a page that redirects without a redirect status; return False if it does not."""
        if fetched.status >= 300 or kind_of(fetched.content_type, fetched.body) is not ContentKind.HTML:
            return False
        header = fetched.headers.get("refresh", "")
        target = refresh_target(fetched.content_type, fetched.body, fetched.url, header)
        return bool(target) and chain.refresh(target, self.allow_private)

    async def _request_once(self, chain: RedirectChain, verify: bool, limit: int, cut: bool) -> FetchedResponse | None:
        """Send one request; return None if the response was a redirect."""
        async with self._translate_errors(chain):
            response = await self._send(chain, verify)
            try:
                return await self._read(chain, response, limit, cut)
            finally:
                await response.aclose()

    @asynccontextmanager
    async def _translate_errors(self, chain: RedirectChain) -> AsyncIterator[None]:
        """Convert network errors to PageFailure."""
        try:
            with translated_limits():
                yield
        except httpcore.LocalProtocolError as error:
            message = f"The headers for {chain.public_url} cannot be sent ({error}). Mend `headers`."
            raise PageFailure("BAD_REQUEST", message, status=400) from error
        except httpcore.ProxyError as error:
            message = f"The proxy did not reach {chain.public_url} ({error}). Check the proxy settings of the service."
            raise PageFailure("SCRAPE_PROXY_SELECTION_ERROR", message) from error
        except _NETWORK_ERRORS as error:
            raise _failure(chain.url, error) from error

    async def _send(self, chain: RedirectChain, verify: bool) -> httpcore.Response:
        pool = await self._pools.pool_for(chain.url, verify=verify)
        try:
            return await pool.handle_async_request(chain.request())
        except _DROPPED_ERRORS:
            # The server may have just closed a kept-alive connection; repeating a GET is harmless.
            return await pool.handle_async_request(chain.request())

    async def _read(
        self, chain: RedirectChain, response: httpcore.Response, limit: int, cut: bool
    ) -> FetchedResponse | None:
        headers = httpx.Headers(response.headers)
        if chain.follow(response.status, headers, self.allow_private):
            return None
        url = str(chain.public_url)
        content_type = headers.get("content-type", "")
        body = BodyDecoder(headers.get("content-encoding", ""), limit, url, cut=cut, content_type=content_type)
        async for part in response.aiter_stream():
            body.feed(part)
            if body.full:
                break
        return FetchedResponse(
            url=url,
            status=response.status,
            headers=_joined(headers),
            body=body.finish(),
            content_type=content_type,
            redirects=tuple(chain.visited),
            reason=_reason(response),
            cookies=chain.cookies,
        )


def _joined(headers: httpx.Headers) -> dict[str, str]:
    """Return the headers by name; in one pass, because httpx reads all of them for each look-up."""
    values: dict[str, list[str]] = {}
    for name, value in headers.multi_items():
        values.setdefault(name, []).append(value)
    return {name: ", ".join(several) for name, several in values.items()}


def _reason(response: httpcore.Response) -> str:
    try:
        return HTTPStatus(response.status).phrase
    except ValueError:
        reason = response.extensions.get("reason_phrase", b"")
        return bytes(reason).decode("latin-1").strip() or f"HTTP {response.status}"


def _failure(url: httpx.URL, error: Exception) -> PageFailure:
    host, text = ascii_host(url), str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            message = f"No secure connection to {host} ({text}). `skipTlsVerification` accepts its certificate."
            return PageFailure("SCRAPE_SSL_ERROR", message, reached=False)
        cause = cause.__cause__ or cause.__context__
    unconnected = isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout)
    if unconnected:
        message = f"{host} does not accept connections ({text}). Check that the site is up, and try again."
    else:
        message = f"{host} broke off its answer ({text}). Try again."
    return PageFailure("SCRAPE_SITE_ERROR", message, reached=not unconnected)
