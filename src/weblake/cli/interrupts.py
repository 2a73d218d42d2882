"""Signals that end a command (SIGINT, SIGTERM, SIGHUP): it cleans up, and its exit code names the signal.

Python raises KeyboardInterrupt wherever the main thread is at that moment. In a callback of a weak reference, in a
finalizer, or in a library that catches everything, the interrupt is lost and the command continues. And Python calls
the handler of a signal between two instructions of the main thread: a signal that arrives just before a call that waits
(for a line of a terminal, for a lock) is handled after that call, which may be never. So a timer interrupts such a call
each second, and raises an interrupt again until the command ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: Exit code of a command that Ctrl-C ended: 128 and the number of SIGINT, as in shells.
INTERRUPTED = 130

#: SIGHUP: the terminal, or the shell that started the command, has ended. Windows does not have it.
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))

#: Seconds of the timer.
_REPEAT_S = 1.0

#: The signals whose handler has run. Not an Event: its lock may be held by the code that a second SIGINT interrupts.
_received: set[int] = set()


def exit_code_of(end: BaseException) -> int:
    """Return the exit code of a command that a KeyboardInterrupt or a SystemExit has ended."""
    return end.code if isinstance(end, SystemExit) and isinstance(end.code, int) else INTERRUPTED


@contextmanager
def end_on_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in the block, which is a whole command, and the process exit with 130.

    After the command, while exit handlers run, Ctrl-C ends the process at once with 130.

    If the process that started this one ignores SIGINT (as for a background job of a shell), it stays ignored. The
    handler of a program that calls the command line as a function stays.
    """
    ours = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGALRM")
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGALRM, _raise_again)
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _on_unraisable
    signal.setitimer(signal.ITIMER_REAL, _REPEAT_S, _REPEAT_S)
    code: object = 0
    try:
        yield
    except KeyboardInterrupt:
        _received.add(signal.SIGINT)
    except SystemExit as end:
        code = end.code
        if signal.SIGINT not in _received:
            raise
    finally:
        signal.signal(signal.SIGINT, _end_now)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if signal.SIGINT in _received:
        sys.exit(code if isinstance(code, int) and code > INTERRUPTED else INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.add(number)
    raise KeyboardInterrupt


def _raise_again(number: int, frame: FrameType | None) -> None:
    """Raise an interrupt again, unless there was none or the command is ending because of it."""
    if signal.SIGINT not in _received:
        return
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return
        error = error.__context__
    raise KeyboardInterrupt


def _on_unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Report an error that a callback could not raise, but for an interrupt, which is raised again."""
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)


def _end_now(number: int, frame: FrameType | None) -> None:
    """End the process: the command is over, and Python is closing, so there is nothing to clean up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(INTERRUPTED)


@contextmanager
def exit_on_termination() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit (128 + the signal's number) in the block, so that it cleans up.

    A second one kills at once. A second Ctrl-C interrupts the cleanup; after the block it is ignored, so that the
    message about how to continue is written. Handlers that a program has set stay (nohup ignores SIGHUP), and outside
    the main thread nothing changes.
    """
    inside = threading.current_thread() is threading.main_thread()
    ours = [number for number in SIGNALS if inside and signal.getsignal(number) == signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        _received.add(number)
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        raise SystemExit(128 + number)

    try:
        for number in ours:
            signal.signal(number, end)
        yield
    except (KeyboardInterrupt, SystemExit):
        if inside and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _interrupt):
            signal.signal(signal.SIGINT, _ignore)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Ignore a signal; unlike SIG_IGN, processes that are started later do not inherit this."""
