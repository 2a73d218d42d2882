"""The interface of a client of the Chrome DevTools Protocol (CDP)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

#: Receives an event: its method, its parameters, and its session id (None for the browser itself).
Listener = Callable[[str, dict[str, Any], str | None], None]


class CdpError(Exception):
    """The browser refused a command, or has ended; the message says which and why."""


class Cdp(Protocol):
    """One client of one browser, with flat sessions: `Target.attachToTarget` with `flatten` gives their ids."""

    async def send(
        self, method: str, params: Mapping[str, object] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        """Send a command to the browser, or to a session of this client, and return its result.

        Raises:
            CdpError: It was refused, or the connection is closed.
        """
        ...

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call a listener on the event loop for every event of this client; return a function that removes it."""
        ...
