"""Waits between requests that take no time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from weblake.api import steps
from weblake.loads import load


@dataclass
class SkippedWaits:
    """A clock that advances in real time, and by each wait between two requests, which is not waited out.

    The requests themselves take real time, because they are sent over sockets.
    """

    passed: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.passed += seconds

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Give this clock to the driver of the flows, and to the module that computes their deadlines."""
        monkeypatch.setitem(steps.run.__kwdefaults__, "sleep", self.sleep)
        monkeypatch.setitem(steps.run.__kwdefaults__, "clock", self.monotonic)
        monkeypatch.setattr(load, "time", SimpleNamespace(monotonic=self.monotonic))
