"""A step that works ahead hands over the same things in the same order, never runs away, and ends when it is left."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import closing

import pytest
from polling import until

from weblake.ahead import ahead


def counted(made: list[int], most: int, error: Exception | None = None) -> Generator[int, None, None]:
    for number in range(most):
        made.append(number)
        yield number
    if error is not None:
        raise error


def test_everything_comes_in_order_and_an_error_in_its_turn() -> None:
    assert list(ahead(counted([], 50))) == list(range(50))
    seen = list[int]()

    def take() -> None:
        for number in ahead(counted([], 20, ValueError("in its turn"))):
            seen.append(number)

    with pytest.raises(ValueError, match="in its turn"):
        take()
    assert seen == list(range(20))


def test_it_is_two_ahead_at_most() -> None:
    made: list[int] = []
    items = ahead(counted(made, 50))
    with closing(items):
        for number in items:
            until(lambda number=number: len(made) == min(50, number + 3))  # one ready, one in the making
            assert len(made) <= number + 3


def test_left_early_it_makes_what_it_is_at_and_ends() -> None:
    at, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    made: list[int] = []

    def slow() -> Generator[int, None, None]:
        try:
            for number in range(50):
                made.append(number)
                if number == 3:
                    at.set()
                    assert go_on.wait(30)
                yield number
        finally:
            closed.set()

    before = threading.active_count()
    with closing(ahead(slow())) as items:
        assert [next(items), next(items)] == [0, 1]
        assert at.wait(30)
    assert threading.active_count() == before + 1  # nobody waited for it
    go_on.set()
    assert closed.wait(30)
    until(lambda: threading.active_count() == before)
    assert made == [0, 1, 2, 3]


def test_steps_in_a_row_end_together() -> None:
    def doubled(items: Generator[int, None, None]) -> Generator[int, None, None]:
        with closing(ahead(items)) as numbers:
            for number in numbers:
                yield 2 * number

    before = threading.active_count()
    assert list(ahead(doubled(counted([], 30)))) == [2 * number for number in range(30)]
    with closing(ahead(doubled(counted([], 1000)))) as items:
        assert next(items) == 0
    until(lambda: threading.active_count() == before)
