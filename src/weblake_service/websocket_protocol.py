"""The WebSocket implementation of the server: the library `websockets`, if installed, without logging.

uvicorn and `websockets` log the URL of every connection, and the URL of a browser session contains its token.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import Any, Literal

#: Errors are logged; connections and their URLs are not.
_ERROR_LOG = logging.getLogger("weblake.service.sockets")
_ERROR_LOG.setLevel(logging.WARNING)


def websocket_protocol() -> type[Any] | Literal["none"]:
    """Return the value of uvicorn's `ws` option: a protocol class, or "none"."""
    if find_spec("websockets") is None:
        return "none"
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    class QuietSockets(WebSocketsSansIOProtocol):
        """One connection."""

        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            self.logger = self.conn.logger = _ERROR_LOG

    return QuietSockets
