"""What a connection of a thread and one of an event loop have alike. Imports: http11."""

from __future__ import annotations

import ssl
from typing import Any, Protocol

import httpcore

from weblake.http11 import Conversation


class Stream(Protocol):
    """What is asked about the socket of either kind."""

    def get_extra_info(self, info: str) -> Any:
        """`is_readable`: whether the server has closed it, or said something."""


class Connection:
    """Whether it is idle, at work, or closed."""

    def __init__(self, origin: httpcore.Origin, ssl_context: ssl.SSLContext | None) -> None:
        self._origin = origin
        self._ssl = ssl_context
        self._stream: Stream | None = None
        self._said = Conversation()
        self._closed = False

    @property
    def was_opened(self) -> bool:
        """Whether something may have been sent on it."""
        return self._stream is not None

    def info(self) -> str:
        """What a person wants to know."""
        return "idle" if self._said.idle else "closed" if self._closed else "at work"

    def can_handle_request(self, origin: httpcore.Origin) -> bool:
        """Whether a request belongs here."""
        return origin == self._origin

    def is_available(self) -> bool:
        """Whether it can take a request."""
        return self._said.idle

    def has_expired(self) -> bool:
        """Whether it was idle for too long, or the server has closed it, or said something that nobody asked for."""
        return self._said.stale or self._stream is None or bool(self._stream.get_extra_info("is_readable"))

    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return self._said.idle

    def is_closed(self) -> bool:
        """Whether it is closed for good."""
        return self._closed
