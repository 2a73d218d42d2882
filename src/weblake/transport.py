"""Carries requests to the one origin that may see the key. Imports: bodies, deadlines, errors, http11,
loop_connections, loop_lines, loop_streams, secrets, steps, thread_connections, thread_lines.

The only room that sends. It follows no redirect, keeps no cookie, and turns whatever a network does into a Reply or
a NoReply. It stands on httpcore, httpx's network layer, because a total deadline needs its hand on every single read
(docs/decisions/002-httpcore.md): httpx's own timeouts begin anew with each byte that arrives. Connections are our own
(docs/decisions/030-polls-on-h11.md), but for those through a proxy.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
import urllib.request
from collections.abc import Callable
from contextlib import aclosing, closing
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpcore
import httpx

from weblake import aio
from weblake.bodies import BodyRefused, BoundedBody
from weblake.connections import Connection
from weblake.credentials import ApiKey, BaseUrl, is_loopback, one_line
from weblake.deadlines import DeadlineBackend, ending
from weblake.errors import InvalidOption, WeblakeError
from weblake.http11 import KEEP_S
from weblake.loop_connections import LoopConnection
from weblake.loop_lines import Line
from weblake.loop_streams import LoopBackend
from weblake.steps import NoReply, Reply, Request
from weblake.thread_connections import ThreadBody, ThreadConnection
from weblake.thread_lines import ThreadLine

#: Seconds to open a connection, inside the request's own deadline.
CONNECT_S = 10.0
#: Connections that one client holds open.
MAX_CONNECTIONS = 100
#: What polls may have of them on an event loop: a cancel must not stand in line behind ten thousand polls.
MAX_POLLS = 64

#: A path and a query that mean the same to everybody, without a letter to be encoded or a dot to be resolved.
_PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_-]+)+")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_-]+")

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
        self._headers = self._own_headers()
        self._wire_headers = [(k.encode(), v.encode() if isinstance(v, str) else v) for k, v in self._headers.items()]
        self._address = httpcore.URL(str(base))
        self._is_plain = not base.prefix or _PLAIN_PATH.fullmatch(base.prefix) is not None

    def hide_key(self, error: WeblakeError) -> None:
        """Takes the key out of an error's texts, for services that repeat it in theirs."""
        if self._key is not None:
            self._key.hide_in(error)

    def _pool_options(self) -> dict[str, Any]:
        if self._ssl is None and self.base.scheme == "https":
            self._ssl = httpx.create_ssl_context()
        options: dict[str, Any] = {"ssl_context": self._ssl, "keepalive_expiry": KEEP_S}
        if self._proxy is not None:
            options |= {"proxy_url": self._proxy[0], "proxy_auth": self._proxy[1]}
        return options

    def _own_headers(self) -> dict[str, Any]:
        headers: dict[str, Any] = {
            "host": self.base.netloc,
            "accept": "application/json",
            # On loopback the bytes are free and the processor is not.
            "accept-encoding": "identity" if is_loopback(self.base.host) else "gzip",
            "user-agent": self._user_agent,
        }
        if self._key is not None:
            headers["authorization"] = self._key.header()
        return headers

    def _wired(self, request: Request) -> httpcore.Request:
        """The request as it is sent. A poll's is put together here: by way of httpx that was a sixth of its cost."""
        target = _plain_target(request) if self._is_plain else None
        if target is not None:
            at = self._address
            url = httpcore.URL(scheme=at.scheme, host=at.host, port=at.port, target=self.base.prefix + target)
            return httpcore.Request("GET", url, headers=self._wire_headers, extensions=self._extensions(request))
        wire = self._build(request)
        return httpcore.Request(
            wire.method,
            str(wire.url),
            headers=wire.headers.raw,
            content=wire.read() or None,
            extensions=self._extensions(request),
        )

    def _build(self, request: Request) -> httpx.Request:
        """The wire form. httpx lays out the body, multipart included; it sends nothing."""
        # What a request brings replaces what is sent with all of them, but never the key.
        headers = {**self._headers, **dict(request.headers)}
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
            limit = request.deadline_s
            if isinstance(error, httpcore.ConnectTimeout):
                limit = min(CONNECT_S, limit)
            return NoReply(f"no complete answer from {where} within {limit:g} s", sent)
        text = one_line(str(error)) or type(error).__name__
        if self._key is not None:
            text = self._key.hide(text)
        return NoReply(f"{where}: {text}", sent, final=isinstance(error, httpcore.LocalProtocolError))


class HttpTransport(_Wire):
    """Sends requests from any thread; a forked child opens connections of its own."""

    def __init__(self, base: BaseUrl, key: ApiKey | None, *, user_agent: str = "weblake") -> None:
        super().__init__(base, key, user_agent)
        self._lines: dict[bool, ThreadLine] = {}
        self._pid = os.getpid()

    def send(self, request: Request) -> Reply | NoReply:
        """Sends one request; see steps.Request for its bounds."""
        until = time.monotonic() + request.deadline_s
        try:
            line = self._line(request.fresh)
            wire = self._wired(request)
            with (
                ending(until),
                line.lent(request.deadline_s) as connection,
                closing(connection.handle_request(wire)) as response,
            ):
                wall = time.time()
                body = BoundedBody(response.headers, request)
                if isinstance(response.stream, ThreadBody):
                    response.stream.into = body
                for part in response.iter_stream():
                    if body.feed(part):
                        break
                    if time.monotonic() > until:
                        raise httpcore.ReadTimeout("deadline")
                return body.reply(response.status, wall)
        except (*_NETWORK, BodyRefused, OSError) as error:
            return self._no_reply(error, request)

    def _line(self, fresh: bool) -> ThreadLine:
        if self._pid != os.getpid():
            self._lines, self._pid = {}, os.getpid()
        line = self._lines.get(fresh)
        if line is None:  # two threads that come first share one
            line = self._lines.setdefault(fresh, ThreadLine(MAX_CONNECTIONS, self._maker(), keep=not fresh))
        return line

    def _maker(self) -> Callable[[], httpcore.ConnectionInterface]:
        options = self._pool_options()
        if self._proxy is None:
            return partial(ThreadConnection, self._address.origin, self._ssl)
        # Nothing is sent through this pool: it knows how a connection through a proxy is made.
        proxy = httpcore.HTTPProxy(**options, network_backend=DeadlineBackend())
        return partial(proxy.create_connection, self._address.origin)

    def close(self) -> None:
        """Closes the connections that this process opened."""
        lines, self._lines = self._lines, {}
        if self._pid == os.getpid():
            for line in lines.values():
                line.close()


class AsyncHttpTransport(_Wire):
    """The same on one event loop, which enforces the deadline itself. Many at once wait their turn, inside it."""

    def __init__(self, base: BaseUrl, key: ApiKey | None, *, user_agent: str = "weblake") -> None:
        super().__init__(base, key, user_agent)
        self._lines: dict[str, Line] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, request: Request) -> Reply | NoReply:
        """Sends one request; see steps.Request for its bounds."""
        line = connection = None
        try:
            line = self._line(request)
            async with aio.timeout(request.deadline_s):
                connection = await line.lent()
                wire = self._wired(request)
                async with aclosing(await connection.handle_async_request(wire)) as response:
                    wall = time.time()
                    body = BoundedBody(response.headers, request)
                    async for part in response.aiter_stream():
                        if body.feed(part):
                            break
                    return body.reply(response.status, wall)
        except (*_NETWORK, BodyRefused, OSError) as error:
            return self._no_reply(_unsent(connection) or error if isinstance(error, TimeoutError) else error, request)
        finally:
            if line is not None and connection is not None:
                await line.back(connection)

    def _line(self, request: Request) -> Line:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # Connections belong to the loop that opened them; those of a closed loop are lost with it.
            self._lines, self._loop = {}, loop
        kind = "start" if request.fresh else "call" if request.enough is None else "poll"
        if kind not in self._lines:
            most = {"start": MAX_CONNECTIONS, "call": MAX_CONNECTIONS - MAX_POLLS, "poll": MAX_POLLS}[kind]
            self._lines[kind] = Line(most, self._maker(), keep=not request.fresh)
        return self._lines[kind]

    def _maker(self) -> Callable[[], httpcore.AsyncConnectionInterface]:
        options = self._pool_options()
        if self._proxy is None:
            return partial(LoopConnection, self._address.origin, self._ssl)
        # Nothing is sent through this pool: it knows how a connection through a proxy is made.
        proxy = httpcore.AsyncHTTPProxy(**options, network_backend=LoopBackend())
        return partial(proxy.create_connection, self._address.origin)

    async def aclose(self) -> None:
        """Closes the connections that were opened on the running loop."""
        lines, self._lines = self._lines, {}
        if self._loop is asyncio.get_running_loop():
            for line in lines.values():
                await line.aclose()


def _unsent(connection: object) -> Exception | None:
    """Return the error for a deadline that passed before anything was sent, or None: asyncio's does not tell."""
    if connection is None:
        return httpcore.PoolTimeout()
    opened = not isinstance(connection, Connection) or connection.was_opened
    return None if opened else httpcore.ConnectTimeout()


def _plain_target(request: Request) -> str | None:
    """Path and query of a GET that has nothing else, and nothing to be encoded; None for any other request."""
    if request.method != "GET" or request.headers or request.body is not None or request.upload is not None:
        return None
    if _PLAIN_PATH.fullmatch(request.path) is None:
        return None
    if not request.query:
        return request.path
    if not all(_PLAIN_WORD.fullmatch(word) for pair in request.query for word in pair):
        return None
    return f"{request.path}?{'&'.join(f'{name}={value}' for name, value in request.query)}"


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
