"""Waiting for something in another thread or process, with a bound and no fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(look: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Looks again and again until it finds something, and returns that; AssertionError at the bound."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return found
