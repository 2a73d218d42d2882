"""Temporary failures, holds and delays of the pages of the test site.

A path with a query selects that query; a path without a query selects any query.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse

#: Maximum seconds that a page is held, so that no test hangs.
MAX_HOLD_S = 240.0
#: The key for all paths.
_ALL_PATHS = ""


@dataclass(slots=True)
class _Failure:
    response: LoopbackResponse
    #: Number of remaining failures; None for unlimited.
    left: int | None


class SiteFailures:
    """The failures, holds and delays of one site."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}
        self._hold_events: dict[str, threading.Event] = {}
        self._delays: dict[str, float] = {}

    def fail(
        self,
        path: str,
        *,
        status: int = 500,
        times: int | None = None,
        drop: bool = False,
        truncate: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Make a path fail a number of times, or until `mend` is called.

        Args:
            path: The path.
            status: The status of the response.
            times: The number of failures; None until `mend`.
            drop: Whether the connection is closed without a response instead.
            truncate: The number of bytes of the body after which the connection is closed.
            headers: Headers of the response, such as Retry-After.
        """
        body = f"<!doctype html><title>Error {status}</title><main><h1>Error {status}</h1></main>".encode()
        kind = {"Content-Type": "text/html; charset=utf-8", **(headers or {})}
        with self._lock:
            self._failures[check_path(path)] = _Failure(LoopbackResponse(status, body, kind, truncate, drop), times)

    def mend(self, path: str | None = None) -> None:
        """End the failures that `fail` added, for one path or all paths."""
        with self._lock:
            for name in list(self._failures) if path is None else [path]:
                self._failures.pop(name, None)

    def hold(self, path: str | None = None) -> None:
        """Hold the responses of a path, or of all paths, until `release` is called (or for four minutes)."""
        with self._lock:
            self._hold_events.setdefault(_ALL_PATHS if path is None else check_path(path), threading.Event())

    def release(self, path: str | None = None) -> None:
        """Release a held path, or all paths."""
        with self._lock:
            names = list(self._hold_events) if path is None else [path]
            holds = [hold_event for name in names if (hold_event := self._hold_events.pop(name, None)) is not None]
        for hold_event in holds:
            hold_event.set()

    def delay(self, path: str | None = None, *, seconds: float) -> None:
        """Delay the responses of a path, or of all paths, by `seconds`; 0 removes the delay."""
        with self._lock:
            self._delays[_ALL_PATHS if path is None else check_path(path)] = seconds

    def _failure(self, request: LoopbackRequest) -> LoopbackResponse | None:
        """Wait while the path is held or delayed; return the failure response, or None."""
        names = (request.target, request.path)
        with self._lock:
            holds = [self._hold_events[name] for name in (*names, _ALL_PATHS) if name in self._hold_events]
            delay = next((self._delays[name] for name in (*names, _ALL_PATHS) if name in self._delays), 0.0)
        for hold_event in holds:
            hold_event.wait(MAX_HOLD_S)
        if delay:
            self._stopping.wait(delay)
        with self._lock:
            for name in names:
                failure = self._failures.get(name)
                if failure is None or failure.left == 0:
                    continue
                if failure.left is not None:
                    failure.left -= 1
                return failure.response
        return None


def check_path(path: str) -> str:
    """Return the path unchanged.

    Raises:
        ValueError: The path does not begin with a slash.
    """
    if not path.startswith("/"):
        raise ValueError(f"A path of the site begins with a slash, unlike {path!r}.")
    return path
