"""One question to a service through each of the two clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from landing_commands import KEY

from weblake import AsyncClient, Client
from weblake.jobs.retry import RetryPolicy

#: What the service is asked.
READ = "GET /v2/team/credit-usage"
#: Beyond loopback; the fixture `far_is_here` leads it to this machine.
FAR = "service.example"

Asks = Callable[..., None]


def ask(url: str, *, insecure: bool = False) -> None:
    with Client(url, KEY, insecure=insecure, patience=RetryPolicy(tries=1)) as client:
        client.credit_usage()


def aask(url: str, *, insecure: bool = False) -> None:
    async def asked() -> None:
        async with AsyncClient(url, KEY, insecure=insecure, patience=RetryPolicy(tries=1)) as client:
            await client.credit_usage()

    asyncio.run(asked())


both = pytest.mark.parametrize("asks", [ask, aask])
