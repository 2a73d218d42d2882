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

    A second one kills at once. A handler that somebody else has set is left alone (nohup ignores SIGHUP), and so is
    everything outside the main thread.
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
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
