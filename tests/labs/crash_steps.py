"""Ends a program between two of its steps: an exception that nothing handles is raised at the nth step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Crash(BaseException):
    """The end of the process between two steps."""


class CrashSteps:
    """Counts steps down; the step at which `left` reaches 0 raises Crash. With 0 from the start, none does."""

    left = 0

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a step before its work."""

        def change(*args: Any) -> Any:
            self.step()
            return real(*args)

        return change

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function with a step before and one after its work."""

        def change(*args: Any) -> Any:
            self.step()
            done = real(*args)
            self.step()
            return done

        return change
