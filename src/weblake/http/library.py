"""The HTTP library: the only module of the client that imports httpx or httpcore.

`weblake.Client` accepts a client of httpx or of its successor httpx2. `library_of` returns the library of such a
client, because each library accepts only its own request objects.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol

import httpcore
import httpx

from weblake.errors import InvalidOption

__all__ = ["AsyncHttpClient", "HttpClient", "httpcore", "httpx", "library_of"]


class HttpClient(Protocol):
    """An `httpx.Client` or an `httpx2.Client`."""

    @property
    def headers(self) -> Any:
        """Headers that the client adds to each request."""

    def send(self, request: Any, *, stream: bool = ..., auth: Any = ..., follow_redirects: Any = ...) -> Any:
        """Send a request and return its response, whose body has not been read."""


class AsyncHttpClient(Protocol):
    """An `httpx.AsyncClient` or an `httpx2.AsyncClient`."""

    @property
    def headers(self) -> Any:
        """Headers that the client adds to each request."""

    async def send(self, request: Any, *, stream: bool = ..., auth: Any = ..., follow_redirects: Any = ...) -> Any:
        """Send a request and return its response, whose body has not been read."""


def library_of(client: object, name: str) -> Any:
    """Return the module httpx or httpx2: the library of the client, or httpx if `client` is None.

    Args:
        client: An object whose class, or a base of it, has the name `name` in one of the two libraries.
        name: `Client` or `AsyncClient`.

    Raises:
        InvalidOption: It is any other object.
    """
    if client is None:
        return httpx
    for base in type(client).__mro__:
        module = base.__module__.partition(".")[0]
        if module in ("httpx", "httpx2") and base.__name__ == name:
            return sys.modules[module]
    kind = f"{type(client).__module__.partition('.')[0]}.{type(client).__name__}"
    raise InvalidOption(
        f"`http_client` is a {kind}, not an httpx.{name} or httpx2.{name}.",
        hint=f"weblake.{name} takes an httpx.{name}.",
    )
