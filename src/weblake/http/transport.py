"""Send requests to the service's origin, the only one that gets the API key.

The transports follow no redirects, keep no cookies, and return every outcome of the network as a Response or a
NoResponse. They send over httpx: with the caller's client, or with weblake's own transports, whose network layer keeps
a total deadline (docs/decisions/054-http-on-httpx.md).
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from weblake import aio
from weblake.credentials import ApiKey, BaseUrl, is_loopback, one_line
from weblake.errors import InvalidOption
from weblake.http.bodies import BodyRefused, BoundedBody
from weblake.http.deadlines import ending
from weblake.http.failures import (
    certificate_problem,
    class_names,
    clear_locals,
    client_certificate_alert,
    is_failure,
    text_of,
    was_sent,
)
from weblake.http.library import AsyncHttpClient, HttpClient, httpx, library_of
from weblake.http.options import HttpOptions, TrustStoreUnreadable
from weblake.http.pools import AsyncPoolTransport, PoolTransport
from weblake.remedies import Remedy
from weblake.steps import NoResponse, Request, Response

#: Maximum seconds to open a connection, within the request's deadline.
CONNECT_S = 10.0
#: Share of a short deadline for connecting, so that the failure is reported as a connection that was not made.
CONNECT_SHARE = 0.9
#: Maximum number of open connections of one client.
MAX_CONNECTIONS = 100
#: Maximum number of these for polls on an event loop, so that a cancel does not wait for ten thousand polls.
MAX_POLLS = 64
#: aiohttp rounds a timeout above five seconds up to the next whole second of its clock.
ROUNDED_ABOVE_S, ROUNDING_S = 5.0, 1.1


class _Requests:
    """Base class of both transports: builds requests and converts exceptions to NoResponse."""

    def __init__(self, base: BaseUrl, key: ApiKey, client: Any, kind: str, options: HttpOptions | None) -> None:
        self.base = base
        self._key = key
        self._client = client
        self._library = library_of(client, kind)
        self._options = options or HttpOptions()
        #: None for a caller's client, which has its own proxies.
        self._proxy = self._options.proxy_for(base) if client is None else None
        self._ssl: ssl.SSLContext | None = None
        self._headers: dict[str, Any] = {
            "host": base.netloc,
            "accept": "application/json",
            # On loopback, compression costs more CPU time than it saves in transfer.
            "accept-encoding": "identity" if is_loopback(base.host) else "gzip",
            "user-agent": "weblake",
            "authorization": key.header(),
        }

    def _ssl_context(self) -> ssl.SSLContext | None:
        over_tls = self.base.scheme == "https" or (self._proxy is not None and self._proxy.url.scheme == "https")
        if self._ssl is None and over_tls:
            self._ssl = self._options.ssl_context()
        return self._ssl

    def _build(self, request: Request, client_headers: Any = ()) -> Any:
        """Return the HTTP library's request object; `client_headers` are the headers of a caller's client."""
        # A request's headers override the common ones, and those override the client's. The key is never overridden.
        headers = {**dict(client_headers), **self._headers, **dict(request.headers)}
        headers["authorization"] = self._headers["authorization"]
        url = self.base.join(request.path)
        if request.query:
            url += "?" + str(self._library.QueryParams(list(request.query)))
        extensions = {"timeout": self._timeouts(request)}
        build = partial(self._library.Request, request.method, url, headers=headers, extensions=extensions)
        if request.upload is None:
            if request.body is not None:
                headers["content-type"] = "application/json"
            return build(content=request.body)
        upload = request.upload
        content = upload.source if isinstance(upload.source, bytes) else _read_file(upload.source)
        return build(files={"file": (upload.filename, content)}, data=dict(upload.fields))

    def _timeouts(self, request: Request) -> dict[str, float | None]:
        limit = request.deadline_s
        return {"connect": self._connect_timeout(request), "read": limit, "write": limit, "pool": limit}

    def _connect_timeout(self, request: Request) -> float:
        return min(CONNECT_S, request.deadline_s * CONNECT_SHARE)

    def _no_response(self, error: BaseException, request: Request, *, sent: bool | None = None) -> NoResponse:
        if isinstance(error, BodyRefused):
            return NoResponse(str(error), final=error.final)
        if isinstance(error, TrustStoreUnreadable):
            return NoResponse(str(error), sent=False, final=True)
        sent = was_sent(error) if sent is None else sent
        certificate = certificate_problem(error)
        if certificate is not None:
            whose = self.base.origin
            if self._proxy is not None and self._proxy.url.scheme == "https":
                whose += f" or of the proxy {self._proxy.url}"
            return NoResponse(f"the TLS certificate of {whose} is not valid: {certificate}", sent, final=True)
        if "InvalidURL" in class_names(error):
            # A caller's client parses the address of a redirect although it does not follow redirects.
            reason = f"{self.base.origin} answered with a redirect to an address that cannot be read"
            return NoResponse(
                reason, final=True, hint=Remedy("Set {base_url} to the address that the service itself uses.")
            )
        where = self.base.origin
        if self._proxy is not None:
            whose = "the environment's proxy" if self._options.proxy is None else "the proxy"
            where += f" through {whose} {self._proxy.url}"  # without user name and password
        alert = client_certificate_alert(error)
        if alert is not None:
            reason = f"{where}: the TLS client certificate is missing or not accepted ({alert})"
            return NoResponse(reason, sent=False, final=True, hint="Set a client certificate that the service accepts.")
        failed = class_names(error)
        if "TimeoutException" in failed or isinstance(error, TimeoutError):
            limit = request.deadline_s
            if "ConnectTimeout" in failed:
                limit = min(CONNECT_S, limit)
            return NoResponse(f"no complete answer from {where} within {limit:g} s", sent)
        text = self._key.redact(one_line(text_of(error)))
        if "ProxyError" in failed and "407" in text:
            reason = f"{where}: the proxy asks for a user name and a password (407)"
            hint = "Check them in the proxy's URL: http://user:password@host:port, percent-encoded."
            return NoResponse(reason, sent=False, final=True, hint=hint)
        return NoResponse(f"{where}: {text}", sent, final="LocalProtocolError" in failed)


class HttpTransport(_Requests):
    """A blocking, thread-safe transport; a forked child process opens its own connections.

    Args:
        base: The service's base URL.
        key: The API key, sent as a bearer token.
        http_client: An httpx or httpx2 client to send with; it is not closed.
        options: Proxy and TLS settings, used if `http_client` is None.

    Raises:
        InvalidOption: The proxy cannot be used, or `http_client` is not a blocking client.
    """

    def __init__(
        self,
        base: BaseUrl,
        key: ApiKey,
        *,
        http_client: HttpClient | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        super().__init__(base, key, http_client, "Client", options)
        self._pools: dict[bool, PoolTransport] = {}
        self._pid = os.getpid()

    def send(self, request: Request) -> Response | NoResponse:
        """Send one request within the limits that it sets, and return its response or a NoResponse."""
        until = time.monotonic() + request.deadline_s
        try:
            with ending(until), closing(self._response(request)) as response, self._shut_down_at(response, until):
                received_at = time.time()
                body = BoundedBody(response.headers.raw, request)
                for part in response.stream:
                    if body.feed(part):
                        break
                    if time.monotonic() > until:
                        raise httpx.ReadTimeout("deadline")
                return body.response(response.status_code, received_at)
        except BaseException as error:
            if not is_failure(error):
                clear_locals(error)
                raise
            if self._client is not None and time.monotonic() > until and was_sent(error):
                error = TimeoutError()
            return self._no_response(error, request)

    def _response(self, request: Request) -> Any:
        if self._client is None:
            return self._pool(request.new_connection).handle_request(self._build(request))
        built = self._build(request, self._client.headers)
        # The client's authentication would replace the key.
        return self._client.send(built, stream=True, auth=None, follow_redirects=False)

    def _pool(self, new_connection: bool) -> PoolTransport:
        if self._pid != os.getpid():
            self._pools, self._pid = {}, os.getpid()
        pool = self._pools.get(new_connection)
        if pool is None:  # of two threads that create one, both use the first
            new_pool = PoolTransport(
                self._ssl_context(), self._proxy, max_connections=MAX_CONNECTIONS, keep_alive=not new_connection
            )
            pool = self._pools.setdefault(new_connection, new_pool)
        return pool

    @contextmanager
    def _shut_down_at(self, response: Any, until: float) -> Iterator[None]:
        """Shut down the connection of a caller's client at the deadline, because the client's timeouts are per read."""
        network = None if self._client is None else response.extensions.get("network_stream")
        connection = None if network is None else network.get_extra_info("socket")
        if not isinstance(connection, socket.socket):
            yield
            return
        timer = threading.Timer(max(0.0, until - time.monotonic()), _shut_down, (connection,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close the connections that this process opened."""
        pools, self._pools = self._pools, {}
        if self._pid == os.getpid():
            for pool in pools.values():
                pool.close()


@dataclass(slots=True)
class _LoopConnections:
    """The connection pools of one event loop, and the semaphores that limit its requests."""

    pools: dict[bool, httpx.AsyncBaseTransport] = field(default_factory=dict)
    slots: dict[str, asyncio.Semaphore] = field(default_factory=dict)


class AsyncHttpTransport(_Requests):
    """A transport for event loops, with HttpTransport's arguments. The deadline includes the time in the queue.

    Each loop has its own connections; loops of several threads may use the transport at the same time. Without a
    caller's client it sends over aiohttp if the package httpx-aiohttp is installed, and otherwise over httpcore's pool.
    """

    def __init__(
        self,
        base: BaseUrl,
        key: ApiKey,
        *,
        http_client: AsyncHttpClient | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        super().__init__(base, key, http_client, "AsyncClient", options)
        # Importing aiohttp can take a second, which must not count for a request's deadline.
        self._make_pool = _async_transport(base, self._proxy) if http_client is None else AsyncPoolTransport
        self._loops: dict[asyncio.AbstractEventLoop, _LoopConnections] = {}

    async def send(self, request: Request) -> Response | NoResponse:
        """Send one request within the limits that it sets, and return its response or a NoResponse."""
        waiting = True
        try:
            async with aio.timeout(request.deadline_s), self._slot(request):
                waiting = False
                async with aclosing(await self._response(request)) as response:
                    received_at = time.time()
                    body = BoundedBody(response.headers.raw, request)
                    async for part in response.stream:
                        if body.feed(part):
                            break
                    return body.response(response.status_code, received_at)
        except BaseException as error:
            if not is_failure(error):
                clear_locals(error)
                raise
            return self._no_response(error, request, sent=False if waiting else None)

    def _connections(self) -> _LoopConnections:
        """Return the connections of the running loop, the only one that can use them."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is None:
            for closed in [each for each in list(self._loops) if each.is_closed()]:
                self._loops.pop(closed, None)
            found = self._loops[loop] = _LoopConnections()
        return found

    def _slot(self, request: Request) -> asyncio.Semaphore:
        slots = self._connections().slots
        kind = "start" if request.new_connection else "call" if request.stop_when is None else "poll"
        if kind not in slots:
            most = {"start": MAX_CONNECTIONS, "call": MAX_CONNECTIONS - MAX_POLLS, "poll": MAX_POLLS}[kind]
            slots[kind] = asyncio.Semaphore(most)
        return slots[kind]

    async def _response(self, request: Request) -> Any:
        if self._client is None:
            return await self._pool(request.new_connection).handle_async_request(self._build(request))
        built = self._build(request, self._client.headers)
        # The client's authentication would replace the key.
        return await self._client.send(built, stream=True, auth=None, follow_redirects=False)

    def _timeouts(self, request: Request) -> dict[str, float | None]:
        connect = self._connect_timeout(request)
        if connect > ROUNDED_ABOVE_S:
            # Else the deadline could pass first, and a start that was never sent would count as one that was.
            connect = min(connect, request.deadline_s - ROUNDING_S)
        # `send` keeps the whole deadline. aiohttp uses `pool` for queueing, lookup and connecting together.
        return {"connect": connect, "read": None, "write": None, "pool": connect if self._client is None else None}

    def _pool(self, new_connection: bool) -> httpx.AsyncBaseTransport:
        pools = self._connections().pools
        if new_connection not in pools:
            pools[new_connection] = self._make_pool(
                self._ssl_context(), self._proxy, max_connections=MAX_CONNECTIONS, keep_alive=not new_connection
            )
        return pools[new_connection]

    async def aclose(self) -> None:
        """Close the connections that were opened on the running loop."""
        mine = self._connections()
        pools, mine.pools = mine.pools, {}
        for pool in pools.values():
            await pool.aclose()


def _async_transport(base: BaseUrl, proxy: httpx.Proxy | None) -> Callable[..., httpx.AsyncBaseTransport]:
    if base.scheme == "https" and proxy is not None and proxy.url.scheme == "https":
        # aiohttp needs TLS in TLS of asyncio: Python 3.10 has none, and 3.11 reports a failed handshake as a TypeError,
        # after which a start would count as one that was sent.
        return AsyncPoolTransport
    try:
        from weblake.http.aiohttp_transport import aiohttp_transport
    except ImportError:
        return AsyncPoolTransport
    return aiohttp_transport


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:  # would count as a failure of the network
        reason = error.strerror or str(error)
        raise InvalidOption(f"`file` cannot be read: {path}: {reason}.", hint="Check the path.") from None


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        # Not SSLSocket.shutdown, which would change state that a reading thread uses.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
