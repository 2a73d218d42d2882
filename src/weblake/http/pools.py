"""httpx transports over httpcore's connection pools, with a network backend that keeps total deadlines.

`httpx.HTTPTransport` accepts no network backend, so these two classes do its work: they translate requests, responses
and exceptions between httpx and httpcore.
"""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from weblake import aio
from weblake.http.deadlines import MIN_ADDRESS_S, DeadlineBackend
from weblake.http.library import httpcore, httpx
from weblake.http.resolver import look_up
from weblake.http.response_end import ResponseEnd

#: Maximum number of idle connections of a pool: after a burst of requests, few connections are needed.
MAX_IDLE = 20
#: Seconds that an idle connection is kept.
KEEPALIVE_S = 15.0

_CORE_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


class PoolTransport(httpx.BaseTransport):
    """A blocking, thread-safe transport; each request obeys the deadline that `deadlines.ending` sets.

    Args:
        ssl_context: TLS context for an https service or proxy.
        proxy: The proxy for all requests, or None.
        max_connections: Maximum number of connections at a time; further requests wait.
        keep_alive: Whether a connection is used for more than one request.
    """

    def __init__(
        self, ssl_context: ssl.SSLContext | None, proxy: httpx.Proxy | None, *, max_connections: int, keep_alive: bool
    ) -> None:
        options = _pool_options(ssl_context, proxy, max_connections, keep_alive=keep_alive)
        kind = httpcore.ConnectionPool if proxy is None else httpcore.HTTPProxy
        self._pool = kind(**options, network_backend=DeadlineBackend())
        self._closed = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response, whose body has not been read."""
        with _translate_errors():
            response = self._pool.handle_request(_core_request(request))
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_ClosingBody(response, lambda: self._closed),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Close all connections; one that a thread is making is closed after its response."""
        self._closed = True
        self._pool.close()


class AsyncPoolTransport(httpx.AsyncBaseTransport):
    """A transport for one event loop, with PoolTransport's arguments. The caller sets the timeout of each request."""

    def __init__(
        self, ssl_context: ssl.SSLContext | None, proxy: httpx.Proxy | None, *, max_connections: int, keep_alive: bool
    ) -> None:
        options = _pool_options(ssl_context, proxy, max_connections, keep_alive=keep_alive)
        kind = httpcore.AsyncConnectionPool if proxy is None else httpcore.AsyncHTTPProxy
        self._pool = kind(**options, network_backend=_AsyncBackend())
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response, whose body has not been read."""
        with _translate_errors():
            response = await self._pool.handle_async_request(_core_request(request))
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_AsyncClosingBody(response, lambda: self._closed),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections; one that a task is making is closed after its response."""
        self._closed = True
        await self._pool.aclose()


class _ClosingBody(httpx.SyncByteStream):
    """A body that closes its connection, too, if the pool was closed before: httpcore's pool has forgotten it then."""

    def __init__(self, response: httpcore.Response, pool_closed: Callable[[], bool]) -> None:
        self._response, self._pool_closed = response, pool_closed

    def __iter__(self) -> Iterator[bytes]:
        with _translate_errors():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()
        if self._pool_closed():
            self._response.extensions["network_stream"].close()


class _AsyncClosingBody(httpx.AsyncByteStream):
    """As `_ClosingBody`."""

    def __init__(self, response: httpcore.Response, pool_closed: Callable[[], bool]) -> None:
        self._response, self._pool_closed = response, pool_closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _translate_errors():
            async for part in self._response.aiter_stream():
                yield part

    async def aclose(self) -> None:
        await self._response.aclose()
        if self._pool_closed():
            await self._response.extensions["network_stream"].aclose()


class _AsyncStream(httpcore.AsyncNetworkStream):
    """A network stream that is not reused if bytes arrived after the end of a response."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._end = ResponseEnd()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the bytes that are there, at most `max_bytes`; b"" at the end."""
        data = await self._inner.read(max_bytes, timeout)
        self._end.feed(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        self._end.expect_response()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Return the connection with TLS."""
        return _AsyncStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return information about the socket; httpcore does not reuse an idle connection that `is_readable`."""
        if info == "is_readable" and self._end.exceeded:
            return True
        return self._inner.get_extra_info(info)


class _AsyncBackend(httpcore.AsyncNetworkBackend):
    """A network backend that looks up hosts in daemon threads and connects to the first address that accepts."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **kwargs: Any
    ) -> httpcore.AsyncNetworkStream:
        """Connect within `timeout` seconds in total; each address in order gets its share of the remaining time."""
        failure: Exception | None = None
        try:
            async with aio.timeout(timeout):
                until = time.monotonic() + (math.inf if timeout is None else timeout)
                addresses = await asyncio.wrap_future(look_up(host, port))
                for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
                    share = max(MIN_ADDRESS_S, (until - time.monotonic()) / left)
                    try:
                        return _AsyncStream(await self._network.connect_tcp(address, port, share))
                    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                        failure = error
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"no connection to {host} in time") from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        raise failure or httpcore.ConnectError(f"{host} has no address")


def _pool_options(
    ssl_context: ssl.SSLContext | None, proxy: httpx.Proxy | None, max_connections: int, *, keep_alive: bool
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "ssl_context": ssl_context,
        "max_connections": max_connections,
        "max_keepalive_connections": MAX_IDLE if keep_alive else 0,
        "keepalive_expiry": KEEPALIVE_S,
    }
    if proxy is not None:
        options |= {"proxy_url": str(proxy.url), "proxy_auth": proxy.raw_auth}
        if proxy.url.scheme == "https":
            options |= {"proxy_ssl_context": ssl_context}
    return options


def _core_request(request: httpx.Request) -> httpcore.Request:
    url = request.url
    return httpcore.Request(
        request.method,
        httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert httpcore's exceptions to the httpx exceptions of the same name."""
    try:
        yield
    except _CORE_ERRORS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error
