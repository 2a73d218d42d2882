"""The only route from a browser context to the network: a forward proxy on loopback that checks every address.

Each context gets its own proxy, and `chromium.py` starts Chromium so that it has no other route. Every request and
redirect is resolved here and sent to the checked address. The page sees a refused request as a broken connection, so
that it learns nothing about the network; the reason is kept for the scrape.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

import h11
import httpcore
import httpx

from weblake_service.browser.ad_hosts import is_ad_host
from weblake_service.browser.upstream_proxy import connect_tunnel
from weblake_service.page_failure import PageFailure, ServiceLimitReached, translated_limits
from weblake_service.web.addresses import ascii_host, clean_url
from weblake_service.web.connection_pools import ConnectionPools

if TYPE_CHECKING:
    from playwright.async_api import ProxySettings
import os
from pathlib import Path

_LOG = logging.getLogger("weblake.service")
_CHUNK_BYTES = 65_536
#: Maximum bytes of a request head.
_MAX_HEAD_BYTES = 128 << 10
_HOP_BY_HOP_HEADERS = frozenset(
    b"connection proxy-connection proxy-authorization keep-alive te trailer transfer-encoding upgrade alt-svc".split()
)
#: Seconds until a server must have accepted a connection, and maximum seconds of silence in a response.
_TIMEOUTS_S = {"connect": 30.0, "read": 120.0, "write": 60.0, "pool": 60.0}
#: Seconds that one side of a tunnel may continue after the other has finished sending.
_HALF_CLOSED_S = 30.0
_CONNECTION_ERRORS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    httpcore.ProxyError,
    OSError,
)


class ByteLimitExceeded(Exception):
    """The page has loaded more bytes than the limit."""


class EgressProxy:
    """The proxy of one context, on a port of its own; call `begin` before each page and `aclose` at the end.

    With `own_user_only` it serves a whole Chromium, which cannot be given proxy credentials; it then accepts every
    process of this user.
    """

    def __init__(self, pools: ConnectionPools, *, allow_private: bool, own_user_only: bool = False) -> None:
        self._own_user_only = own_user_only
        self._pools = pools
        self._allow_private = allow_private
        self._server: asyncio.Server | None = None
        #: The user name and the password that a client needs.
        self.login = ("weblake", secrets.token_urlsafe(24))
        self._known = b"Basic " + base64.b64encode(":".join(self.login).encode())
        self._open: set[asyncio.Task[None]] = set()
        self._block_ads = True
        self._left = 0
        #: Whether the page was stopped because it exceeded the byte limit.
        self.overflowed = False
        #: The reasons why hosts could not be reached, by `host:port`.
        self.failures: dict[str, PageFailure | ServiceLimitReached] = {}

    async def open(self) -> ProxySettings:
        """Start listening, and return the proxy settings of a context; other users do not have the password."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
        server = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return {"server": server, "username": self.login[0], "password": self.login[1]}

    def begin(self, *, block_ads: bool, max_bytes: int) -> None:
        """Reset the state for the next page, which may load `max_bytes` bytes."""
        self._block_ads, self._left, self.overflowed = block_ads, max_bytes, False
        self.failures.clear()

    async def aclose(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def failure_of(self, url: str) -> PageFailure | ServiceLimitReached | None:
        """Return why the host of a URL could not be reached; None if it was reached."""
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            return None
        return self.failures.get(_host_and_port(parsed))

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._own_user_only and not is_own_user(writer.get_extra_info("peername")):
                return
            await self._handle_connection(
                h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES), reader, writer
            )
        except (*_CONNECTION_ERRORS, h11.ProtocolError, PageFailure, ServiceLimitReached, ByteLimitExceeded):
            # The browser sees a closed connection; the reason is in `failures`.
            pass
        except Exception:  # noqa: BLE001 - a failing connection must not end the others
            _LOG.exception("The browser's egress proxy failed in an unforeseen way.")
        finally:
            writer.transport.abort()

    async def _handle_connection(
        self, peer: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            event = await _next_event(peer, reader)
            if not isinstance(event, h11.Request):
                return
            if not self._own_user_only and not self._is_authenticated(event):
                if not await _require_login(peer, reader, writer):
                    return
                continue
            target = event.target.decode("latin-1")
            if event.method == b"CONNECT":
                await self._tunnel(httpx.URL(f"https://{target}"), peer.trailing_data[0], reader, writer)
                return
            if not target.lower().startswith("http://"):
                # A page that requests this port directly is not a proxy client.
                return
            await self._forward(httpx.URL(target), event, peer, reader, writer)
            if peer.our_state is not h11.DONE or peer.their_state is not h11.DONE:
                return
            peer.start_next_cycle()

    def _is_authenticated(self, client_request: h11.Request) -> bool:
        given = [value for name, value in client_request.headers if name == b"proxy-authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._known)

    def _resolve_target(self, url: httpx.URL) -> None:
        host = ascii_host(url)
        if self._block_ads and is_ad_host(host):
            raise PageFailure("SCRAPE_SITE_ERROR", f"{host} serves advertisements, and `blockAds` keeps it out.")
        clean_url(str(url), allow_private=self._allow_private)

    async def _tunnel(
        self, url: httpx.URL, early: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            self._resolve_target(url)
            with translated_limits():
                far_reader, far_writer = await connect_tunnel(url, allow_private=self._allow_private)
        except (PageFailure, ServiceLimitReached) as failure:
            self.failures[_host_and_port(url)] = failure
            raise
        self.failures.pop(_host_and_port(url), None)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            far_writer.write(early)
            ways = [
                asyncio.create_task(self._relay(reader, far_writer, count=False)),
                asyncio.create_task(self._relay(far_reader, writer, count=True)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                # A side that has finished sending may still receive.
                await asyncio.wait(ways, timeout=_HALF_CLOSED_S)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            far_writer.transport.abort()

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, count: bool) -> None:
        with suppress(OSError, ByteLimitExceeded):
            while part := await source.read(_CHUNK_BYTES):
                if count:
                    self._count_bytes(len(part))
                sink.write(part)
                await sink.drain()
            if sink.can_write_eof():
                sink.write_eof()
                return
        sink.close()

    async def _forward(
        self,
        url: httpx.URL,
        client_request: h11.Request,
        peer: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        answered = False
        try:
            self._resolve_target(url)
            pool = await self._pools.pool_for(url, verify=False)
            request = _request(url, client_request, _body(peer, reader))
            try:
                with translated_limits():
                    response = await pool.handle_async_request(request)
            except (httpcore.ReadError, httpcore.WriteError, httpcore.RemoteProtocolError):
                # The server may have just closed a kept-alive connection; only idempotent requests are repeated.
                if client_request.method not in (b"GET", b"HEAD"):
                    raise
                response = await pool.handle_async_request(_request(url, client_request, None))
            try:
                answered = True
                self.failures.pop(_host_and_port(url), None)
                await self._send_response(response, peer, writer)
            finally:
                await response.aclose()
        except (PageFailure, ServiceLimitReached) as failure:
            self.failures[_host_and_port(url)] = failure
            raise
        except _CONNECTION_ERRORS as error:
            said = "broke off its answer" if answered else "does not answer"
            message = f"{ascii_host(url)} {said} ({str(error) or type(error).__name__}). Check that the site is up."
            self.failures[_host_and_port(url)] = PageFailure("SCRAPE_SITE_ERROR", message, reached=answered)
            raise

    async def _send_response(
        self, response: httpcore.Response, peer: h11.Connection, writer: asyncio.StreamWriter
    ) -> None:
        headers = [(name, value) for name, value in response.headers if name.lower() not in _HOP_BY_HOP_HEADERS]
        reason = bytes(response.extensions.get("reason_phrase", b""))
        writer.write(peer.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b"")
        async for part in response.aiter_stream():
            self._count_bytes(len(part))
            writer.write(peer.send(h11.Data(data=part)) or b"")
            await writer.drain()
        writer.write(peer.send(h11.EndOfMessage()) or b"")
        await writer.drain()

    def _count_bytes(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self.overflowed = True
            raise ByteLimitExceeded


def _host_and_port(url: httpx.URL) -> str:
    return f"{ascii_host(url)}:{url.port or (443 if url.scheme in {'https', 'wss'} else 80)}"


def _request(url: httpx.URL, client_request: h11.Request, body: AsyncIterator[bytes] | None) -> httpcore.Request:
    named = {name for name, _ in client_request.headers}
    headers = [
        (name, value) for name, value in client_request.headers.raw_items() if name.lower() not in _HOP_BY_HOP_HEADERS
    ]
    has_body = b"content-length" in named or b"transfer-encoding" in named
    target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
    return httpcore.Request(
        client_request.method,
        target,
        headers=headers,
        content=body if has_body else None,
        extensions={"timeout": _TIMEOUTS_S},
    )


async def _require_login(peer: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Request proxy authentication; return whether the client may retry on this connection."""
    async for _ in _body(peer, reader):
        pass
    headers = [(b"Proxy-Authenticate", b'Basic realm="weblake"'), (b"Content-Length", b"0")]
    writer.write(peer.send(h11.Response(status_code=407, headers=headers)) or b"")
    writer.write(peer.send(h11.EndOfMessage()) or b"")
    await writer.drain()
    if peer.our_state is not h11.DONE or peer.their_state is not h11.DONE:
        return False
    peer.start_next_cycle()
    return True


async def _body(peer: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while isinstance(event := await _next_event(peer, reader), h11.Data):
        yield bytes(event.data)


async def _next_event(peer: h11.Connection, reader: asyncio.StreamReader) -> object:
    while True:
        event = peer.next_event()
        if event is not h11.NEED_DATA:
            return event
        peer.receive_data(await reader.read(_CHUNK_BYTES))


_TCP_TABLE = Path("/proc/net/tcp")


def is_own_user(peer: tuple[str, int] | None) -> bool:
    """Return whether a process of this user owns this end (address, port) of a connection.

    Supported on Linux; on other systems every local user is treated as this user.
    """
    if peer is None:
        return False
    if not _TCP_TABLE.exists():
        return True
    # The kernel's format of an endpoint: the address in host byte order, and the port, in hexadecimal.
    port = f":{peer[1]:04X}"
    for line in _TCP_TABLE.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(port) and fields[1].startswith("0100007F"):
            return int(fields[7]) == os.geteuid()
    return False
