"""What SIGTERM and SIGHUP do to a running load: it ends like Ctrl-C, its staging dropped. Imports nothing of ours."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Told to end; and the terminal, or the shell that started it, is gone.
SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM or SIGHUP inside raises SystemExit (128 + its number), so that whatever is open is closed.

    A second one kills at once. A second Ctrl-C cuts short what is being closed, and no more: once the end has come
    through here, only how to go on is left to say. A handler that somebody else has set is left alone (nohup ignores
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
        if inside and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _unheard)
        raise
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _unheard(number: int, frame: FrameType | None) -> None:
    """Instead of SIG_IGN, which a process started later would inherit."""
