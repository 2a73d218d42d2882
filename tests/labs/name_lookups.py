"""Name lookups without a network."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future


def finds(*addresses: str) -> Callable[[str, int], Future[list[str]]]:
    """A lookup that finds these addresses for every host, at once."""

    def look_up(host: str, port: int) -> Future[list[str]]:
        found: Future[list[str]] = Future()
        found.set_result(list(addresses))
        return found

    return look_up
