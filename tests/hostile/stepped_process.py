"""Processes that advance one act at a time under the test's control, and can die between any two acts.

An act is what others can observe: a request, a wait, a change of the root. Only one process runs at a time, and only
one of its threads reaches an act, so a schedule of several writers can be reproduced exactly.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

from simulated_service import SimulatedService

from weblake.api import steps
from weblake.api.steps import Flow, NoResponse, Request, Response
from weblake.errors import WeblakeError
from weblake.jobs.retry import Retry
from weblake.storage import Storage

T = TypeVar("T")

_START = re.compile(r"_weblake/ledger/[0-9a-f]{16}\.start-\d+\.json")
#: Seconds that one act may take on a busy machine.
_PATIENCE = 120.0


class Killed(BaseException):
    """The process was killed."""


class Process:
    """One run of a function as a process."""

    def __init__(self, work: Callable[[Process], object]) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self.over = False
        #: Whether a start is recorded and not sent yet, and whether the clock was read after that record: weblake
        #: assumes that the start is sent immediately after that read (docs/development/promises.md, promise 3).
        self.recorded = self.starting = False
        self._killed = False
        #: Held by the thread that is about to act; a load may have several threads, and no two of them may act at once.
        self._acting = threading.Lock()
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._main, args=(work,), daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Let the process perform one act."""
        if not self.over:
            self._go.release()
            assert self._rest.acquire(timeout=_PATIENCE), "an act did not end"

    def finish(self) -> None:
        """Let the process run to its end."""
        while not self.over:
            self.step()
        self._thread.join()

    def kill(self) -> None:
        """Kill the process where it is; it makes no more changes."""
        self._killed = True
        self.finish()

    @property
    def killed(self) -> bool:
        return isinstance(self.error, Killed)

    def act(self) -> None:
        """Wait for permission to perform the next act; called by the process itself."""
        if not self._killed:
            assert self._acting.acquire(blocking=False), "two threads act at once: the case could not be reproduced"
            self._rest.release()
            self._go.acquire()
            self._acting.release()
        if self._killed:
            raise Killed

    def _main(self, work: Callable[[Process], object]) -> None:
        self._go.acquire()
        try:
            if not self._killed:
                self.result = work(self)
        except (WeblakeError, AssertionError, Killed) as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - the test reads it from the process object
            self.error = AssertionError(f"{type(error).__name__}: {error}")
            self.error.__cause__ = error
        finally:
            self.over = True
            self._rest.release()


@dataclass
class SteppedClient:
    """The part of a client's interface that load.land needs; each request and each wait is an act of the process."""

    world: SimulatedService
    process: Process
    retry: Retry = field(default_factory=lambda: Retry(jitter=lambda: 0.5))
    service: str = "given"

    def run(self, flow: Flow[T]) -> T:
        clock = self.world.clock
        return steps.run(flow, self, sleep=self.sleep, clock=clock.monotonic, wall=self.wall)

    def redact(self, text: str) -> str:
        return text

    def wall(self) -> float:
        self.process.act()
        self.process.starting = self.process.recorded
        return self.world.clock.wall()

    def send(self, request: Request) -> Response | NoResponse:
        self.process.act()
        if request.method == "POST":
            self.process.recorded = self.process.starting = False
        return self.world.send(request)

    def sleep(self, seconds: float) -> None:
        self.process.act()
        self.world.clock.sleep(seconds)


class SteppedStorage:
    """A real storage; each change of it is an act of the process."""

    def __init__(self, storage: Storage, process: Process) -> None:
        self._storage, self._process = storage, process
        self.url = storage.url
        self.read, self.exists, self.ensure_durable = storage.read, storage.exists, storage.ensure_durable
        self.list = storage.list
        self.local_path = storage.local_path

    def create(self, name: str, data: bytes) -> bool:
        self._process.act()
        made = self._storage.create(name, data)
        self._process.recorded |= made and _START.fullmatch(name) is not None
        return made

    def publish(self, local_file: Path, name: str) -> bool:
        self._process.act()
        return self._storage.publish(local_file, name)

    def replace(self, name: str, local_file: Path) -> None:
        self._process.act()
        self._storage.replace(name, local_file)

    def move(self, name: str, new_name: str) -> bool:
        self._process.act()
        return self._storage.move(name, new_name)

    def delete(self, name: str) -> None:
        self._process.act()
        self._storage.delete(name)

    def open_input(self, name: str) -> IO[bytes]:
        return self._storage.open_input(name)

    def scratch(self) -> AbstractContextManager[Path]:
        return self._storage.scratch()

    def preflight(self, keys_dir: str, names: Sequence[str] = ()) -> None:
        self._process.act()
        self._storage.preflight(keys_dir, names)

    def find_size(self, name: str) -> int | None:
        return self._storage.find_size(name)
