"""A connection that says cheaply whether its peer has hung up. Imports nothing of ours.

The pool asks that of every idle connection for every request, and each answer costs httpcore's own stream a look-up of
both ends' addresses: a fifth of what a fetch costs, with ten connections.
"""

from __future__ import annotations

import select
import ssl
from typing import Any

import httpcore
from typing_extensions import Self


class Stream(httpcore.AsyncNetworkStream):
    """Another stream, with one question answered by itself."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._socket = inner.get_extra_info("socket")
        self._poll = select.poll() if hasattr(select, "poll") and self._socket is not None else None
        if self._poll is not None:
            self._poll.register(self._socket.fileno(), select.POLLIN)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Reads what there is."""
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Writes everything."""
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        """Closes the connection."""
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> Self:
        """The same connection with TLS on it."""
        return type(self)(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        """What httpcore's stream says, and `is_readable`: true also of a connection that is closed on our side."""
        if info != "is_readable" or self._poll is None:
            return self._inner.get_extra_info(info)
        return self._socket.fileno() < 0 or bool(self._poll.poll(0))
