"""Tests that waiting jobs share one client for each connection content and event loop, closed after the last one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from airflow.sdk import BaseHook

import weblake
from airflow_provider_weblake.hooks import shared
from airflow_provider_weblake.hooks.shared import shared_client
from airflow_provider_weblake.hooks.weblake import WeblakeHook
from weblake.errors import AskPerson
from weblake.testing import WeblakeService


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After each test no client is open and no read under way, on whatever loop."""
    yield
    assert [(of_loop.clients, of_loop.reads) for of_loop in shared._LOOPS.values() if of_loop.clients] == []
    assert [of_loop.reads for of_loop in shared._LOOPS.values() if of_loop.reads] == []


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[weblake.AsyncClient]:
    """The clients that were closed."""
    seen: list[weblake.AsyncClient] = []
    aclose = weblake.AsyncClient.aclose

    async def note(self: weblake.AsyncClient) -> None:
        seen.append(self)
        await aclose(self)

    monkeypatch.setattr(weblake.AsyncClient, "aclose", note)
    return seen


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The connections that were read."""
    seen: list[str] = []
    aget = BaseHook.aget_connection

    async def note(conn_id: str) -> object:
        seen.append(conn_id)
        return await aget(conn_id)

    monkeypatch.setattr(WeblakeHook, "aget_connection", staticmethod(note))
    return seen


def connect(monkeypatch: pytest.MonkeyPatch, conn_id: str, key: str = "test-key", **more: object) -> None:
    given = {"conn_type": "weblake", "host": "https://api.example.com", "password": key, **more}
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(given))


def test_users_of_one_connection_share_a_working_client(
    weblake_connection: WeblakeService, closed: list[weblake.AsyncClient]
) -> None:
    async def main() -> None:
        async with shared_client("weblake_default") as first:
            async with shared_client("weblake_default") as second:
                assert second is first
                assert (await second.credit_usage()).success
            assert closed == []
            assert (await first.credit_usage()).success
        assert closed == [first]
        async with shared_client("weblake_default") as third:
            assert third is not first
            assert (await third.credit_usage()).success

    asyncio.run(main())
    assert len(closed) == 2


def test_a_rotated_key_gives_a_new_client_and_leaves_those_who_wait_alone(
    monkeypatch: pytest.MonkeyPatch, closed: list[weblake.AsyncClient]
) -> None:
    async def main() -> None:
        connect(monkeypatch, "wl", "test-key")
        async with shared_client("wl") as old:
            connect(monkeypatch, "wl", "test-key-2")
            async with shared_client("wl") as new:
                assert new is not old
                async with shared_client("wl") as again:
                    assert again is new
            assert closed == [new]
            connect(monkeypatch, "wl", "test-key", extra={"call_timeout_s": 5})
            async with shared_client("wl") as patient:
                assert patient is not old
            connect(monkeypatch, "wl", "test-key")
            async with shared_client("wl") as same:
                assert same is old

    asyncio.run(main())
    assert len(closed) == 3


def test_cancelled_and_failed_users_release_the_client(
    monkeypatch: pytest.MonkeyPatch, closed: list[weblake.AsyncClient]
) -> None:
    connect(monkeypatch, "wl")

    async def stay(entered: asyncio.Event) -> None:
        async with shared_client("wl"):
            entered.set()
            await asyncio.Event().wait()

    async def main() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(stay(entered))
        await asyncio.wait_for(entered.wait(), 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(closed) == 1
        with pytest.raises(ZeroDivisionError):
            async with shared_client("wl"):
                _ = 1 / 0
        assert len(closed) == 2

    asyncio.run(main())


def test_an_unusable_connection_fails_all_users_and_is_read_again(
    monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    connect(monkeypatch, "wl", host="")

    async def use() -> bool:
        async with shared_client("wl"):
            return True

    async def main() -> None:
        found = await asyncio.gather(*(use() for _ in range(50)), return_exceptions=True)
        assert {type(error) for error in found} == {AskPerson}
        connect(monkeypatch, "wl")
        assert await use()

    asyncio.run(main())
    assert reads == ["wl", "wl"]


def test_a_user_that_arrives_while_the_last_one_leaves_gets_an_open_client(
    weblake_connection: WeblakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count goes to nought, the client closes, which takes a while, and meanwhile somebody comes."""
    aclose = weblake.AsyncClient.aclose

    async def main() -> None:
        closing, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(self: weblake.AsyncClient) -> None:
            closing.set()
            await go_on.wait()
            await aclose(self)

        monkeypatch.setattr(weblake.AsyncClient, "aclose", slowly)

        async def use() -> weblake.AsyncClient:
            async with shared_client("weblake_default") as client:
                assert (await client.credit_usage()).success
                return client

        leaving = asyncio.create_task(use())
        await asyncio.wait_for(closing.wait(), 10)
        async with shared_client("weblake_default") as mine:
            go_on.set()
            assert await leaving is not mine
            assert (await mine.credit_usage()).success

    asyncio.run(main())
