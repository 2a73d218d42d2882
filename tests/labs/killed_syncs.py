"""Processes that sync the tables of a dataset without end, and are killed and replaced one after the other."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from polling import until

_SYNCS = """
import sys, weblake.tables as tables
while True:
    tables.sync(sys.argv[1], table_options=eval(sys.argv[2]))
    print("synced", flush=True)
"""
PROCESSES, ROUNDS = 3, 20


def sync_and_kill(
    root: str | Path,
    options: Mapping[str, str] | None,
    *,
    errors: Path,
    land: Callable[[int], object],
    done: Callable[[], bool],
) -> None:
    """Run three processes that sync; land rounds 1 to 20, killing one of them in each second round; wait for `done`.

    A process that ends by an error fails the test; `errors` is a file for what it prints. One that a library of the
    format crashes (a segmentation fault of deltalake 1.6.6 with pyarrow 26, once in some hundred runs) is one more that
    was killed, and is told.
    """
    command = [sys.executable, "-X", "faulthandler", "-c", _SYNCS, str(root), repr(options)]

    def start() -> subprocess.Popen[str]:
        with errors.open("a") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    processes = [start() for _ in range(PROCESSES)]
    try:
        for each in processes:
            assert each.stdout is not None
            assert each.stdout.readline() == "synced\n", errors.read_text()
        for number in range(1, ROUNDS + 1):
            land(number)
            if number % 2:
                victim = processes.pop(0)
                ended = victim.poll()
                printed = errors.read_text()
                assert ended is None or ended < 0, printed
                if ended is not None:
                    warnings.warn(f"a sync was ended by signal {-ended}: {printed}", stacklevel=1)
                victim.kill()
                victim.communicate(timeout=20)
                processes.append(start())
        until(done, 60)
    finally:
        for each in processes:
            each.kill()
            each.communicate(timeout=20)
