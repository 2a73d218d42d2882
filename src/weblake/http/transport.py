"""Send requests to the service's origin, the only one that gets the API key.

The transports follow no redirects, keep no cookies, and return every outcome of the network as a Response or a
NoResponse. They send over httpx: with the caller's client, or over a new connection for each request, so that nothing
of one response can be read as another one (docs/decisions/054-http-on-httpx.md).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import httpx

from weblake.api.steps import NoResponse, Request, Response
from weblake.credentials import ApiKey, BaseUrl, is_loopback, one_line
from weblake.errors import InvalidOption, Remedy
from weblake.http.bodies import BodyRefused, BoundedBody
from weblake.http.failures import FAILURES, certificate_problem, client_certificate_alert, text_of, was_sent
from weblake.http.options import HttpOptions, TrustStoreUnreadable

ClientT = TypeVar("ClientT", httpx.Client, httpx.AsyncClient)

#: Maximum seconds to open a connection, within the request's deadline.
CONNECT_S = 10.0
#: Share of a short deadline for connecting, so that the failure is reported as a connection that was not made.
CONNECT_SHARE = 0.9
#: Maximum number of polls under way on an event loop, and of all other requests: a cancel must not wait behind
#: thousands of polls.
MAX_POLLS, MAX_OTHERS = 64, 100


class _Requests(Generic[ClientT]):
    """Base class of both transports: builds requests and converts exceptions to NoResponse.

    Args:
        base: The service's base URL.
        key: The API key, sent as a bearer token.
        http_client: An httpx client to send with; it is not closed.
        options: Proxy and TLS settings, used if `http_client` is None.

    Raises:
        InvalidOption: The proxy cannot be used.
    """

    def __init__(
        self, base: BaseUrl, key: ApiKey, *, http_client: ClientT | None = None, options: HttpOptions | None = None
    ) -> None:
        self.base = base
        self._key = key
        self._client: ClientT | None = http_client
        self._options = options or HttpOptions()
        #: None for a caller's client, which has its own proxies.
        self._proxy = self._options.proxy_for(base) if http_client is None else None
        self._ssl: ssl.SSLContext | None = None
        #: The polls and the other requests that are under way on each event loop.
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, asyncio.Semaphore]]
        self._slots = WeakKeyDictionary()
        self._headers: dict[str, Any] = {
            "host": base.netloc,
            "accept": "application/json",
            # On loopback, compression costs more CPU time than it saves in transfer.
            "accept-encoding": "identity" if is_loopback(base.host) else "gzip",
            "user-agent": "weblake",
            "authorization": key.header(),
        }

    def _ssl_context(self) -> ssl.SSLContext:
        if self._ssl is None:
            proxy_tls = self._proxy is not None and self._proxy.url.scheme == "https"
            if self.base.scheme == "https" or proxy_tls:
                self._ssl = self._options.ssl_context()
            else:  # loading certificates takes 20 ms
                self._ssl = httpx.create_ssl_context(verify=False)
            if self._proxy is not None and proxy_tls:
                self._proxy.ssl_context = self._ssl
        return self._ssl

    def _build(self, request: Request, timeouts: Mapping[str, float | None], client_headers: Any = ()) -> httpx.Request:
        """Return httpx's request object; `client_headers` are the headers of a caller's client."""
        # A request's headers override the common ones, and those override the client's. The key is never overridden.
        headers = {**dict(client_headers), **self._headers, **dict(request.headers)}
        headers["authorization"] = self._headers["authorization"]
        url = self.base.join(request.path)
        if request.query:
            url += "?" + str(httpx.QueryParams(list(request.query)))
        build = partial(httpx.Request, request.method, url, headers=headers, extensions={"timeout": timeouts})
        if request.upload is None:
            if request.body is not None:
                headers["content-type"] = "application/json"
            return build(content=request.body)
        upload = request.upload
        content = upload.source if isinstance(upload.source, bytes) else _read_file(upload.source)
        return build(files={"file": (upload.filename, content)}, data=dict(upload.fields))

    def _no_response(self, error: Exception, request: Request, *, sent: bool) -> NoResponse:
        if isinstance(error, BodyRefused):
            return NoResponse(str(error), final=error.final)
        if isinstance(error, TrustStoreUnreadable):
            return NoResponse(str(error), sent=False, final=True)
        certificate = certificate_problem(error)
        if certificate is not None:
            whose = self.base.origin
            if self._proxy is not None and self._proxy.url.scheme == "https":
                whose += f" or of the proxy {self._proxy.url}"
            return NoResponse(f"the TLS certificate of {whose} is not valid: {certificate}", sent, final=True)
        if isinstance(error, httpx.InvalidURL):
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
        if isinstance(error, httpx.TimeoutException | TimeoutError):
            limit = request.deadline_s
            if isinstance(error, httpx.ConnectTimeout):
                limit = min(CONNECT_S, limit)
            return NoResponse(f"no complete answer from {where} within {limit:g} s", sent)
        text = self._key.redact(one_line(text_of(error)))
        if isinstance(error, httpx.ProxyError) and "407" in text:
            reason = f"{where}: the proxy asks for a user name and a password (407)"
            hint = "Check them in the proxy's URL: http://user:password@host:port, percent-encoded."
            return NoResponse(reason, sent=False, final=True, hint=hint)
        return NoResponse(f"{where}: {text}", sent, final=isinstance(error, httpx.LocalProtocolError))


class AsyncHttpTransport(_Requests[httpx.AsyncClient]):
    """A transport for event loops; loops of several threads may use it at the same time."""

    async def send(self, request: Request) -> Response | NoResponse:
        """Send one request within the limits that it sets, and return its response or a NoResponse.

        The deadline includes the time in the queue.
        """
        waiting = True
        try:
            async with asyncio.timeout(request.deadline_s), self._slot(request):
                waiting = False
                async with self._response(request) as response:
                    received_at = time.time()
                    body = BoundedBody(response.headers.raw, request)
                    assert isinstance(response.stream, httpx.AsyncByteStream)
                    async for part in response.stream:
                        if body.feed(part):
                            break
                    return body.response(response.status_code, received_at)
        except FAILURES as error:
            return self._no_response(error, request, sent=False if waiting else was_sent(error))

    def _slot(self, request: Request) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = asyncio.Semaphore(MAX_POLLS), asyncio.Semaphore(MAX_OTHERS)
        polls, others = self._slots[loop]
        return others if request.stop_when is None else polls

    @asynccontextmanager
    async def _response(self, request: Request) -> AsyncIterator[httpx.Response]:
        # `send` keeps the deadline.
        connect_s = min(CONNECT_S, request.deadline_s * CONNECT_SHARE)
        timeouts = {"connect": connect_s, "read": None, "write": None, "pool": None}
        if self._client is None:
            # An httpx.AsyncClient would log each poll at INFO.
            async with httpx.AsyncHTTPTransport(verify=self._ssl_context(), proxy=self._proxy) as transport:
                response = await transport.handle_async_request(self._build(request, timeouts))
                async with aclosing(response):
                    yield response
        else:
            built = self._build(request, timeouts, self._client.headers)
            # The client's authentication would replace the key.
            response = await self._client.send(built, stream=True, auth=None, follow_redirects=False)
            async with aclosing(response):
                yield response


class HttpTransport(_Requests[httpx.Client]):
    """A blocking, thread-safe transport."""

    def send(self, request: Request) -> Response | NoResponse:
        """Send one request within the limits that it sets, and return its response or a NoResponse."""
        deadline = _Deadline(request.deadline_s)
        try:
            with deadline, self._response(request, deadline) as response:
                received_at = time.time()
                body = BoundedBody(response.headers.raw, request)
                assert isinstance(response.stream, httpx.SyncByteStream)
                for part in response.stream:
                    if body.feed(part):
                        break
                    if deadline.has_passed:
                        raise TimeoutError
                return body.response(response.status_code, received_at)
        except FAILURES as error:
            sent = was_sent(error)
            return self._no_response(TimeoutError() if sent and deadline.has_passed else error, request, sent=sent)

    @contextmanager
    def _response(self, request: Request, deadline: _Deadline) -> Iterator[httpx.Response]:
        limit = request.deadline_s
        connect_s = min(CONNECT_S, limit * CONNECT_SHARE)
        timeouts = {"connect": connect_s, "read": limit, "write": limit, "pool": limit}
        built = self._build(request, timeouts, () if self._client is None else self._client.headers)
        built.extensions["trace"] = deadline.trace
        if self._client is None:
            with (
                httpx.HTTPTransport(verify=self._ssl_context(), proxy=self._proxy) as transport,
                closing(transport.handle_request(built)) as response,
            ):
                yield response
        else:
            # The client's authentication would replace the key.
            with closing(self._client.send(built, stream=True, auth=None, follow_redirects=False)) as response:
                yield response


class _Deadline:
    """Shuts down the connection of a blocking request at its deadline, because httpx's timeouts are per read."""

    def __init__(self, seconds: float) -> None:
        self.has_passed = False
        self._connection: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Note the connection when it is made; this is the `trace` extension of httpcore's requests."""
        if event == "connection.connect_tcp.complete":
            # A duplicate, because TLS takes the socket out of its object.
            self._connection = info["return_value"].get_extra_info("socket").dup()
            if self.has_passed:
                info["return_value"].close()
                raise httpx.ConnectTimeout("deadline")

    def _end(self) -> None:
        self.has_passed = True
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._connection is not None:
            self._connection.close()


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:  # would count as a failure of the network
        reason = error.strerror or str(error)
        raise InvalidOption(f"`file` cannot be read: {path}: {reason}.", hint="Check the path.") from None
