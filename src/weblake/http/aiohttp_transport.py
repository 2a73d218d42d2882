"""An httpx transport over aiohttp, for thousands of requests on one event loop.

httpx's own pool iterates over all waiting requests whenever a request arrives or ends, and takes seven times the CPU of
aiohttp for a poll. Needs the package httpx-aiohttp, which the Airflow provider depends on.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial

import aiohttp
import httpx_aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from weblake.http.library import httpx
from weblake.http.pools import KEEPALIVE_S
from weblake.http.resolver import look_up

#: Maximum bytes of one header field; the same as in h11, which reads the responses of the other transports.
MAX_FIELD = 100 << 10


def aiohttp_transport(
    ssl_context: ssl.SSLContext | None, proxy: httpx.Proxy | None, *, max_connections: int, keep_alive: bool
) -> httpx.AsyncBaseTransport:
    """Return a transport for one event loop, with the arguments of `pools.AsyncPoolTransport`."""
    # For plain http, a context without certificates: loading them takes 20 ms.
    verify = ssl_context or httpx.create_ssl_context(verify=False)
    session = partial(_session, verify, max_connections, keep_alive)
    return httpx_aiohttp.AiohttpTransport(verify=verify, proxy=proxy, client=session)


def _session(verify: ssl.SSLContext, max_connections: int, keep_alive: bool) -> aiohttp.ClientSession:
    """Return a session; aiohttp binds it to the running loop."""
    connector = aiohttp.TCPConnector(
        ssl=verify,
        resolver=_Resolver(),
        limit=max_connections,
        use_dns_cache=False,
        # aiohttp accepts only one of these two arguments.
        **({"keepalive_timeout": KEEPALIVE_S} if keep_alive else {"force_close": True}),
    )
    return aiohttp.ClientSession(
        connector=connector,
        request_class=_Request,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=MAX_FIELD,
        max_field_size=MAX_FIELD,
        skip_auto_headers=("accept", "accept-encoding", "user-agent"),
    )


class _Request(aiohttp.ClientRequest):
    """A request that is not sent on a connection that delivered bytes after the previous response.

    aiohttp closes such a connection only if all of its bytes arrived at once; response_end.py gives the reason.
    """

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """Send the request; if the connection must not be used, raise a connection error before the first byte."""
        if conn.protocol is not None and conn.protocol.should_close:
            raise aiohttp.ClientConnectorError(self.connection_key, OSError("more came than a response"))
        return await super().send(conn)


class _Resolver(AbstractResolver):
    """A resolver that looks up host names in daemon threads."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return all addresses of a host."""
        addresses = await asyncio.wrap_future(look_up(host, port))
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Do nothing; the resolver holds no resources."""
