"""Connections whose every step ends by the deadline of the request that they carry. Imports: resolver.

httpcore's timeouts begin anew with each byte that arrives, and the standard library's with each address of a host: ten
addresses that swallow what is sent to them would take ten times as long.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore

from weblake.resolver import look_up

#: Seconds that an address gets, however many there are.
LEAST_S = 0.01

#: When the request that this thread is carrying has to be over, on the monotonic clock.
_deadline: ContextVar[float] = ContextVar("weblake_deadline", default=0.0)


@contextmanager
def ending(until: float) -> Iterator[None]:
    """What is sent and read inside is over by then, in monotonic seconds."""
    token = _deadline.set(until)
    try:
        yield
    finally:
        _deadline.reset(token)


class DeadlineStream(httpcore.NetworkStream):
    """A connection whose every read and write ends in time."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads what is there, at most `max_bytes`; nothing at the end."""
        return self._inner.read(max_bytes, _left(timeout))

    def read_into(self, room: memoryview) -> int:
        """The same, to where it belongs: how many bytes there were, none at the end."""
        stream: socket.socket = self._inner.get_extra_info("socket")
        try:
            stream.settimeout(_left(None))
            return stream.recv_into(room)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Writes it all."""
        for start in range(0, len(buffer), 1 << 16):
            self._inner.write(buffer[start : start + (1 << 16)], _left(timeout))

    def close(self) -> None:
        """Closes the connection."""
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> DeadlineStream:
        """The same connection, encrypted."""
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks about the socket."""
        return self._inner.get_extra_info(info)


class DeadlineBackend(httpcore.SyncBackend):
    """Opens connections that obey the deadline."""

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *args: Any, **kwargs: Any
    ) -> DeadlineStream:
        """Tries the addresses of a host one after another, each for its share of the time that is left for all."""
        until = min(_deadline.get(), time.monotonic() + (math.inf if timeout is None else timeout))
        addresses = _addresses_in_time(host, port, until)
        trouble: Exception | None = None
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            share = max(LEAST_S, (until - time.monotonic()) / left)
            try:
                return DeadlineStream(super().connect_tcp(address, port, share, *args, **kwargs))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                trouble = error
        raise trouble or httpcore.ConnectError(f"{host} has no address")


def _addresses_in_time(host: str, port: int, until: float) -> list[str]:
    left = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
    try:
        return look_up(host, port).result(left)
    except futures.TimeoutError:
        raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None


def _left(timeout: float | None) -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("deadline")
    return left if timeout is None else min(left, timeout)
