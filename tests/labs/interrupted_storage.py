"""A storage in which something happens right before the n-th call, as another process would do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weblake.storage import Storage


class InterruptedStorage:
    """Counts the calls of a storage, and calls `what` right before the n-th one."""

    def __init__(self, inner: Storage, nth: int, what: Callable[[], object]) -> None:
        self._inner, self._nth, self._what, self.calls = inner, nth, what, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._nth:
                self._what()
            return method(*args, **options)

        return call if callable(method) else method
