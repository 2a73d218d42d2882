"""Tests of the helper threads: results come in order, prefetching is bounded, and the threads end."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial

import pytest
from catalogue import proves
from polling import until

from weblake.background import run_in_thread, run_in_two_threads

HELPER = "weblake-ahead"


def numbered_items(made: list[int], most: int, error: BaseException | None = None) -> Iterator[Callable[[], int]]:
    for number in range(most):
        made.append(number)
        yield lambda number=number: number  # type: ignore[misc]
    if error is not None:
        raise error


def helper_threads() -> int:
    return sum(thread.name == HELPER for thread in threading.enumerate())


def current_thread_name() -> str:
    return threading.current_thread().name


def test_items_are_returned_in_order() -> None:
    assert list(run_in_two_threads(numbered_items([], 500))) == list(range(500))
    assert list(run_in_two_threads(numbered_items([], 1))) == [0]
    assert list(run_in_two_threads(numbered_items([], 0))) == []
    until(lambda: not helper_threads())


@pytest.mark.parametrize("error", [ValueError("in its turn"), MemoryError(), StopIteration()])
@pytest.mark.parametrize("before", [0, 1, 20])
def test_an_error_of_the_source_is_raised_in_order(error: Exception, before: int) -> None:
    seen = list[int]()

    def take() -> None:
        for number in run_in_two_threads(numbered_items([], before, error)):
            seen.append(number)

    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)):
        take()
    assert seen == list(range(before))
    until(lambda: not helper_threads())


def test_no_item_is_taken_after_an_error_of_the_source() -> None:
    """Not by the other thread either, which waits at that time to take the next one."""
    main, at_work = threading.get_ident(), threading.Event()

    class Items:
        failed, taken_after = False, 0

        def __iter__(self) -> Items:
            return self

        def __next__(self) -> Callable[[], object]:
            self.taken_after += self.failed
            if threading.get_ident() == main:
                return lambda: at_work.wait(30)
            at_work.set()
            until(lambda: sys._current_frames()[main].f_code.co_name == "_run_next")
            self.failed = True
            raise ValueError

    items = Items()
    with pytest.raises(ValueError):
        list(run_in_two_threads(items))
    assert items.taken_after == 0


@pytest.mark.parametrize("slow", [HELPER, "MainThread", None])
def test_an_error_of_an_item_is_raised_in_order(slow: str | None) -> None:
    def made(number: int) -> int:
        if current_thread_name() == slow:
            sum(range(50_000))
        return 1 // (10 - number)

    seen = []

    def take() -> None:
        for number in run_in_two_threads(iter([lambda number=number: made(number) for number in range(20)])):
            seen.append(number)

    with pytest.raises(ZeroDivisionError):
        take()
    assert len(seen) == 10


@pytest.mark.parametrize("where", ["taking", "calling"])
def test_an_interrupt_of_the_consumer_is_raised_at_once(where: str) -> None:
    """Also while the other thread works."""
    main, at_work, go_on = current_thread_name(), threading.Event(), threading.Event()

    def item() -> None:
        if current_thread_name() == main:
            assert at_work.wait(30)
            if where == "calling":
                raise KeyboardInterrupt
            return
        at_work.set()
        assert go_on.wait(30)

    def items() -> Iterator[Callable[[], None]]:
        while True:
            if current_thread_name() == main and where == "taking" and at_work.is_set():
                raise KeyboardInterrupt
            yield item

    with pytest.raises(KeyboardInterrupt):
        list(run_in_two_threads(items()))
    assert at_work.is_set()
    go_on.set()
    until(lambda: not helper_threads())


@pytest.mark.parametrize("most", [2, 3, 7])
def test_the_number_of_prefetched_items_is_bounded(most: int) -> None:
    taken: list[int] = []
    for number in run_in_two_threads(numbered_items(taken, 50), most):
        # This one is handed over, and has made room; the other thread fills it while this one is here.
        until(lambda number=number: len(taken) == min(50, number + 1 + most))
        assert len(taken) <= number + 1 + most


def test_both_threads_process_items_in_parallel() -> None:
    """Each item waits until a second one is processed: a single thread would wait until the timeout."""
    two = threading.Barrier(2, timeout=30)

    def item() -> str:
        two.wait()
        return current_thread_name()

    assert {*run_in_two_threads(iter([item] * 20))} == {current_thread_name(), HELPER}


def test_items_are_taken_from_the_source_by_one_thread_at_a_time() -> None:
    inside = 0

    class Items(Iterator[Callable[[], int]]):
        def __init__(self) -> None:
            self.left = 2_000

        def __next__(self) -> Callable[[], int]:
            nonlocal inside
            inside += 1
            assert inside == 1
            self.left -= 1
            number = self.left
            sum(range(100))
            inside -= 1
            if number < 0:
                raise StopIteration
            return lambda: number

    assert [*run_in_two_threads(Items())] == [*range(1_999, -1, -1)]


def test_a_returned_item_is_not_referenced_any_more() -> None:
    class Batch:
        pass

    def batches() -> Iterator[Callable[[], Batch]]:
        for _ in range(6):
            yield Batch

    given = run_in_two_threads(batches(), 2)
    seen = []
    while (batch := next(given, None)) is not None:
        seen.append(weakref.ref(batch))
        del batch
    until(lambda: all(ref() is None for ref in seen))


def test_the_input_of_an_item_is_released_with_it() -> None:
    class Documents:
        def made(self) -> int:
            return 1

    alive: weakref.WeakSet[Documents] = weakref.WeakSet()

    def items() -> Iterator[Callable[[], int]]:
        for _ in range(10):
            documents = Documents()
            alive.add(documents)
            work = documents.made
            del documents
            yield work
            del work

    for _ in run_in_two_threads(items(), 3):
        until(lambda: len(alive) <= 1)  # what the generator has in its hands


def test_closing_early_finishes_the_current_item_and_ends_the_thread() -> None:
    main, at_work, go_on = current_thread_name(), threading.Event(), threading.Event()
    taken: list[int] = []

    def item(number: int) -> None:
        if number and current_thread_name() == main:
            assert at_work.wait(30)
        elif number:
            at_work.set()
            assert go_on.wait(30)

    def items() -> Iterator[Callable[[], None]]:
        for number in range(50):
            taken.append(number)
            yield lambda number=number: item(number)  # type: ignore[misc]

    until(lambda: not helper_threads())  # those of other tests have ended
    for _ in run_in_two_threads(items()):
        assert at_work.wait(30)
        break
    assert helper_threads() == 1  # nobody waits for it
    before = len(taken)
    go_on.set()
    until(lambda: not helper_threads())
    assert len(taken) == before < 50


def test_a_thread_that_waits_for_a_free_slot_ends_when_the_caller_stops_early() -> None:
    taken = list[int]()
    until(lambda: not helper_threads())
    for _ in run_in_two_threads(numbered_items(taken, 50), max_results=2):
        until(lambda: len(taken) == 3)
        break
    until(lambda: not helper_threads())
    assert len(taken) == 3


def test_a_submitted_call_starts_at_once_and_its_result_is_taken_once() -> None:
    ran = threading.Event()
    made = run_in_thread(lambda: ran.set() or threading.current_thread().name)
    assert ran.wait(30)
    assert made.result() != threading.current_thread().name
    failed = run_in_thread(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    ended = run_in_thread(partial(sys.exit, 3))
    with pytest.raises(SystemExit):
        ended.result(10)


def test_a_thread_has_the_context_of_its_caller_and_keeps_no_process_alive() -> None:
    """The events of a thread belong to the load of its caller."""
    load = ContextVar("load", default="")
    load.set("a")
    assert run_in_thread(lambda: (load.get(), threading.current_thread().daemon)).result() == ("a", True)


#: Starts a thread with so much address space that its stack fits in, and little else.
WITHOUT_MEMORY = """
import resource
from weblake.background import run_in_thread, run_in_two_threads
from weblake.dataset.parallel import in_order
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
resource.setrlimit(resource.RLIMIT_AS, [used + (max(stack, 0) + (1 << 20))] * 2)
for start in (
    lambda: run_in_thread(int).result(),
    lambda: [*run_in_two_threads(iter([int]))],
    lambda: [*in_order("x", str)],
):
    try:
        print(start())
    except MemoryError:
        print("MemoryError")
"""


@proves(
    "P12",
    at="src/weblake/background.py",
    line="    free_memory.require(free_memory.THREAD_BYTES)",
    becomes="    pass",
)
@proves(
    "P12",
    at="src/weblake/dataset/parallel.py",
    line="                free_memory.require(free_memory.THREAD_BYTES)  # `submit` may start a thread",
    becomes="                pass",
)
def test_p12_no_thread_is_started_without_the_memory_to_begin() -> None:
    """`Thread.start` would wait for ever for a thread that had none: https://github.com/python/cpython/issues/140746."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["MemoryError"] * 3, done.stderr
