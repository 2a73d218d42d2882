"""Pool of processes that convert documents and large pages: started on demand, killed at their deadline.

A converter is native code that reads what strangers wrote. It cannot be interrupted, so each one runs in a process of
its own that is handed one file at a time; one that passes its deadline or its memory is replaced.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from weblake.compat import program_command
from weblake_service.files.conversion_messages import HEAD, MOST_RESULT, ConversionResult, ConversionTask, pack
from weblake_service.page_failure import PageFailure

#: Bytes of address space of one process.
MEMORY = 2 << 30
#: Processes at the same time, at most.
MOST = max(1, min(4, os.cpu_count() or 1))
#: Seconds after which a process without work is ended.
IDLE = 60.0
#: A process that ever needed so many bytes is not kept: they would stay with it.
_GROWN = 256 << 20
#: What a process gets of the environment: no keys.
_KEPT_NAMES = "PATH PYTHONPATH PYTHONHOME LD_LIBRARY_PATH DYLD_LIBRARY_PATH SYSTEMROOT TEMP TMP TMPDIR LANG LC_ALL"
_WORKER = Path(__file__).with_name("worker.py")
_ENVIRONMENT = frozenset(_KEPT_NAMES.split())
_GONE = (BrokenPipeError, ConnectionResetError, asyncio.IncompleteReadError)


class ConverterPool:
    """Converts documents, so many at a time; used on one event loop and closed with `aclose`.

    `most` is the number of processes, `memory` the bytes of each, `idle` the seconds that one waits for more work.
    """

    def __init__(self, *, most: int = MOST, memory: int = MEMORY, idle: float = IDLE) -> None:
        self._memory = memory
        self._idle_s = idle
        self._slots = asyncio.Semaphore(most)
        self._uploads = asyncio.Semaphore(most + 1)
        self._idle: list[_ConverterProcess] = []
        self._busy: set[_ConverterProcess] = set()

    def slot(self) -> asyncio.Semaphore:
        """Return a context in which an uploaded file is held in memory: few are, and the others wait on disk."""
        return self._uploads

    async def convert(self, task: ConversionTask, body: bytes) -> ConversionResult:
        """Return what became of a file; the caller sets the deadline, and cancelling ends the process.

        Raises:
            PageFailure: The process died of the file, so most likely for want of memory.
        """
        async with self._slots:
            process = self._waiting() or await _ConverterProcess.start(self._memory)
            self._busy.add(process)
            try:
                result = await process.convert(task, body)
            except BaseException:
                # Cancelled once more, the caller does not wait for the end of the process; `aclose` still does.
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
        """Return the running processes."""
        return [process.pid for process in (*self._idle, *self._busy)]

    def _waiting(self) -> _ConverterProcess | None:
        """Return a process without work; one that died while it waited is left out."""
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
        return None

    async def _keep(self, process: _ConverterProcess, result: ConversionResult) -> None:
        if result.peak > _GROWN:
            await process.kill()
            return
        self._idle.append(process)
        process.timer = asyncio.get_running_loop().call_later(self._idle_s, self._retire, process)

    def _retire(self, process: _ConverterProcess) -> None:
        if process in self._idle:
            self._idle.remove(process)
            process.end()


class _ConverterProcess:
    """One converting process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.timer: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, memory: int) -> _ConverterProcess:
        environment = {name: value for name, value in os.environ.items() if name.upper() in _ENVIRONMENT}
        process = await asyncio.create_subprocess_exec(
            # Not `-m`: a module in the directory that the service was started in is not imported.
            *program_command(_WORKER, str(memory)),
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
            length, _ = HEAD.unpack(await sink.readexactly(HEAD.size))
            if length > MOST_RESULT:
                raise _process_died()
            return msgspec.json.decode(await sink.readexactly(length), type=ConversionResult)
        except (*_GONE, msgspec.DecodeError) as error:
            raise _process_died() from error

    def end(self) -> None:
        """End it without waiting; it has nothing to do."""
        if self.timer is not None:
            self.timer.cancel()
        with suppress(ProcessLookupError):
            self._process.kill()

    async def kill(self) -> None:
        """End it, and wait until it is gone."""
        self.end()
        await self._process.wait()


def _process_died() -> PageFailure:
    message = (
        "It could not be converted: it needs more memory than one file or page may have, or broke the converter. "
        "Split it, or save it anew and try again."
    )
    return PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)
