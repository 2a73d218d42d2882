"""One read of a service through each of the two clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from landing_commands import KEY

from weblake import AsyncClient, Client
from weblake.jobs.retry import RetryPolicy

#: The request that the clients send.
READ = "GET /v2/team/credit-usage"
#: A host beyond loopback; the fixture `remote_host_on_loopback` resolves it to this machine.
REMOTE_HOST = "service.example"

Read = Callable[..., None]


def blocking_read(url: str, *, insecure: bool = False) -> None:
    with Client(url, KEY, insecure=insecure, retry_policy=RetryPolicy(tries=1)) as client:
        client.credit_usage()


def awaited_read(url: str, *, insecure: bool = False) -> None:
    async def asked() -> None:
        async with AsyncClient(url, KEY, insecure=insecure, retry_policy=RetryPolicy(tries=1)) as client:
            await client.credit_usage()

    asyncio.run(asked())


with_both_clients = pytest.mark.parametrize("read", [blocking_read, awaited_read])
