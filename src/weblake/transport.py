"""Carries requests to the one origin that may see the key. Imports: bodies, deadlines, errors,
secrets, steps.

The only room with sockets. It follows no redirect, keeps no cookie, and turns whatever a network does into a Reply or
a NoReply. It stands on httpcore, httpx's network layer, because a total deadline needs its hand on every single read
(docs/decisions/002-httpcore.md): httpx's own timeouts begin anew with each byte that arrives.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from weblake.bodies import BodyRefused, BoundedBody
from weblake.deadlines import DeadlineBackend, ending
from weblake.errors import InvalidOption, WeblakeError
from weblake.secrets import ApiKey, BaseUrl, is_loopback, one_line
from weblake.steps import NoReply, Reply, Request

#: Seconds to open a connection, inside the request's own deadline.
CONNECT_S = 10.0
#: Connections that one client holds open.
MAX_CONNECTIONS = 100
#: What polls may have of them on an event loop: a cancel must not stand in line behind ten thousand polls.
MAX_POLLS = 64

_NOT_SENT = (
    httpcore.ConnectError,
    httpcore.ConnectTimeout,
    httpcore.PoolTimeout,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
_NETWORK = (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, *_NOT_SENT)


class _Wire:
    """What both transports do alike: address, headers, proxy, and the meaning of an exception."""

    def __init__(self, base: BaseUrl, key: ApiKey | None, user_agent: str) -> None:
        self.base = base
        self._key = key
        self._user_agent = user_agent
        self._proxy = _proxy_for(base)
        self._ssl: ssl.SSLContext | None = None

    def hide_key(self, error: WeblakeError) -> None:
        """Takes the key out of an error's texts, for services that repeat it in theirs."""
        if self._key is not None:
            self._key.hide_in(error)

    def _pool_options(self, *, fresh: bool) -> dict[str, Any]:
        if self._ssl is None and self.base.scheme == "https":
            self._ssl = httpx.create_ssl_context()
        options: dict[str, Any] = {
            "ssl_context": self._ssl,
            "max_connections": MAX_CONNECTIONS,
            "max_keepalive_connections": 0 if fresh else 20,
            "keepalive_expiry": 15.0,
        }
        if self._proxy is not None:
            options |= {"proxy_url": self._proxy[0], "proxy_auth": self._proxy[1]}
        return options

    def _build(self, request: Request) -> httpx.Request:
        """The wire form. httpx lays out the body, multipart included; it sends nothing."""
        headers: dict[str, Any] = {
            "host": self.base.netloc,
            "accept": "application/json",
            # On loopback the bytes are free and the processor is not.
            "accept-encoding": "identity" if is_loopback(self.base.host) else "gzip",
            "user-agent": self._user_agent,
            **dict(request.headers),
        }
        if self._key is not None:
            headers["authorization"] = self._key.header()
        url = self.base.join(request.path)
        if request.query:
            url += "?" + str(httpx.QueryParams(list(request.query)))
        if request.upload is None:
            if request.body is not None:
                headers["content-type"] = "application/json"
            return httpx.Request(request.method, url, headers=headers, content=request.body)
        upload = request.upload
        content = upload.source if isinstance(upload.source, bytes) else upload.source.read_bytes()
        return httpx.Request(
            request.method, url, headers=headers, files={"file": (upload.filename, content)}, data=dict(upload.fields)
        )

    def _extensions(self, request: Request) -> dict[str, Any]:
        limit = request.deadline_s
        return {"timeout": {"connect": min(CONNECT_S, limit), "read": limit, "write": limit, "pool": limit}}

    def _no_reply(self, error: Exception, request: Request) -> NoReply:
        sent = not isinstance(error, _NOT_SENT)
        certificate = _certificate_error(error)
        if certificate is not None:
            return NoReply(f"the TLS certificate of {self.base.origin} is not valid: {certificate}", sent, final=True)
        if isinstance(error, BodyRefused):
            return NoReply(str(error), final=error.final)
        if isinstance(error, OSError) and self._ssl is None and self.base.scheme == "https":
            named = "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"
            return NoReply(f"{named}: {error.strerror or error}", sent=False, final=True)
        where = self.base.origin if self._proxy is None else f"{self.base.origin} through the environment's proxy"
        if isinstance(error, httpcore.TimeoutException | TimeoutError):
            limit = CONNECT_S if isinstance(error, httpcore.ConnectTimeout) else request.deadline_s
            return NoReply(f"no complete answer from {where} within {limit:g} s", sent)
        text = one_line(str(error)) or type(error).__name__
        if self._key is not None:
            text = self._key.hide(text)
        return NoReply(f"{where}: {text}", sent, final=isinstance(error, httpcore.LocalProtocolError))


class HttpTransport(_Wire):
    """Sends requests from any thread; a forked child opens connections of its own."""

    def __init__(self, base: BaseUrl, key: ApiKey | None, *, user_agent: str = "weblake") -> None:
        super().__init__(base, key, user_agent)
        self._pools: dict[bool, httpcore.ConnectionPool] = {}
        self._pid = os.getpid()

    def send(self, request: Request) -> Reply | NoReply:
        """Sends one request; see steps.Request for its bounds."""
        until = time.monotonic() + request.deadline_s
        wire = self._build(request)
        try:
            with (
                ending(until),
                self._pool(request.fresh).stream(
                    wire.method,
                    str(wire.url),
                    headers=wire.headers.raw,
                    content=wire.read() or None,
                    extensions=self._extensions(request),
                ) as response,
            ):
                wall = time.time()
                body = BoundedBody(response.headers, request)
                for part in response.iter_stream():
                    if body.feed(part):
                        break
                    if time.monotonic() > until:
                        raise httpcore.ReadTimeout("deadline")
                return body.reply(response.status, wall)
        except (*_NETWORK, BodyRefused, OSError) as error:
            return self._no_reply(error, request)

    def _pool(self, fresh: bool) -> httpcore.ConnectionPool:
        if self._pid != os.getpid():
            self._pools, self._pid = {}, os.getpid()
        if fresh not in self._pools:
            options = self._pool_options(fresh=fresh) | {"network_backend": DeadlineBackend()}
            kind = httpcore.ConnectionPool if self._proxy is None else httpcore.HTTPProxy
            self._pools[fresh] = kind(**options)
        return self._pools[fresh]

    def close(self) -> None:
        """Closes the connections that this process opened."""
        if self._pid == os.getpid():
            for pool in self._pools.values():
                pool.close()
        self._pools = {}


class AsyncHttpTransport(_Wire):
    """The same on one event loop, which enforces the deadline itself. Many at once wait their turn, inside it."""

    def __init__(self, base: BaseUrl, key: ApiKey | None, *, user_agent: str = "weblake") -> None:
        super().__init__(base, key, user_agent)
        self._lines: dict[str, _Line] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: Request) -> Reply | NoReply:
        """Sends one request; see steps.Request for its bounds."""
        in_line = True
        try:
            async with asyncio.timeout(request.deadline_s), self._line(request).connection() as connection:
                in_line = False
                wire = self._build(request)
                async with connection.stream(
                    wire.method,
                    str(wire.url),
                    headers=wire.headers.raw,
                    content=wire.read() or None,
                    extensions=self._extensions(request),
                ) as response:
                    wall = time.time()
                    body = BoundedBody(response.headers, request)
                    async for part in response.aiter_stream():
                        if body.feed(part):
                            break
                    return body.reply(response.status, wall)
        except (*_NETWORK, BodyRefused, OSError) as error:
            return self._no_reply(httpcore.PoolTimeout() if in_line else error, request)

    def _line(self, request: Request) -> _Line:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections belong to the loop that opened them; those of a closed loop are lost with it.
            self._lines, self._loop = {}, loop
        kind = "start" if request.fresh else "call" if request.enough is None else "poll"
        if kind not in self._lines:
            most = {"start": MAX_CONNECTIONS, "call": MAX_CONNECTIONS - MAX_POLLS, "poll": MAX_POLLS}[kind]
            self._lines[kind] = _Line(most, lambda: self._opened(fresh=request.fresh))
        return self._lines[kind]

    def _opened(self, *, fresh: bool) -> httpcore.AsyncConnectionPool:
        kind = httpcore.AsyncConnectionPool if self._proxy is None else httpcore.AsyncHTTPProxy
        return kind(**self._pool_options(fresh=fresh) | {"max_connections": 1})

    async def aclose(self) -> None:
        """Closes the connections that were opened on the running loop."""
        lines, self._lines = self._lines, {}
        if self._loop is asyncio.get_running_loop():
            for line in lines.values():
                await line.aclose()


class _Line:
    """Where the requests of one kind wait for a connection, each a pool of one.

    A large pool of httpcore's walks all of its connections, and all requests that wait, whenever a request comes or
    goes: with a thousand waiting, the event loop stood still for ten seconds. Here either costs nothing.
    """

    def __init__(self, most: int, make: Callable[[], httpcore.AsyncConnectionPool]) -> None:
        self._turns = asyncio.Semaphore(most)
        self._make = make
        self._lent: set[httpcore.AsyncConnectionPool] = set()
        #: The one used last is at the end and taken first; the others are left to their expiry.
        self._free: list[httpcore.AsyncConnectionPool] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        """Lends one, first come, first served."""
        async with self._turns:
            mine = self._free.pop() if self._free else self._make()
            self._lent.add(mine)
            try:
                yield mine
                self._free.append(mine)
            except BaseException:
                # A request that was cancelled at the wrong moment can leave its pool taken for good.
                await mine.aclose()
                raise
            finally:
                self._lent.discard(mine)

    async def aclose(self) -> None:
        """Closes them all."""
        for pool in [*self._free, *self._lent]:
            await pool.aclose()


def _certificate_error(error: BaseException | None) -> str | None:
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, ssl.SSLCertVerificationError):
            return one_line(error.verify_message or str(error))
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None


def _proxy_for(base: BaseUrl) -> tuple[str, tuple[bytes, bytes] | None] | None:
    """The environment's proxy for this origin; never one for loopback."""
    if is_loopback(base.host) or urllib.request.proxy_bypass(base.netloc):
        return None
    proxies = urllib.request.getproxies()
    found = proxies.get(base.scheme) or proxies.get("all")
    if not found:
        return None
    try:
        url = httpx.URL(found if "://" in found else f"http://{found}")
        _ = urlsplit(str(url)).port  # httpx takes any number for one
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")  # it may hold a password, so it is not shown
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidOption(
            f"The environment names a proxy that weblake cannot use ({url.scheme or 'its address cannot be read'}).",
            hint="Set HTTPS_PROXY to an http:// proxy, or NO_PROXY for the service's host.",
        )
    auth = (url.username.encode(), url.password.encode()) if url.username else None
    return str(url.copy_with(username=None, password=None)), auth
