"""What works ahead hands over the same things in their order, is never too far ahead, and ends when left."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
from polling import until

from weblake.ahead import ahead, begun


def counted(made: list[int], most: int, error: BaseException | None = None) -> Iterator[Callable[[], int]]:
    for number in range(most):
        made.append(number)
        yield lambda number=number: number  # type: ignore[misc]
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

    def batches() -> Iterator[Callable[[], Batch]]:
        for _ in range(4):
            yield Batch

    given = ahead(batches(), 2)
    seen = []
    while (batch := next(given, None)) is not None:
        seen.append(weakref.ref(batch))
        del batch
    until(lambda: all(ref() is None for ref in seen))


def is_waited_for(taker: int) -> bool:
    """Whether this thread waits for an item right now."""
    frame = sys._current_frames()[taker]
    return frame.f_code.co_name == "timed" and bool(frame.f_locals["self"].waiting)


def test_who_waits_for_an_item_makes_its_second_half() -> None:
    here, taker = threading.current_thread().name, threading.get_ident()
    makers: list[str] = []

    def items() -> Iterator[Callable[[], None]]:
        for _ in range(10):
            until(lambda: is_waited_for(taker))
            yield lambda: makers.append(threading.current_thread().name)

    assert len([*ahead(items(), 2)]) == 10
    assert makers == [here] * 10


def test_the_second_half_for_one_who_is_busy_is_made_ahead() -> None:
    makers: list[str] = []
    busy = threading.Event()

    def items() -> Iterator[Callable[[], None]]:
        for number in range(3):
            assert number == 0 or busy.wait(30)
            yield lambda: makers.append(threading.current_thread().name)

    for _ in ahead(items(), 2):
        busy.set()
        until(lambda: len(makers) == 3)
    assert makers[1:] == ["weblake-ahead"] * 2


@pytest.mark.parametrize("slow", ["maker", "taker"])
def test_what_goes_wrong_in_a_second_half_comes_in_its_turn(slow: str) -> None:
    def items() -> Iterator[Callable[[], int]]:
        for number in range(20):
            if slow == "maker":
                sum(range(50_000))
            yield lambda number=number: 1 // (10 - number)  # type: ignore[misc]

    seen = []

    def take() -> None:
        for number in ahead(items(), 2):
            seen.append(number)
            if slow == "taker":
                sum(range(50_000))

    with pytest.raises(ZeroDivisionError):
        take()
    assert len(seen) == 10


def test_left_early_it_makes_what_it_is_at_and_ends() -> None:
    at, go_on = threading.Event(), threading.Event()
    made: list[int] = []

    def slow() -> Iterator[Callable[[], int]]:
        for number in range(50):
            made.append(number)
            if number == 3:
                at.set()
                assert go_on.wait(30)
            yield lambda number=number: number  # type: ignore[misc]

    def at_work() -> int:
        return sum(thread.name == "weblake-ahead" for thread in threading.enumerate())

    until(lambda: not at_work())  # those of other tests have ended
    for number in ahead(slow()):
        if number == 2:
            assert at.wait(30)
            break
    assert at_work() == 1  # nobody waits for it
    go_on.set()
    until(lambda: not at_work())
    assert made == [0, 1, 2, 3]


def test_what_is_begun_runs_at_once_and_is_had_once() -> None:
    ran = threading.Event()
    made = begun(lambda: ran.set() or threading.current_thread().name)
    assert ran.wait(30)
    assert made.result() != threading.current_thread().name
    failed = begun(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
