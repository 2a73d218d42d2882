"""Total deadlines for httpcore's blocking connections.

httpcore's timeouts restart with each byte that arrives, and those of the standard library with each address of a host.
This network backend limits every connect, handshake, read and write by one deadline for the whole request.
"""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from weblake.http.library import httpcore
from weblake.http.resolver import look_up
from weblake.http.response_end import ResponseEnd

T = TypeVar("T")

#: Least seconds for one address of a host with many addresses.
MIN_ADDRESS_S = 0.01
#: Maximum bytes of one write, so that the deadline is checked between two writes to a slow peer.
MAX_WRITE_BYTES = 1 << 16

#: Deadline of the current thread's request, in monotonic seconds.
_deadline: ContextVar[float] = ContextVar("weblake_deadline", default=0.0)


@contextmanager
def ending(until: float) -> Iterator[None]:
    """Limit all network operations in the block by the deadline `until`, in monotonic seconds."""
    token = _deadline.set(until)
    try:
        yield
    finally:
        _deadline.reset(token)


class DeadlineStream(httpcore.NetworkStream):
    """A network stream whose reads and writes end by the deadline of the current request."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self._end = ResponseEnd()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the bytes that have arrived, at most `max_bytes`; b"" at the end of the stream."""
        data = self._inner.read(max_bytes, _seconds_left(timeout, httpcore.ReadTimeout))
        self._end.feed(data)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        self._end.expect_response()
        for start in range(0, len(buffer), MAX_WRITE_BYTES):
            self._inner.write(buffer[start : start + MAX_WRITE_BYTES], _seconds_left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Return the connection with TLS; on failure it is closed."""
        if self.get_extra_info("ssl_object") is not None:
            return DeadlineStream(_TlsInTls(self._inner, ssl_context, server_hostname))
        left = _seconds_left(timeout, httpcore.ConnectTimeout)
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        """Return information about the socket; httpcore does not reuse an idle connection that `is_readable`."""
        if info == "is_readable" and self._end.exceeded:
            return True
        return self._inner.get_extra_info(info)


class DeadlineBackend(httpcore.SyncBackend):
    """A network backend whose TCP connections obey the deadline of the current request."""

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **kwargs: Any
    ) -> DeadlineStream:
        """Connect to the first address that accepts; each is tried in order for its share of the remaining time."""
        until = min(_deadline.get(), time.monotonic() + (math.inf if timeout is None else timeout))
        addresses = _addresses_in_time(host, port, until)
        failure: Exception | None = None
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            share = max(MIN_ADDRESS_S, (until - time.monotonic()) / left)
            try:
                return DeadlineStream(super().connect_tcp(address, port, share, *args, **kwargs))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError(f"{host} has no address")


class _TlsInTls(httpcore.NetworkStream):
    """TLS inside the TLS connection to a proxy, because the standard library cannot wrap an encrypted socket again.

    httpcore's class for this waits on the socket with a timeout for each record, which a peer that sends single bytes
    can prolong without limit.
    """

    def __init__(self, outer: httpcore.NetworkStream, ssl_context: ssl.SSLContext, server_hostname: str | None) -> None:
        self._outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = ssl_context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        try:
            self._complete(self._tls.do_handshake)
        except (httpcore.ReadTimeout, httpcore.WriteTimeout) as error:
            self.close()
            raise httpcore.ConnectTimeout(str(error)) from error
        except (httpcore.NetworkError, ssl.SSLError) as error:
            self.close()
            raise httpcore.ConnectError(str(error)) from error

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the bytes that have arrived, at most `max_bytes`; b"" at the end of the stream."""
        try:
            return self._complete(lambda: self._tls.read(max_bytes))
        except ssl.SSLZeroReturnError:
            return b""
        except ssl.SSLError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all bytes."""
        try:
            while buffer:
                sent = self._complete(lambda piece=buffer[:MAX_WRITE_BYTES]: self._tls.write(piece))  # type: ignore[misc]
                buffer = buffer[sent:]
        except ssl.SSLError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._outer.close()

    def get_extra_info(self, info: str) -> Any:
        """Return information about the socket."""
        return self._tls if info == "ssl_object" else self._outer.get_extra_info(info)

    def _complete(self, operation: Callable[[], T]) -> T:
        """Repeat a TLS operation until it needs no more bytes from the peer, and return its result."""
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                self._send_pending()
                received = self._outer.read(MAX_WRITE_BYTES, _seconds_left(None, httpcore.ReadTimeout))
                if received:
                    self._incoming.write(received)
                else:
                    self._incoming.write_eof()
                continue
            except ssl.SSLError:
                self._send_pending()  # the alert that gives the peer the reason
                raise
            self._send_pending()
            return result

    def _send_pending(self) -> None:
        pending = self._outgoing.read()
        if pending:
            self._outer.write(pending, _seconds_left(None, httpcore.WriteTimeout))


def _addresses_in_time(host: str, port: int, until: float) -> list[str]:
    left = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
    try:
        return look_up(host, port).result(left)
    except futures.TimeoutError:
        raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
    except OSError as error:
        raise httpcore.ConnectError(str(error)) from error


def _seconds_left(timeout: float | None, late: type[httpcore.TimeoutException]) -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise late("deadline")
    return left if timeout is None else min(left, timeout)
