"""Pool of processes for work on untrusted input, such as converting pages: started on demand, killed at their deadline.

Converters are native code that cannot be interrupted. Each one therefore runs in a separate process and handles one
task at a time; a process that exceeds its deadline or its memory is replaced.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import msgspec

from weblake_service.fair_queue import SharedSlots
from weblake_service.files.conversion_messages import HEADER, MAX_RESULT_BYTES, ConversionResult, ConversionTask, pack
from weblake_service.page_failure import PageFailure

#: Maximum address space of one process in bytes.
MAX_MEMORY_BYTES = 2 << 30
#: Maximum number of processes of one team.
MAX_PROCESSES = max(1, min(4, os.cpu_count() or 1))
#: Seconds after which an idle process is ended.
IDLE_S = 60.0
#: A process whose peak memory reached this number of bytes is not reused, because it would keep the memory.
_MAX_REUSED_PEAK_BYTES = 256 << 20
#: Environment variables that are passed to a process; no secrets.
_PASSED_VARIABLES = (
    "PATH PYTHONPATH PYTHONHOME LD_LIBRARY_PATH DYLD_LIBRARY_PATH SYSTEMROOT TEMP TMP TMPDIR LANG LC_ALL"
)
_WORKER = Path(__file__).with_name("worker.py")
_ENVIRONMENT = frozenset(_PASSED_VARIABLES.split())
_PIPE_ERRORS = (BrokenPipeError, ConnectionResetError, asyncio.IncompleteReadError)


class ConverterPool:
    """Converts a limited number of documents at a time; used on one event loop and closed with `aclose`.

    `max_processes` is the number of processes of one team, and all teams together have one more; `memory` the maximum
    bytes of each, `idle` the seconds until an idle one is ended.
    """

    def __init__(
        self, *, max_processes: int = MAX_PROCESSES, memory: int = MAX_MEMORY_BYTES, idle: float = IDLE_S
    ) -> None:
        self._memory = memory
        self._idle_s = idle
        self._slots = SharedSlots(max_processes)
        self._uploads = SharedSlots(max_processes + 1)
        self._idle: list[_ConverterProcess] = []
        self._busy: set[_ConverterProcess] = set()

    def slot(self) -> AbstractAsyncContextManager[None]:
        """Hold a slot for an uploaded file in memory: few are held, and the others wait on disk."""
        return self._uploads.hold()

    async def convert(self, task: ConversionTask, body: bytes) -> ConversionResult:
        """Return the result of a conversion; the caller sets the deadline, and cancellation kills the process.

        Raises:
            PageFailure: The process died during the conversion, most likely because it ran out of memory.
        """
        async with self._slots.hold():
            process = self._take_idle() or await _ConverterProcess.start(self._memory)
            self._busy.add(process)
            try:
                result = await process.convert(task, body)
            except BaseException:
                # If cancelled again, the caller does not wait for the end of the process; `aclose` still does.
                killing = asyncio.create_task(process.kill())
                killing.add_done_callback(lambda _: self._busy.discard(process))
                await asyncio.shield(killing)
                raise
            self._busy.discard(process)
            await self._keep(process, result)
            return result

    async def aclose(self) -> None:
        """End all processes."""
        for process in (*self._idle, *self._busy):
            await process.kill()
        self._idle.clear()
        self._busy.clear()

    @property
    def pids(self) -> list[int]:
        """Return the ids of the running processes."""
        return [process.pid for process in (*self._idle, *self._busy)]

    def _take_idle(self) -> _ConverterProcess | None:
        """Return an idle process, or None; processes that have died are skipped."""
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
        return None

    async def _keep(self, process: _ConverterProcess, result: ConversionResult) -> None:
        if result.peak > _MAX_REUSED_PEAK_BYTES:
            await process.kill()
            return
        self._idle.append(process)
        process.timer = asyncio.get_running_loop().call_later(self._idle_s, self._retire, process)

    def _retire(self, process: _ConverterProcess) -> None:
        if process in self._idle:
            self._idle.remove(process)
            process.end()


class _ConverterProcess:
    """One converter process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, memory: int) -> _ConverterProcess:
        environment = {name: value for name, value in os.environ.items() if name.upper() in _ENVIRONMENT}
        process = await asyncio.create_subprocess_exec(
            # Not `-m`: that could import a module from the current directory.
            sys.executable,
            "-P",
            str(_WORKER),
            str(memory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def convert(self, task: ConversionTask, body: bytes) -> ConversionResult:
        if self.timer is not None:
            self.timer.cancel()
        source, sink = self._process.stdin, self._process.stdout
        assert source is not None
        assert sink is not None
        try:
            source.writelines([pack(task, len(body)), body])
            await source.drain()
            length, _ = HEADER.unpack(await sink.readexactly(HEADER.size))
            if length > MAX_RESULT_BYTES:
                raise _process_died_failure()
            return msgspec.json.decode(await sink.readexactly(length), type=ConversionResult)
        except (*_PIPE_ERRORS, msgspec.DecodeError) as error:
            raise _process_died_failure() from error

    def end(self) -> None:
        """End the process without waiting; it must be idle."""
        if self.timer is not None:
            self.timer.cancel()
        with suppress(ProcessLookupError):
            self._process.kill()

    async def kill(self) -> None:
        """Kill the process, and wait until it has ended."""
        self.end()
        await self._process.wait()


def _process_died_failure() -> PageFailure:
    message = (
        "It could not be converted: it needs more memory than one file or page may have, or broke the converter. "
        "Split it, or save it anew and try again."
    )
    return PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)
