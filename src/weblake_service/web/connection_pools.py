"""Connection pools to checked addresses, or to the proxy of the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import ascii_host, resolve
from weblake_service.web.streams import MonitoredStream, wait_closed

#: Seconds after which the next address of a name is tried as well.
_ATTEMPT_S = 5.0


class ConnectionPools:
    """Connection pools, created on first use: with and without certificate checks, direct and through a proxy."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._pools: dict[tuple[bool, str], httpcore.AsyncConnectionPool] = {}

    async def pool_for(self, url: httpx.URL, *, verify: bool) -> httpcore.AsyncConnectionPool:
        """Return the pool for a request to this URL."""
        proxy = proxy_for(url)
        if proxy and not self._allow_private:
            await refuse_private(ascii_host(url), url.port or 443)
        # For plain http, a context without certificates: loading them takes 20 ms.
        verify = verify and url.scheme == "https"
        key = (verify, proxy)
        if key not in self._pools:
            self._pools[key] = httpcore.AsyncConnectionPool(
                ssl_context=httpx.create_ssl_context(verify=verify),
                proxy=_proxy(proxy) if proxy else None,
                max_connections=None,  # the pages of a team are limited; a limit here would be one for all teams
                max_keepalive_connections=20,
                keepalive_expiry=5.0,
                network_backend=None if proxy else PinnedBackend(self._allow_private),
            )
        return self._pools[key]

    async def aclose(self) -> None:
        """Close all connections."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()
        await wait_closed()


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Connects only to checked addresses."""

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first allowed address of the host that accepts a connection."""
        addresses = await resolve(host, port, allow_private=self._allow_private)
        for address in addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return MonitoredStream(
                    await self._inner.connect_tcp(address, port, _ATTEMPT_S, local_address, socket_options)
                )
        return MonitoredStream(
            await self._inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)
        )

    async def sleep(self, seconds: float) -> None:
        """Sleep between httpcore's own retries."""
        await asyncio.sleep(seconds)


async def refuse_private(host: str, port: int) -> None:
    """Refuse a host that is private according to this machine; a name that only the proxy can resolve is allowed."""
    try:
        await resolve(host, port)
    except PageFailure as failure:
        if failure.code != "SCRAPE_DNS_RESOLUTION_ERROR":
            raise


def proxy_for(url: httpx.URL) -> str:
    """Return the proxy that the environment configures for a URL; empty for none."""
    host = ascii_host(url)
    if host in {"localhost", "::1"} or host.startswith("127.") or host.endswith(".localhost") or proxy_bypass(host):
        return ""
    proxies = getproxies()
    return proxies.get(url.scheme) or proxies.get("all") or ""


def _proxy(text: str) -> httpcore.Proxy:
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL as error:
        raise _bad_proxy_failure() from error
    if url.scheme not in {"http", "https"}:
        raise _bad_proxy_failure()
    auth = (url.username, url.password) if url.userinfo else None
    return httpcore.Proxy(httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/"), auth=auth)


def _bad_proxy_failure() -> PageFailure:
    message = "The proxy that the environment names is not an http or https one. Mend HTTP_PROXY and HTTPS_PROXY."
    return PageFailure("SCRAPE_PROXY_SELECTION_ERROR", message)
