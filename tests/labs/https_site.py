"""A site with a certificate of no trusted authority."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopback_site import Site, serving
from tls_lab import Authority


@contextmanager
def secure(folder: Path) -> Iterator[Site]:
    """Serve a site for the host name `localhost`; `names` has the names that clients asked for in handshakes."""
    server = Site()
    server.names: list[str | None] = []  # type: ignore[misc]
    context = Authority(folder).server_context()
    context.sni_callback = lambda _socket, name, _context: server.names.append(name)  # type: ignore[attr-defined]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield server
