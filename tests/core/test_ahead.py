"""What works ahead hands over the same things in their order, is never too far ahead, and ends when left."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import pytest
from polling import until

from weblake.ahead import ahead, begun


def counted(made: list[int], most: int, error: BaseException | None = None) -> Iterator[int]:
    for number in range(most):
        made.append(number)
        yield number
    if error is not None:
        raise error


def test_everything_comes_in_order() -> None:
    assert list(ahead(counted([], 50))) == list(range(50))
    assert list(ahead(counted([], 0))) == []


@pytest.mark.parametrize("error", [ValueError("in its turn"), KeyboardInterrupt(), MemoryError(), StopIteration()])
def test_an_error_comes_in_its_turn(error: BaseException) -> None:
    seen = list[int]()

    def take() -> None:
        for number in ahead(counted([], 20, error)):
            seen.append(number)

    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
        take()
    assert seen == list(range(20))


@pytest.mark.parametrize("most", [1, 2, 7])
def test_it_is_so_many_ahead_and_no_more(most: int) -> None:
    made: list[int] = []
    for number in ahead(counted(made, 50), most):
        until(lambda number=number: len(made) == min(50, number + 1 + most))
        assert len(made) <= number + 1 + most


def test_what_was_handed_over_is_held_by_nobody() -> None:
    class Batch:
        pass

    def batches() -> Iterator[Batch]:
        for _ in range(4):
            yield Batch()

    given = ahead(batches(), 2)
    seen = []
    while (batch := next(given, None)) is not None:
        seen.append(weakref.ref(batch))
        del batch
    until(lambda: all(ref() is None for ref in seen))


def test_left_early_it_makes_what_it_is_at_and_ends() -> None:
    at, go_on = threading.Event(), threading.Event()
    made: list[int] = []

    def slow() -> Iterator[int]:
        for number in range(50):
            made.append(number)
            if number == 3:
                at.set()
                assert go_on.wait(30)
            yield number

    before = threading.active_count()
    for number in ahead(slow()):
        if number == 2:
            assert at.wait(30)
            break
    assert threading.active_count() == before + 1  # nobody waits for it
    go_on.set()
    until(lambda: threading.active_count() == before)
    assert made == [0, 1, 2, 3]


def test_what_is_begun_runs_at_once_and_is_had_once() -> None:
    ran = threading.Event()
    made = begun(lambda: ran.set() or threading.current_thread().name)
    assert ran.wait(30)
    assert made.result() != threading.current_thread().name
    failed = begun(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
