"""Connections to the target of a tunnel: direct to a checked address, or through the proxy of the environment."""

from __future__ import annotations

import asyncio
import base64
import ssl
from urllib.parse import unquote

import httpx

from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import ascii_host, resolve
from weblake_service.web.connection_pools import proxy_for, refuse_private

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Seconds until the next address of a name is tried, and until the last one, or a proxy, must have responded.
_ATTEMPT_S, _LAST_ATTEMPT_S = 5.0, 30.0
_MAX_HEAD_BYTES = 65_536


async def connect_tunnel(url: httpx.URL, *, allow_private: bool, trust_env: bool) -> Streams:
    """Return a connection to the host and port of a URL.

    Raises:
        PageFailure: The host is private, has no address, or does not accept connections.
    """
    host, port = ascii_host(url), url.port or 443
    proxy = proxy_for(url.copy_with(scheme="http" if port == 80 else "https")) if trust_env else ""
    if proxy:
        if not allow_private:
            await refuse_private(url)
        return await _connect_through_proxy(httpx.URL(proxy if "://" in proxy else f"http://{proxy}"), host, port)
    addresses = await resolve(host, port, allow_private=allow_private)
    last: Exception | None = None
    for place, address in enumerate(addresses, 1):
        try:
            async with asyncio.timeout(_ATTEMPT_S if place < len(addresses) else _LAST_ATTEMPT_S):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as error:
            last = error
    said = getattr(last, "strerror", None) or str(last) or type(last).__name__
    message = f"{host} does not accept connections ({said}). Check that the site is up, and try again."
    raise PageFailure("SCRAPE_SITE_ERROR", message, reached=False) from last


async def _connect_through_proxy(proxy: httpx.URL, host: str, port: int) -> Streams:
    named = f"[{host}]" if ":" in host else host
    login = f"{unquote(proxy.username)}:{unquote(proxy.password)}"
    auth = f"Proxy-Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n" if proxy.userinfo else ""
    try:
        async with asyncio.timeout(_LAST_ATTEMPT_S):
            tls = ssl.create_default_context() if proxy.scheme == "https" else None
            reader, writer = await asyncio.open_connection(
                ascii_host(proxy), proxy.port or (443 if tls else 80), ssl=tls, limit=_MAX_HEAD_BYTES
            )
            writer.write(f"CONNECT {named}:{port} HTTP/1.1\r\nHost: {named}:{port}\r\n{auth}\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise _proxy_failure(host, str(error) or type(error).__name__) from error
    status = head.split(None, 2)[1:2]
    if status != [b"200"]:
        writer.transport.abort()
        raise _proxy_failure(host, f"it answered {b''.join(status).decode('latin-1') or 'nothing'}")
    return reader, writer


def _proxy_failure(host: str, why: str) -> PageFailure:
    message = f"The proxy did not reach {host} ({why}). Check the proxy settings of the service."
    return PageFailure("SCRAPE_PROXY_SELECTION_ERROR", message)
