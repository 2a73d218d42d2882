"""Runs one execution of a user's code and ends every process that it started.

It is not a sandbox: the code runs as the user of the service. The code does not get the service's environment, and its
processes do not outlive the execution.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weblake_service.sessions.code import supervisor
from weblake_service.sessions.code.languages import LanguageMissing, search_path, write_files
from weblake_service.sessions.code.output import MAX_BYTES, BoundedOutput

#: Resource limits of each process of the code; memory is not limited, because node reserves far more than it uses.
_LIMITS = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 256 << 20, "RLIMIT_NOFILE": 4096}
#: Seconds that the supervisor may take to end all processes; then this process ends them.
_SUPERVISOR_EXIT_S = 3.0
#: Seconds in which the output pipes must close after all processes have ended.
_PIPE_CLOSE_S = 2.0
#: Maximum characters of an error message.
_MAX_ERROR_CHARS = 4000


@dataclass(frozen=True)
class Execution:
    """The result and the output of an execution."""

    stdout: str
    stderr: str
    #: The exit status of the process; negative for a signal, such as -9 if it was killed.
    exit_code: int | None
    #: Whether the timeout has expired.
    killed: bool
    #: The error in a few lines; None if there is none.
    error: str | None
    #: The value of the last expression: a string as it is, anything else as JSON; None if there is none.
    value: str | None


async def run_code(
    code: str,
    language: str,
    *,
    cdp_url: str,
    folder: Path,
    timeout_s: float,
    page: str | None = None,
    unblock: Callable[[], Awaitable[None]] | None = None,
) -> Execution:
    """Run code against a browser.

    Args:
        code: The code.
        language: One of `languages.LANGUAGES`.
        cdp_url: The CDP endpoint of the browser: `ws://…`.
        folder: The code's working directory, home and place for temporary files; it must exist.
        timeout_s: Seconds after which it is killed.
        page: The target id of the page that the code gets as `page`; by default the last page.
        unblock: Ends loops in pages; called if the code was cut off.
    """
    cut_off = True
    try:
        execution = await _run_in_folder(code, language, cdp_url, folder, timeout_s, page or "")
        cut_off = execution.killed
        return execution
    finally:
        if cut_off and unblock is not None:
            await unblock()


async def _run_in_folder(
    code: str, language: str, cdp_url: str, folder: Path, timeout_s: float, page: str
) -> Execution:
    mark = secrets.token_hex(8)
    folder, room = _make_folder(folder, mark)
    try:
        try:
            command = write_files(room, code, language)
        except LanguageMissing as error:
            return Execution("", "", None, killed=False, error=str(error), value=None)
        (room / "page").write_text(page, "utf-8")
        environment = {
            "PATH": search_path(room),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "CDP_URL": cdp_url,
            supervisor.MARK: mark,
        }
        return await _run(command, environment, room, folder, timeout_s)
    finally:
        await asyncio.to_thread(shutil.rmtree, room, ignore_errors=True)


def _make_folder(folder: Path, mark: str) -> tuple[Path, Path]:
    """Return the absolute path of the folder, and a subfolder for the execution."""
    folder = folder.absolute()
    room = folder / f".run-{mark}"
    room.mkdir(0o700)
    return folder, room


async def _run(
    command: list[str], environment: dict[str, str], room: Path, folder: Path, timeout_s: float
) -> Execution:
    stdout, stderr = BoundedOutput(), BoundedOutput()
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", supervisor.__file__),
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout.end,
            stderr=stderr.end,
            env=environment,
            start_new_session=True,
        )
    finally:
        stdout.release()
        stderr.release()
    assert process.stdin is not None
    reading = asyncio.gather(stdout.read(), stderr.read())
    killed = False
    try:
        # The limit counts threads too, and the supervisor enforces the timeout; this ends processes that it has missed.
        seconds = int(timeout_s + 5) * (os.cpu_count() or 1)
        task = {
            "command": command,
            "folder": str(folder),
            "ended": str(room / "ended"),
            "limits": {**_LIMITS, "RLIMIT_CPU": seconds},
        }
        process.stdin.write(json.dumps(task).encode() + b"\n")
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            killed = True
    finally:
        await _end(process, environment[supervisor.MARK])
        with suppress(TimeoutError):
            async with asyncio.timeout(_PIPE_CLOSE_S):
                await reading
    exit_code = -signal.SIGKILL if killed else _status(room)
    return Execution(
        stdout=stdout.text(),
        stderr=stderr.text(),
        exit_code=exit_code,
        killed=killed,
        error=_error(room, exit_code, timeout_s if killed else None),
        value=_read(room / "value", MAX_BYTES) if exit_code == 0 else None,
    )


async def _end(process: asyncio.subprocess.Process, mark: str) -> None:
    """End an execution, and wait until all of its processes have ended."""
    assert process.stdin is not None
    # First and without waiting: after this, the supervisor ends all processes even if this task is cancelled.
    process.stdin.close()
    try:
        async with asyncio.timeout(_SUPERVISOR_EXIT_S):
            await process.wait()
        if process.returncode == 0:
            return
    except TimeoutError:
        pass
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
    # The code has killed or stopped its supervisor.
    await asyncio.to_thread(supervisor.kill_all, lambda: supervisor.marked_processes(mark))
    with suppress(TimeoutError):
        async with asyncio.timeout(_PIPE_CLOSE_S):
            await process.wait()


def _status(room: Path) -> int | None:
    """Return the exit status of the code as the supervisor recorded it; None if the supervisor was killed before."""
    said = _read(room / "ended", 20)
    return int(said) if said else None


def _error(room: Path, exit_code: int | None, limit: float | None) -> str | None:
    if limit is not None:
        return f"The code was ended after {limit:g} s, which is its timeout. Give it a larger one, or less to do."
    if exit_code is None:
        return "The process that watches over the code was ended, and the code with it."
    if exit_code == 0:
        return None
    said = _read(room / "error", _MAX_ERROR_CHARS)
    if said:
        return said
    if exit_code > 0:
        return f"exit code {exit_code}"
    with suppress(ValueError):
        return f"ended by the signal {signal.Signals(-exit_code).name}"
    return f"ended by signal {-exit_code}"


def _read(file: Path, max_chars: int) -> str | None:
    """Return the beginning of a file that the code's process wrote; None if there is none."""
    try:
        with file.open("rb") as source:
            data = source.read(max_chars + 1)
    except OSError:
        return None
    return data[:max_chars].decode("utf-8", "ignore") + ("…" if len(data) > max_chars else "")
