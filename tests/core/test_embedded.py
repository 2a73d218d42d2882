"""Tests of how another process of the same user finds the embedded service: by its address file."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weblake import AsyncClient, Client, credentials
from weblake.client import embedded
from weblake.errors import FeatureMissing, StorageRefused
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake_service.server import LocalService


def answer(name: str, seen: list[str]) -> Callable[[LoopbackRequest], LoopbackResponse]:
    def respond(request: LoopbackRequest) -> LoopbackResponse:
        seen.append(f"{name} {request.headers['authorization']}")
        body = json.dumps({"success": True, "data": {"remainingCredits": 1}}).encode()
        return LoopbackResponse(200, body, {"content-type": "application/json"})

    return respond


def publish(directory: Path, server: LoopbackServer, key: str) -> None:
    embedded._write_address(directory, SimpleNamespace(url=server.url, key=key))  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state directory of a user whose embedded service runs in another process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("WEBLAKE_BASE_URL", raising=False)
    monkeypatch.setattr(embedded, "_start", lambda directory: None)
    (tmp_path / "weblake").mkdir()
    return tmp_path / "weblake"


def test_a_client_without_a_base_url_finds_the_service_and_follows_it(directory: Path) -> None:
    seen: list[str] = []
    with LoopbackServer(answer("first", seen)) as first, LoopbackServer(answer("second", seen)) as second:
        publish(directory, first, "key-1")
        with Client() as client:
            assert (client.is_embedded, client.service) == (True, "embedded")
            client.credit_usage()
            first.stop()
            publish(directory, second, "key-2")
            client.credit_usage()
            client.credit_usage()
    assert seen == ["first Bearer key-1", "second Bearer key-2", "second Bearer key-2"]


def test_an_async_client_follows_the_embedded_service(directory: Path) -> None:
    seen: list[str] = []

    async def use(first: LoopbackServer, second: LoopbackServer) -> None:
        async with AsyncClient() as client:
            await client.credit_usage()
            first.stop()
            publish(directory, second, "key-2")
            await client.credit_usage()

    with LoopbackServer(answer("first", seen)) as first, LoopbackServer(answer("second", seen)) as second:
        publish(directory, first, "key-1")
        asyncio.run(use(first, second))
    assert seen == ["first Bearer key-1", "second Bearer key-2"]


def test_only_the_thread_whose_transport_failed_looks_for_another_address(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def make(base_url: object, api_key: object) -> object:
        made.append(object())
        return made[-1]

    with LoopbackServer(answer("a", [])) as first, LoopbackServer(answer("b", [])) as second:
        publish(directory, first, "k")
        transport = embedded.EmbeddedTransport(make)
        transport._reconnect(made[0])
        assert len(made) == 1, "the service has the address that it had"
        publish(directory, second, "k")
        transport._reconnect(object())
        assert len(made) == 1, "another thread has replaced the transport that failed"
        transport._reconnect(made[0])
        assert transport._transport is made[1]
        (directory / "service.json").unlink()
        monkeypatch.setattr(embedded, "FIND_TIMEOUT_S", 0.0)
        transport._reconnect(made[1])
        assert transport._transport is made[1], "no process serves now, so the next try looks again"


@pytest.mark.parametrize("text", [None, "", "{}", "[]", "of a process that ended"])
def test_an_address_that_cannot_be_used_is_waited_for_and_then_an_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr(embedded, "FIND_TIMEOUT_S", 0.0)
    if text == "of a process that ended":
        ended = subprocess.Popen([sys.executable, "-c", ""])
        ended.wait()
        text = json.dumps({"url": "http://127.0.0.1:1", "key": "k", "pid": ended.pid})
    if text is not None:
        (directory / "service.json").write_text(text)
    with pytest.raises(StorageRefused, match="its address file cannot be read"):
        embedded.find_or_start()


def test_an_address_that_is_published_later_is_found(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = LoopbackServer(answer("late", []))
    monkeypatch.setattr(embedded.time, "sleep", lambda seconds: publish(directory, server, "key"))
    assert str(embedded.find_or_start().base_url) == server.url
    server.stop()


def test_a_service_that_ends_while_its_address_is_waited_for_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends removes its address before it stops its service, which can take some seconds."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(embedded, "_own_service", None)
    monkeypatch.setattr(embedded.atexit, "register", lambda *_: None)
    ending = LocalService(tmp_path / "weblake" / "service.db").start()
    monkeypatch.setattr(embedded.time, "sleep", lambda seconds: ending.stop())
    monkeypatch.setattr(embedded, "FIND_TIMEOUT_S", 1.0)
    try:
        found = embedded.find_or_start()
        assert embedded._own_service is not None
        assert str(found.base_url) == embedded._own_service[1].url
    finally:
        ending.stop()
        if embedded._own_service is not None:
            embedded._own_service[1].stop()


def test_the_address_file_is_private_and_goes_with_the_process_that_wrote_it(directory: Path) -> None:
    stopped: list[bool] = []
    service: Any = SimpleNamespace(url="http://127.0.0.1:9", key="k", stop=lambda: stopped.append(True))
    embedded._write_address(directory, service)
    (path,) = directory.iterdir()
    assert (path.name, path.stat().st_mode & 0o777) == ("service.json", 0o600)
    assert json.loads(path.read_text()) == {"url": "http://127.0.0.1:9", "key": "k", "pid": os.getpid()}
    embedded._stop(os.getpid() + 1, service, directory)
    assert (path.exists(), stopped) == (True, []), "a forked child leaves the service of its parent alone"
    embedded._stop(os.getpid(), service, directory)
    assert (path.exists(), stopped) == (False, [True])


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageRefused, match=f"cannot keep its files in {tmp_path}/file/weblake: Not a directory"):
        embedded.find_or_start()


def test_a_missing_package_of_the_service_names_the_extra(directory: Path) -> None:
    for another, words in ((False, "pip install 'weblake[local]'"), (True, "to a service")):
        with (
            pytest.raises(FeatureMissing, match=r"not installed \(granian\)") as caught,
            embedded.require_local_extra(or_another=another),
        ):
            raise ModuleNotFoundError(name="granian")
        assert caught.value.hint.rstrip(".").endswith(words)


@pytest.mark.parametrize("base", ["", "relative"])
def test_the_state_directory_is_below_home_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", base)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert credentials.state_dir() == tmp_path / ".local" / "state" / "weblake"


def test_missing_directories_are_made_private_and_the_address_is_written_beside_its_name(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temporary directory may be on another file system, from which nothing can be renamed."""
    state = tmp_path / "a" / "b"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    service: Any = SimpleNamespace(url="http://127.0.0.1:9", key="k")
    monkeypatch.setattr(embedded, "_start", lambda directory: embedded._write_address(directory, service))
    assert str(embedded.find_or_start().base_url) == "http://127.0.0.1:9"
    assert (state / "weblake").stat().st_mode & 0o777 == 0o700
