"""Ends a program between two of its steps: an exception that nothing handles is raised at the nth step."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn


class Crash(BaseException):
    """The end of the process between two steps."""


def crash(*_: object, **__: object) -> NoReturn:
    """End the process; a test puts this in the place of a step."""
    raise KeyboardInterrupt


class CrashSteps:
    """Counts steps down; the last of `left` steps raises Crash, and so does each later one, of any thread: a process
    that has ended takes no more steps. With 0 none does.
    """

    def __init__(self) -> None:
        self.left = 0
        self._lock = threading.Lock()

    def step(self) -> None:
        with self._lock:
            if self.left > 1:
                self.left -= 1
            elif self.left:
                self.left = -1
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
