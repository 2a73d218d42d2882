"""Replacement of the HTTP client that every client of weblake uses by default."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from weblake import client, embedded
from weblake.http import transport
from weblake.http.pools import AsyncPoolTransport

#: Event loops use httpcore's pool, as they do if httpx-aiohttp is not installed.
WITHOUT_AIOHTTP = "without_aiohttp"
#: httpx2 needs Python 3.11.
LIBRARIES = [name for name in ("httpx", "httpx2") if find_spec(name) is not None]


def send_with(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the transports: without aiohttp, or each with a client of this library, which is closed with it."""
    if name == WITHOUT_AIOHTTP:
        monkeypatch.setattr(transport, "_async_transport", lambda *_: AsyncPoolTransport)
        return
    library: Any = import_module(name)

    class Blocking(transport.HttpTransport):
        def __init__(self, *args: Any, http_client: Any = None, options: Any = None, **more: Any) -> None:
            super().__init__(*args, http_client=library.Client(), **more)

        def close(self) -> None:
            super().close()
            self._client.close()
            self._client = library.Client()  # a closed weblake client opens new connections if it is used again

    class Awaited(transport.AsyncHttpTransport):
        def __init__(self, *args: Any, http_client: Any = None, options: Any = None, **more: Any) -> None:
            super().__init__(*args, http_client=library.AsyncClient(), **more)

        async def aclose(self) -> None:
            await super().aclose()
            await self._client.aclose()
            self._client = library.AsyncClient()

    for module in (client, embedded, transport):
        monkeypatch.setattr(module, "HttpTransport", Blocking)
        monkeypatch.setattr(module, "AsyncHttpTransport", Awaited)
