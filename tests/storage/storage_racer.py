"""A second process for test_storage.py: repeats one operation on a root at the moments that the test chooses.

storage_racer.py ROOT create|publish WRITER      each line on standard input is "NAME TIME": do it at that moment
storage_racer.py ROOT sweep create|publish|move  dies at every instruction of it in turn, and looks what is there
storage_racer.py ROOT big BYTES                  creates and publishes one of this size, and says what happened
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from weblake.errors import WeblakeError
from weblake.storage import open_storage


def content(writer: str) -> bytes:
    """Two blocks and a bit, all of one writer: a mixture or a part shows."""
    return f"<{writer}>".encode() + writer.encode() * 9000 + b"</>"


def race(root: str, what: str, writer: str) -> None:
    storage = open_storage(root)
    storage.exists("warm")
    print("ready", flush=True)
    for line in sys.stdin:
        name, moment = line.split()
        with storage.scratch() as scratch:
            (scratch / "staged").write_bytes(content(writer))
            while time.monotonic() < float(moment):
                pass
            won = (
                storage.create(name, content(writer)) if what == "create" else storage.publish(scratch / "staged", name)
            )
        print(won, flush=True)


def dies_at(moment: int, act: Callable[[], object]) -> bool:
    """Runs it in a process that is killed before the given instruction of our code; False if it ended before that."""
    child = os.fork()
    if child == 0:
        left = moment

        def step(frame: FrameType, event: str, arg: object) -> object:
            nonlocal left
            if "weblake" not in frame.f_code.co_filename:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return step

        sys.settrace(step)
        act()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def sweep(root: str, what: str) -> None:
    storage = open_storage(root)
    data = content("a")
    seen = {"absent": 0, "whole": 0}
    moment, died = 0, True
    while died:
        moment += 1
        name, old = f"documents/k=1/{moment}.parquet", f"_weblake/refused/{moment}.parquet"
        if what == "move":
            storage.create(old, data)
        with storage.scratch() as scratch:
            staged = scratch / "staged"
            staged.write_bytes(data)
            acts = {
                "create": lambda name=name: storage.create(name, data),
                "publish": lambda name=name, staged=staged: storage.publish(staged, name),
                "move": lambda name=name, old=old: storage.move(old, name),
            }
            died = dies_at(moment, acts[what])
            found = storage.read(name)
            if found not in (None, data) or (what == "move" and found is None and storage.read(old) != data):
                print(f"BROKEN at instruction {moment}: {len(found or b'')} bytes", flush=True)
                return
            seen["absent" if found is None else "whole"] += 1
            # The next run: it finishes what was left, or finds it done.
            if what == "publish" and not staged.exists():
                staged.write_bytes(data)
            acts[what]()
            if storage.read(name) != data or (what == "move" and storage.exists(old)):
                print(f"NOT FINISHED after instruction {moment}", flush=True)
                return
    print(f"{seen['absent']} {seen['whole']}", flush=True)


def big(root: str, size: int) -> None:
    storage = open_storage(root)
    for what in ("create", "publish"):
        try:
            with storage.scratch() as scratch:
                if what == "publish":
                    (scratch / "staged").write_bytes(b"x" * size)
                    storage.publish(scratch / "staged", "documents/k=1/big.parquet")
                else:
                    storage.create("_weblake/ledger/big.json", b"x" * size)
            print("done", flush=True)
        except (WeblakeError, OSError) as error:
            print(type(error).__name__, error, flush=True)


if __name__ == "__main__":
    root, what, last = sys.argv[1:4]
    if what == "sweep":
        sweep(root, last)
    elif what == "big":
        big(root, int(last))
    else:
        race(root, what, last)
