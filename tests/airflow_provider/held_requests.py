"""A fixture that holds requests to a service of this process until the test releases them, and not for some seconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from weblake_service.faults.middleware import FaultMiddleware

#: Seconds after which a held request is processed without a release, so that no test hangs for longer.
HELD_S = 240.0


@pytest.fixture
def held_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Yield the event that ends the latency of all requests with a fault `latency_ms`."""
    released = threading.Event()

    async def is_over(_: FaultMiddleware, seconds: float) -> bool:
        await asyncio.to_thread(released.wait, HELD_S)
        return False

    monkeypatch.setattr(FaultMiddleware, "_is_over", is_over)
    yield released
    released.set()
