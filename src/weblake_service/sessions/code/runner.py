"""Runs one execution of a user's code and ends the processes that it started.

It is not a sandbox: the code runs as the user of the service. The code does not get the service's environment. Its
process group ends with the execution, and with the service; a process that leaves the group (`setsid`) stays.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weblake_service.sessions.code.languages import LanguageMissing, search_path, write_files

#: Runs the code in its process group, within limits; $0 is the maximum number of CPU seconds. Memory is not limited,
#: because node reserves far more than it uses. The subshell kills the group when the service closes its end of standard
#: input, or has ended.
_SHELL = """
ulimit -c 0; ulimit -f 524288; ulimit -n 4096; ulimit -t "$0"
exec 3<&0
{ read -r _ <&3; kill -s KILL 0; } >/dev/null 2>&1 &
exec "$@" </dev/null 3<&-
"""
#: Maximum bytes of one output stream that are kept.
MAX_BYTES = 1_000_000
_READ_BYTES = 1 << 16
#: Seconds that background processes get to finish after the code itself has ended.
_GRACE_S = 0.5
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
        language: `node`, `python` or `bash`.
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
    folder = Path(os.path.abspath(folder))  # noqa: PTH100, ASYNC240 - it touches no disk
    room = folder / f".run-{secrets.token_hex(8)}"
    room.mkdir(0o700)
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
        }
        return await _run(command, environment, room, folder, timeout_s)
    finally:
        await asyncio.to_thread(shutil.rmtree, room, ignore_errors=True)


async def _run(
    command: list[str], environment: dict[str, str], room: Path, folder: Path, timeout_s: float
) -> Execution:
    stdout, stderr = BoundedOutput(), BoundedOutput()
    # A pipe of asyncio would close as soon as the shell ends.
    stdin, alive = os.pipe()
    # The limit counts threads too, and this process enforces the timeout.
    seconds = int(timeout_s + 5) * (os.cpu_count() or 1)
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _SHELL, str(seconds), *command),
            stdin=stdin,
            stdout=stdout.end,
            stderr=stderr.end,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
    except BaseException:
        os.close(alive)
        raise
    finally:
        os.close(stdin)
        stdout.release()
        stderr.release()
    reading = asyncio.gather(stdout.read(), stderr.read())
    killed = False
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            killed = True
        else:
            await asyncio.wait([reading], timeout=_GRACE_S)
    finally:
        # The subshell is in the group, so its number is not reused.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(alive)
        await process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await reading
    exit_code = -signal.SIGKILL if killed else process.returncode
    return Execution(
        stdout=stdout.text(),
        stderr=stderr.text(),
        exit_code=exit_code,
        killed=killed,
        error=_error(room, exit_code, timeout_s if killed else None),
        value=_read(room / "value", MAX_BYTES) if exit_code == 0 else None,
    )


def _error(room: Path, exit_code: int | None, limit: float | None) -> str | None:
    if limit is not None:
        return f"The code was ended after {limit:g} s, which is its timeout. Give it a larger one, or less to do."
    if not exit_code:
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


class BoundedOutput:
    """One output stream of a process. All of it is read, so that the process never blocks; its beginning is kept.

    It uses its own pipe: the `wait` of asyncio's processes also waits for every other process that holds the pipe.
    """

    def __init__(self) -> None:
        self._read, self.end = os.pipe()
        self._kept = bytearray()
        self._dropped = 0

    def release(self) -> None:
        """Close the write end in this process, after the child has inherited it."""
        os.close(self.end)

    async def read(self) -> None:
        """Read until all writers have closed the pipe, or until cancelled."""
        stream = asyncio.StreamReader()
        pipe = os.fdopen(self._read, "rb", 0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
        try:
            while data := await stream.read(_READ_BYTES):
                room = MAX_BYTES - len(self._kept)
                self._kept += data[:room]
                self._dropped += max(len(data) - room, 0)
        finally:
            transport.close()

    def text(self) -> str:
        """Return the output as text, with a last line that says so if it was truncated."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Truncation may split a character, which is not an error of the process.
        text = decoder.decode(bytes(self._kept), final=not self._dropped)
        if self._dropped:
            text += f"\n[cut here: {self._dropped} more bytes were printed; write what is large to a file]\n"
        return text
