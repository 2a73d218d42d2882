"""The WebSocket implementation of the server, without logging.

uvicorn and `websockets` log the URL of every connection, and the URL of a browser session contains its token.
"""

from __future__ import annotations

import logging
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

#: Errors are logged; connections and their URLs are not.
_ERROR_LOG = logging.getLogger("weblake.service.sockets")
_ERROR_LOG.setLevel(logging.WARNING)


class QuietSockets(WebSocketsSansIOProtocol):
    """One connection."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.logger = self.conn.logger = _ERROR_LOG
