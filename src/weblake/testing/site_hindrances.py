"""What a test does to pages of the site for a while: fails them, holds them back, slows them down.

A path is named with its query, or without for any query.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from weblake.loopback import Answer, Asked

#: Seconds after which a page that is held is answered all the same: no test hangs for longer.
HELD_S = 240.0
#: Stands for all paths.
_ALL = ""


@dataclass(slots=True)
class _Failure:
    answer: Answer
    #: How often it happens yet; None for ever.
    left: int | None


class Hindrances:
    """The failures, gates and delays of one site."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._lock = threading.Lock()
        self._failures: dict[str, _Failure] = {}
        self._gates: dict[str, threading.Event] = {}
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
        """Makes a path fail so many times, or until `mend` is called.

        Args:
            path: The path.
            status: What is answered.
            times: How often; None until `mend`.
            drop: Whether the connection is closed instead, without an answer.
            truncate: After how many bytes of the body the connection is closed.
            headers: Of the answer, such as Retry-After.
        """
        body = f"<!doctype html><title>Error {status}</title><main><h1>Error {status}</h1></main>".encode()
        kind = {"Content-Type": "text/html; charset=utf-8", **(headers or {})}
        with self._lock:
            self._failures[checked(path)] = _Failure(Answer(status, body, kind, truncate, drop), times)

    def mend(self, path: str | None = None) -> None:
        """Ends what `fail` began, for one path or all."""
        with self._lock:
            for name in list(self._failures) if path is None else [path]:
                self._failures.pop(name, None)

    def hold(self, path: str | None = None) -> None:
        """Makes a path, or all of them, answer only once `release` is called (or after four minutes)."""
        with self._lock:
            self._gates.setdefault(_ALL if path is None else checked(path), threading.Event())

    def release(self, path: str | None = None) -> None:
        """Lets go of a path that is held; without one, of all."""
        with self._lock:
            names = list(self._gates) if path is None else [path]
            gates = [gate for name in names if (gate := self._gates.pop(name, None)) is not None]
        for gate in gates:
            gate.set()

    def delay(self, path: str | None = None, *, seconds: float) -> None:
        """Makes a path, or all of them, take so long; 0 for no longer."""
        with self._lock:
            self._delays[_ALL if path is None else checked(path)] = seconds

    def _met(self, asked: Asked) -> Answer | None:
        """Waits as long as the path is held or slow; returns what is answered in its place."""
        names = (asked.target, asked.path)
        with self._lock:
            gates = [self._gates[name] for name in (*names, _ALL) if name in self._gates]
            delay = next((self._delays[name] for name in (*names, _ALL) if name in self._delays), 0.0)
        for gate in gates:
            gate.wait(HELD_S)
        if delay:
            self._stopping.wait(delay)
        with self._lock:
            for name in names:
                failure = self._failures.get(name)
                if failure is None or failure.left == 0:
                    continue
                if failure.left is not None:
                    failure.left -= 1
                return failure.answer
        return None


def checked(path: str) -> str:
    """The path.

    Raises:
        ValueError: It does not begin with a slash.
    """
    if not path.startswith("/"):
        raise ValueError(f"A path of the site begins with a slash, unlike {path!r}.")
    return path
