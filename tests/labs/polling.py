"""Waiting for a condition in another thread or process, with a time limit and no fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(look: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Call a function until it returns a true value, and return that; AssertionError at the time limit."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return found
