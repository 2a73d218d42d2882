"""A hostile service, a stranger that must never be called, and a lake that must come out of it whole."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Test files are no package here (import mode importlib), so what they share is found by its directory.
sys.path.insert(0, str(Path(__file__).parent))

from both_clients import FAR
from custom_http_clients import LIBRARIES, WITHOUT_AIOHTTP, send_with
from lake_run import KEY, Lake, leaks
from scripted_service import ScriptedService

from weblake.api import operation
from weblake.jobs import polling, result_pages
from weblake.jobs.retry import Retry
from weblake.loads import load, starts

#: What these prove depends on what sends the requests, so they run with clients that a user gave, too.
OF_THE_NETWORK = (
    "hostile_bodies",
    "hostile_chunks",
    "hostile_ends",
    "hostile_errors",
    "hostile_key",
    "hostile_next",
    "hostile_origins",
    "hostile_plain_http",
    "hostile_proxies",
    "hostile_sockets",
    "hostile_starts",
    "hostile_status",
    "hostile_tls",
    "hostile_transports",
    "hostile_wire",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeats the tests of the network in `.ci/run`: without aiohttp, and with clients of httpx and httpx2."""
    if metafunc.module.__name__.rpartition("test_")[2] not in OF_THE_NETWORK:
        return
    others = [WITHOUT_AIOHTTP]
    if metafunc.definition.get_closest_marker("own_transport") is None:
        others += LIBRARIES
    default = pytest.param(None, id=pytest.HIDDEN_PARAM)
    metafunc.parametrize(
        "sends_with", [default, *(pytest.param(name, marks=pytest.mark.system) for name in others)], indirect=True
    )


@pytest.fixture(autouse=True)
def sends_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sends the requests: weblake's own transports with aiohttp, without it, or a client that the user gave."""
    name: str | None = getattr(request, "param", None)
    if name is not None:
        send_with(name, monkeypatch)


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    """The service that the key belongs to."""
    made = ScriptedService()
    yield made
    made.stop()


@pytest.fixture
def stranger() -> Iterator[ScriptedService]:
    """Another origin: whatever the service says, nobody calls here."""
    made = ScriptedService()
    yield made
    made.stop()
    assert made.seen == []


@pytest.fixture
def lake(
    service: ScriptedService, stranger: ScriptedService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lake]:
    """A root whose commands call the service; afterwards the key stands nowhere in it."""
    env = {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": KEY, "NO_COLOR": "1"}
    made = Lake(tmp_path / "lake", monkeypatch, env)
    yield made
    assert leaks(made) == []
    assert all(seen.headers.get("authorization") == f"Bearer {KEY}" for seen in service.seen)


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy and no permission but those that a test sets."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "WEBLAKE_INSECURE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def far_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the host beyond loopback leads to this machine."""
    found = socket.getaddrinfo

    def lookup(host: str | bytes | None, *args: object, **kwargs: object) -> object:
        return found("127.0.0.1" if host in (FAR, FAR.encode()) else host, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backoff and the waits of a lost start, shortened for commands that run in this process."""
    monkeypatch.setattr("weblake.client.Retry", lambda: Retry(jitter=lambda: 0.0))
    monkeypatch.setattr(polling, "FIRST_POLL_S", 0.02)
    monkeypatch.setattr(load, "ELSEWHERE_S", 1.0)
    monkeypatch.setattr(result_pages, "LAG_PAUSES_S", (0.02, 0.02))
    # A start may take half a second; one whose answer is lost is looked for 0.1 s after it was sent.
    monkeypatch.setattr(starts, "MARGIN_S", -0.4 - starts.PROMPT_S)
    monkeypatch.setattr(starts, "BETWEEN_S", 0.05)
    monkeypatch.setattr(operation, "START_S", 0.5)
