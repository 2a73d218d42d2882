"""A network stream that detects cheaply that its peer has closed.

The pool checks every idle connection for every request. httpcore's own stream looks up both socket addresses for each
check: a fifth of the cost of a fetch with ten connections.
"""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import Any, Self

import httpcore

#: Strong references to closing tasks, because an event loop holds its tasks weakly.
_closing: set[asyncio.Task[None]] = set()


class MonitoredStream(httpcore.AsyncNetworkStream):
    """Wraps a stream and answers `is_readable` itself."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._socket = inner.get_extra_info("socket")
        self._poll = select.poll() if self._socket is not None else None
        if self._poll is not None:
            self._poll.register(self._socket.fileno(), select.POLLIN)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read available bytes."""
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write the whole buffer."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Close the connection in a task of its own; the caller cannot be cancelled while it waits for that.

        httpcore's pool closes expired connections one after another. If its task is cancelled meanwhile, the pool
        leaves those that remain open, because its shield is one of anyio's, which `Task.cancel` passes.
        """
        task = asyncio.get_running_loop().create_task(self._inner.aclose())
        _closing.add(task)
        task.add_done_callback(_on_closed)

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Self:
        """Return the same connection with TLS."""
        return type(self)(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """Return httpcore's information; `is_readable` is also true for a connection that is closed on our side."""
        if info != "is_readable" or self._poll is None:
            return self._inner.get_extra_info(info)
        return self._socket.fileno() < 0 or bool(self._poll.poll(0))


def _on_closed(task: asyncio.Task[None]) -> None:
    _closing.discard(task)
    if not task.cancelled():
        task.exception()  # Closing an abandoned connection may fail; without this, asyncio would log the exception.


async def wait_closed() -> None:
    """Wait until all streams of this event loop that are being closed are closed."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in _closing.copy() if task.get_loop() is loop), return_exceptions=True)
