"""A scripted hostile service, a server of another origin that must not be called, and a dataset root."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test files are not a package here (import mode importlib), so shared modules are found by their directory.
sys.path.insert(0, str(Path(__file__).parent))

from both_clients import REMOTE_HOST
from landing_commands import KEY, Lake, leaks
from scripted_service import ScriptedService
from skipped_waits import SkippedWaits

from weblake.api import operation
from weblake.jobs import result_pages
from weblake.jobs.retry import Retry
from weblake.loads import starts


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """Yield the service that the key belongs to."""
    made = ScriptedService()
    yield made
    made.stop()


@pytest.fixture
def other_origin() -> Iterator[ScriptedService]:
    """Yield a server of another origin, and assert that it got no request."""
    made = ScriptedService()
    yield made
    made.stop()
    assert made.seen == []


@pytest.fixture
def lake(service: ScriptedService, other_origin: ScriptedService, tmp_path: Path) -> Iterator[Lake]:
    """Yield a root whose commands call the service, and assert that no file or output contains the key."""
    env = {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": KEY, "NO_COLOR": "1"}
    made = Lake(tmp_path / "lake", env)
    yield made
    assert leaks(made) == []
    assert all(seen.headers.get("authorization") == f"Bearer {KEY}" for seen in service.seen)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove proxies and permissions from the environment, so that only those of the test apply."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "WEBLAKE_INSECURE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def remote_host_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve the name of the remote host to this machine."""
    found = socket.getaddrinfo

    def lookup(host: str | bytes | None, *args: object, **kwargs: object) -> object:
        return found("127.0.0.1" if host in (REMOTE_HOST, REMOTE_HOST.encode()) else host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.fixture(autouse=True)
def unsynced_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out fsync in this process: no test here cuts the power, and a landing has 27 of them."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="session")
def _temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(autouse=True)
def separate_temporary_directory(_temporary_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty directory for temporary files: a load into an object store looks at every entry of it."""
    monkeypatch.setattr(tempfile, "tempdir", str(_temporary_directory))


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> SkippedWaits:
    """Skip the waits between requests, and shorten the deadline of a start, for commands that run in this process."""
    monkeypatch.setattr("weblake.client.Retry", lambda **more: Retry(jitter=lambda: 0.0, **more))
    monkeypatch.setattr(result_pages, "LAG_PAUSES_S", (0.02, 0.02))
    # A start may take 10 s; a lost one is searched for 0.1 s after it was sent.
    monkeypatch.setattr(starts, "MARGIN_S", -9.9 - starts.PROMPT_S)
    monkeypatch.setattr(starts, "BETWEEN_S", 0.05)
    monkeypatch.setattr(operation, "START_DEADLINE_S", 10.0)
    waits = SkippedWaits()
    waits.install(monkeypatch)
    return waits


@pytest.fixture(params=[0.0, 60.0], ids=["ahead", "in_turn"])
def with_and_without_prefetch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefetch chunks, then request them one after the other: the client chooses by how quickly they arrive."""
    monkeypatch.setattr("weblake.loads.download.QUICK_S", request.param)
