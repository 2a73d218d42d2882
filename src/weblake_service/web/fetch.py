"""Fetches a URL over HTTP: pinned addresses, checked redirects, one deadline, bounded bodies.

It stands on httpcore, not on an httpx client, for two reasons: the network backend is where a checked address can be
pinned while Host header and server name stay what the URL says, and a client's cookie jar would carry one user's
cookies into another's scrape. Cookies live as long as one chain of redirects.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

import httpcore
import httpx

from weblake import aio
from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url
from weblake_service.web.connection_pools import ConnectionPools
from weblake_service.web.decompression import BodyDecoder
from weblake_service.web.redirect_chain import RedirectChain

#: What the service calls itself; robots.txt rules for "weblake" apply to it.
USER_AGENT = "Mozilla/5.0 (compatible; weblake/0.1)"
_NETWORK = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.UnsupportedProtocol)
_DROPPED = (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """What a target answered, after redirects."""

    #: The address that answered, without credentials.
    url: str
    status: int
    #: Lower-case names; values of a repeated header are joined by ", ".
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Decompressed.
    body: bytes = b""
    content_type: str = ""
    #: The addresses that redirected here, first one first.
    redirects: tuple[str, ...] = ()
    #: The status in words.
    reason: str = ""
    #: What a browser made of it besides its source, by the name in the document: screenshot, branding, actions.
    captured: Mapping[str, object] = field(default_factory=dict)


class Fetcher:
    """Fetches URLs over pooled connections; one per service, closed with `aclose`.

    `allow_private` lets it reach loopback and private networks. `max_body` is the most bytes of one body. The proxies
    that the environment names are used, never for loopback; through a proxy the last word on an address is the proxy's.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        max_body: int = 64 << 20,
        user_agent: str = USER_AGENT,
        trust_env: bool = True,
    ) -> None:
        self.allow_private = allow_private
        self.max_body = max_body
        self.user_agent = user_agent
        self._pools = ConnectionPools(allow_private=allow_private, trust_env=trust_env)

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        verify: bool = False,
        max_body: int | None = None,
        cut: bool = False,
    ) -> FetchedResponse:
        """Return what the target answered, whatever its status; up to 10 redirects are followed.

        `timeout_s` is for everything, from the name to the last byte. `verify` checks certificates (off by default, as
        in the contract). A body over `max_body` (default: the fetcher's) is a failure, or with `cut` ends there. Raises
        PageFailure when there is no answer.
        """
        chain = RedirectChain(clean_url(url, allow_private=self.allow_private), headers or {}, self.user_agent)
        limit = self.max_body if max_body is None else max_body
        try:
            async with aio.timeout(timeout_s):
                while True:
                    fetched = await self._request_once(chain, verify, limit, cut)
                    if fetched is not None:
                        return fetched
        except TimeoutError as error:
            message = f"{url} did not answer in full within {timeout_s:g} s. Try again, or allow more with `timeout`."
            raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error

    async def post(
        self, url: str, body: bytes, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0
    ) -> int:
        """Post a body once, with checked certificates, and return the status; redirects are not followed.

        For webhooks, whose receivers are judged as any other target is. Raises PageFailure when there is no answer.
        """
        chain = RedirectChain(clean_url(url, allow_private=self.allow_private), headers or {}, self.user_agent)
        try:
            async with aio.timeout(timeout_s), self._translate_errors(chain):
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

    async def _request_once(self, chain: RedirectChain, verify: bool, limit: int, cut: bool) -> FetchedResponse | None:
        """One request; None where it was redirected."""
        async with self._translate_errors(chain):
            response = await self._send(chain, verify)
            try:
                return await self._read(chain, response, limit, cut)
            finally:
                await response.aclose()

    @asynccontextmanager
    async def _translate_errors(self, chain: RedirectChain) -> AsyncIterator[None]:
        """Turn what the network raises into a PageFailure."""
        try:
            yield
        except httpcore.LocalProtocolError as error:
            message = f"The headers for {chain.public_url} cannot be sent ({error}). Mend `headers`."
            raise PageFailure("BAD_REQUEST", message, status=400) from error
        except httpcore.ProxyError as error:
            message = f"The proxy did not reach {chain.public_url} ({error}). Check the proxy settings of the service."
            raise PageFailure("SCRAPE_PROXY_SELECTION_ERROR", message) from error
        except _NETWORK as error:
            raise _failure(chain.url, error) from error

    async def _send(self, chain: RedirectChain, verify: bool) -> httpcore.Response:
        pool = await self._pools.pool_for(chain.url, verify=verify)
        try:
            return await pool.handle_async_request(chain.request())
        except _DROPPED:
            # A kept connection that the server closed a moment ago looks like this; reading a page twice is harmless.
            return await pool.handle_async_request(chain.request())

    async def _read(
        self, chain: RedirectChain, response: httpcore.Response, limit: int, cut: bool
    ) -> FetchedResponse | None:
        headers = httpx.Headers(response.headers)
        if chain.follow(response.status, headers, self.allow_private):
            return None
        url = str(chain.public_url)
        body = BodyDecoder(headers.get("content-encoding", ""), limit, url, cut=cut)
        async for part in response.aiter_stream():
            body.feed(part)
            if body.full:
                break
        return FetchedResponse(
            url=url,
            status=response.status,
            headers={name: headers[name] for name in headers},
            body=body.finish(),
            content_type=headers.get("content-type", ""),
            redirects=tuple(chain.visited),
            reason=_reason(response),
        )


def _reason(response: httpcore.Response) -> str:
    try:
        return HTTPStatus(response.status).phrase
    except ValueError:
        said = response.extensions.get("reason_phrase", b"")
        return bytes(said).decode("latin-1").strip() or f"HTTP {response.status}"


def _failure(url: httpx.URL, error: Exception) -> PageFailure:
    text = str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            message = f"No secure connection to {url.host} ({text}). `skipTlsVerification` accepts its certificate."
            return PageFailure("SCRAPE_SSL_ERROR", message, reached=False)
        cause = cause.__cause__ or cause.__context__
    unconnected = isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout)
    if unconnected:
        message = f"{url.host} does not accept connections ({text}). Check that the site is up, and try again."
    else:
        message = f"{url.host} broke off its answer ({text}). Try again."
    return PageFailure("SCRAPE_SITE_ERROR", message, reached=not unconnected)
