"""Connections on an event loop, straight on asyncio's own transports. Imports: aio, compat, resolver.

httpcore's backend for event loops stands on anyio, which opens a cancel scope for each read and each write, and asks
the kernel whether an idle connection has news: with ten thousand waiting jobs that was a third of a poll. Here reads
and writes have no time limits, because whoever sends has one for all of them (`AsyncHttpTransport.send`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import httpcore

from weblake import aio
from weblake.compat import allow_tls_in_tls
from weblake.resolver import look_up

#: Bytes that came and were not read yet, from which on the peer is left to wait.
MOST_HELD = 1 << 18
#: Bytes handed to asyncio at once: it copies what the peer does not take.
PIECE = 1 << 16
#: Seconds until the next address of a host is tried beside the ones before (RFC 8305).
NEXT_ADDRESS_S = 0.25

_EXTRA = {"socket": "socket", "client_addr": "sockname", "server_addr": "peername", "ssl_object": "ssl_object"}


class LoopStream(httpcore.AsyncNetworkStream, asyncio.Protocol):
    """One connection; read and written by one task at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parts: deque[bytes] = deque()
        self._held = 0
        self._paused = self._ended = False
        self._trouble: Exception | None = None
        #: What a reader waits for, and a writer whose peer takes nothing.
        self._news: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    # --- what httpcore asks for ---

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads what is there, at most `max_bytes`; nothing at the end."""
        while not self._parts:
            if self._trouble is not None:
                raise httpcore.ReadError(str(self._trouble)) from self._trouble
            if self._ended:
                return b""
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        part = self._parts.popleft()
        if len(part) > max_bytes:
            self._parts.appendleft(part[max_bytes:])
            part = part[:max_bytes]
        self._held -= len(part)
        if self._paused and self._held < MOST_HELD // 2 and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return part

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Writes it all, as fast as the peer takes it."""
        for start in range(0, len(buffer), PIECE):
            if self._transport is None or self._transport.is_closing():
                raise httpcore.WriteError("the connection is closed")
            self._transport.write(buffer[start : start + PIECE])
            if self._room is not None:
                await self._room

    async def aclose(self) -> None:
        """Closes it at once: whatever was not read, or not taken by the peer, is of no use to anybody."""
        self.abort()

    def abort(self) -> None:
        """The same for callers that cannot await."""
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The same connection, encrypted, or none: where the handshake fails it is closed."""
        plain, secure = self._transport, LoopStream()
        if plain is None or plain.is_closing():
            raise httpcore.ConnectError("the connection was closed before the TLS handshake")
        allow_tls_in_tls(plain)
        try:
            async with aio.timeout(timeout):
                made = await asyncio.get_running_loop().start_tls(
                    plain, secure, ssl_context, server_hostname=server_hostname
                )
        except BaseException as error:
            plain.abort()
            raise _connecting(error) from error
        if made is None:
            raise httpcore.ConnectError("the connection was closed in the TLS handshake")
        secure.connection_made(made)
        return secure

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks about the socket. An idle connection that can be read from has come to its end."""
        if info == "is_readable":
            return bool(self._parts) or self._ended
        if self._transport is None or info not in _EXTRA:
            return None
        return self._transport.get_extra_info(_EXTRA[info])

    # --- what asyncio tells ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._parts.append(data)
        self._held += len(data)
        if self._held >= MOST_HELD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        """The peer sends no more. asyncio closes the connection then."""
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        self._ended, self._trouble = True, exc
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        """The peer takes nothing now."""
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """It does again."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


class LoopBackend(httpcore.AsyncNetworkBackend):
    """Opens them."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        *_args: Any,
        **_kwargs: Any,
    ) -> httpcore.AsyncNetworkStream:
        """Tries the addresses of a host, the next one soon beside one that does not answer."""
        try:
            async with aio.timeout(timeout):
                addresses = await asyncio.wrap_future(look_up(host, port))
                return await _first_to_answer(_families_in_turn(addresses), port)
        except OSError as error:
            raise _connecting(error) from error


async def _first_to_answer(addresses: Sequence[str], port: int) -> LoopStream:
    """Connect to the first address that answers; the next is tried when one fails, and beside one that is slow."""
    left, tries = deque(addresses), set[asyncio.Task[LoopStream]]()
    trouble: BaseException | None = None
    try:
        while left or tries:
            if left:
                tries.add(asyncio.ensure_future(_connected(left.popleft(), port)))
            done, _ = await asyncio.wait(
                tries, timeout=NEXT_ADDRESS_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                tries.discard(each)
                trouble = each.exception()
                if trouble is None:
                    return each.result()
    finally:
        for each in tries:
            each.add_done_callback(_close)  # one that answers at the same moment is of no use any more
            each.cancel()
    assert trouble is not None
    raise trouble


async def _connected(address: str, port: int) -> LoopStream:
    return (await asyncio.get_running_loop().create_connection(LoopStream, address, port))[1]


def _close(attempt: asyncio.Task[LoopStream]) -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().abort()


def _families_in_turn(addresses: Sequence[str]) -> list[str]:
    """Order addresses so that those of IPv6 and IPv4 alternate, beginning with the kind of the first (RFC 8305)."""
    same = [each for each in addresses if (":" in each) == (":" in addresses[0])]
    other = [each for each in addresses if each not in same]
    return [each for pair in zip_longest(same, other) for each in pair if each is not None]


def _connecting(error: BaseException) -> BaseException:
    """As httpcore names it."""
    if isinstance(error, TimeoutError):
        return httpcore.ConnectTimeout("no connection in time")
    return httpcore.ConnectError(str(error)) if isinstance(error, OSError) else error
