"""A public site and a private one on one port, with host names for them, for tests of requests to private addresses."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from loopback_site import Site, serving

from weblake_service.web import addresses

#: Stands for an address of the public internet; no request leaves loopback.
PUBLIC, PRIVATE = "127.0.0.2", "127.0.0.1"


@dataclass
class PublicAndPrivateSites:
    """Both sites, and what each host name resolves to: a sequence of results, the last one for ever."""

    public: Site
    private: Site
    answers: dict[str, list[str]] = field(
        default_factory=lambda: {"public.example": [PUBLIC], "inside.example": [PRIVATE]}
    )

    def url(self, path: str = "/", host: str = "public.example") -> str:
        return self.private.url(path, host)


@contextmanager
def public_and_private_sites() -> Iterator[PublicAndPrivateSites]:
    """Serve both sites; weblake takes the address of the public one for a public address."""
    judged, inner = addresses.is_public, socket.getaddrinfo
    private = Site(PRIVATE)
    with serving(private), serving(Site(PUBLIC, private.server_port)) as public, pytest.MonkeyPatch.context() as patch:
        sites = PublicAndPrivateSites(public, private)

        def resolver(host: Any, *args: Any, **options: Any) -> Any:
            told = sites.answers.get(host.decode() if isinstance(host, bytes) else host)
            if told is None:
                return inner(host, *args, **options)
            return inner(told.pop(0) if len(told) > 1 else told[0], *args, **options)

        patch.setattr(addresses, "is_public", lambda one: one == ipaddress.ip_address(PUBLIC) or judged(one))
        patch.setattr(socket, "getaddrinfo", resolver)
        yield sites
