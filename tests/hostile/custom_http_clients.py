"""Replacement of the HTTP client that every client of weblake uses by default."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from weblake import client
from weblake.client import embedded
from weblake.http import transport

#: The tests do not close the clients.
NONE_KEPT = httpx.Limits(max_keepalive_connections=0)


def send_with_given_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the transports: each sends with a client of httpx, as one that a user gives."""

    class Blocking(transport.HttpTransport):
        def __init__(self, *args: Any, http_client: Any = None, options: Any = None, **more: Any) -> None:
            super().__init__(*args, http_client=httpx.Client(limits=NONE_KEPT), **more)

    class Awaited(transport.AsyncHttpTransport):
        def __init__(self, *args: Any, http_client: Any = None, options: Any = None, **more: Any) -> None:
            super().__init__(*args, http_client=httpx.AsyncClient(limits=NONE_KEPT), **more)

    for module in (client, embedded, transport):
        monkeypatch.setattr(module, "HttpTransport", Blocking)
        monkeypatch.setattr(module, "AsyncHttpTransport", Awaited)
