"""Tests of calling a function for many items in several threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from weblake.dataset import parallel


def test_results_that_are_given_up_in_a_thread_of_their_own_end_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars releases a source later, in any thread that calls Polars, such as a thread that reads files for it."""
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)
    held: list[Iterator[int]] = []
    released, ended = threading.Event(), threading.Event()

    def do(item: int) -> int:
        if item == 1:
            assert released.wait(60)
            held.clear()
            ended.set()
        return item

    held.append(parallel.in_order(range(9), do, threads=2, most=4))
    assert next(held[0]) == 0
    released.set()
    assert ended.wait(60)
    assert errors == []
