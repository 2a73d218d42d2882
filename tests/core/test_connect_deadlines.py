"""The share of a deadline that each network operation of the blocking transport gets; no network is used."""

from __future__ import annotations

import time
from concurrent.futures import Future

import httpcore
import pytest

from weblake.http import deadlines
from weblake.http.deadlines import DeadlineBackend, DeadlineStream, ending


class Network(httpcore.NetworkStream):
    """Keeps the timeout of each operation."""

    def __init__(self) -> None:
        self.timeouts: list[float | None] = []

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self.timeouts.append(timeout)
        return b""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.timeouts.append(timeout)


@pytest.mark.parametrize(("timeout", "limit"), [(None, 5.0), (9.0, 5.0), (3.0, 3.0)])
def test_an_operation_ends_by_its_own_timeout_and_by_the_deadline(timeout: float | None, limit: float) -> None:
    network = Network()
    stream = DeadlineStream(network)
    with ending(time.monotonic() + 5.0):
        stream.read(1, timeout)
        stream.write(b"x" * (deadlines.MAX_WRITE_BYTES + 1), timeout)
    assert len(network.timeouts) == 3
    assert all(each is not None and limit - 1.0 < each <= limit for each in network.timeouts)


def test_nothing_is_read_or_written_after_the_deadline() -> None:
    network = Network()
    stream = DeadlineStream(network)
    with ending(time.monotonic()):
        with pytest.raises(httpcore.ReadTimeout):
            stream.read(1)
        with pytest.raises(httpcore.WriteTimeout):
            stream.write(b"x")
    assert network.timeouts == []


@pytest.mark.parametrize(("deadline_s", "timeout"), [(8.0, None), (8.0, 20.0), (20.0, 8.0)])
def test_each_address_gets_its_share_of_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float, timeout: float | None
) -> None:
    shares: list[float] = []

    def connect(self: object, host: str, port: int, timeout: float) -> httpcore.NetworkStream:
        shares.append(timeout)
        if len(shares) < 4:
            raise (httpcore.ConnectTimeout if len(shares) == 1 else httpcore.ConnectError)(host)
        return Network()

    found: Future[list[str]] = Future()
    found.set_result(["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"])
    monkeypatch.setattr(deadlines, "look_up", lambda host, port: found)
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", connect)
    with ending(time.monotonic() + deadline_s):
        DeadlineBackend().connect_tcp("service.example", 443, timeout)
    assert shares == pytest.approx([2.0, 8 / 3, 4.0, 8.0], abs=0.5)
