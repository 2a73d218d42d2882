"""What Ctrl-C, SIGTERM and SIGHUP do to a command: it ends, its staging is dropped, and the exit code says why.

Python raises KeyboardInterrupt wherever the main thread is at that moment, and where that is a callback of a weak
reference, a finalizer or a library that catches everything, the interrupt is lost and the command runs on. So it is
raised again each second until something ends for it. Imports nothing of ours.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: The exit code of a command that Ctrl-C ended: 128 and the number of SIGINT, as shells have it.
INTERRUPTED = 130

#: SIGTERM: told to end. SIGHUP: the terminal, or the shell that started it, is gone.
SIGNALS = (signal.SIGTERM, signal.SIGHUP)

#: Seconds after which an interrupt that has ended nothing is raised again.
_AGAIN_S = 1.0

#: The same where it is known to be lost: long enough for the callback to return.
_AT_ONCE_S = 0.01

#: Whether SIGINT has arrived. Not an Event: its lock may be held by the code that a second SIGINT interrupts.
_heard = False


@contextmanager
def ctrl_c_ends() -> Iterator[None]:
    """Around a whole command: Ctrl-C raises KeyboardInterrupt inside, and the process exits with 130.

    After the command, while exit handlers run, Ctrl-C ends the process at once with 130. After the last exit handler,
    while Python takes its modules down, Ctrl-C is ignored, and the process exits with the command's own code.

    Where SIGINT is ignored by the process that started this one (a shell's background job), it stays ignored; and the
    handler of a program that calls the command line as a function stays.
    """
    global _heard
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    # The first handler that is registered is called last. After it Python resets SIGINT to the system's default, which
    # would end the process by the signal; a signal that is ignored stays ignored.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, _raise_again)
    signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _unraisable
    code: object = 0
    try:
        yield
    except KeyboardInterrupt:
        _heard = True
    except SystemExit as end:
        code = end.code
        if not _heard:
            raise
    finally:
        signal.signal(signal.SIGINT, _end_now)
        signal.setitimer(signal.ITIMER_REAL, 0)
    if _heard:
        # Python remembers an interrupt of code that was run from a text, such as a dataclass that was being made, and
        # would end by the signal instead of with this code. The next code that is run from a text makes it forget.
        exec("")  # noqa: S102 - an empty text
        sys.exit(code if isinstance(code, int) and code > INTERRUPTED else INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _heard
    _heard = True
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S, _AGAIN_S)
    raise KeyboardInterrupt


def _raise_again(number: int, frame: FrameType | None) -> None:
    """Raise the interrupt once more, unless something is ending for it right now."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return
        error = error.__context__
    raise KeyboardInterrupt


def _unraisable(lost: sys.UnraisableHookArgs) -> None:
    """Report an error that a callback could not raise; an interrupt is raised again at once instead."""
    if lost.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, _AT_ONCE_S, _AGAIN_S)
    else:
        sys.__unraisablehook__(lost)


def _end_now(number: int, frame: FrameType | None) -> None:
    """The command has done its work, and Python is closing: there is nothing to drop, and nothing that could hear."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(INTERRUPTED)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM or SIGHUP inside raises SystemExit (128 + its number), so that whatever is open is closed.

    A second one kills at once. A second Ctrl-C cuts short what is being closed, and no more: once the end has come
    through here, only how to go on is left to say. A handler that a program has set is left alone (nohup ignores
    SIGHUP), and so is everything outside the main thread.
    """
    inside = threading.current_thread() is threading.main_thread()
    ours = [number for number in SIGNALS if inside and signal.getsignal(number) == signal.SIG_DFL]

    def end(number: int, frame: FrameType | None) -> None:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        raise SystemExit(128 + number)

    try:
        for number in ours:
            signal.signal(number, end)
        yield
    except (KeyboardInterrupt, SystemExit):
        if inside and signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _interrupt):
            signal.signal(signal.SIGINT, _unheard)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _unheard(number: int, frame: FrameType | None) -> None:
    """Instead of SIG_IGN, which a process started later would inherit."""
