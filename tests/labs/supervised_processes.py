"""Processes in sessions of their own that end with their owner, also if the owner is killed.

A helper process, the watchdog, waits at the end of a pipe that only the owner holds: when the owner ends, even by
SIGKILL, the pipe closes and the watchdog ends the processes that the owner left.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TOKEN = "WEBLAKE_LAB_TOKEN"
#: Seconds in which the kernel has removed a killed process, on a machine that is busy with other tests.
SURVIVE_S = 60.0


@dataclass(frozen=True)
class Proc:
    """One living process, from /proc/PID/stat; its id together with its start time is unique."""

    pid: int
    parent: int
    session: int
    started: int


def _living() -> dict[int, Proc]:
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            stat = Path(entry.path, "stat").read_text(errors="replace")
        except OSError:  # ended meanwhile
            continue
        # The name in brackets may contain spaces and brackets.
        fields = stat.rpartition(")")[2].split()
        if fields[0] not in "ZX":
            found[int(entry.name)] = Proc(int(entry.name), int(fields[1]), int(fields[3]), int(fields[19]))
    return found


def _family(living: Mapping[int, Proc], found: set[int]) -> set[int]:
    while more := {proc.pid for proc in living.values() if proc.parent in found} - found:
        found = found | more
    return found


def members(sessions: Iterable[int], token: str = "") -> set[int]:
    """Return the living processes of these sessions, their descendants in other sessions, and all that carry the token.

    The token, in the environment, finds processes that left their session and outlived their parent. It does not find
    those that write their title over their environment, as Airflow, Postgres and Redis do.
    """
    wanted, living = set(sessions), _living()
    found = {proc.pid for proc in living.values() if proc.session in wanted}
    if token:
        found |= {pid for pid in living.keys() - found if _has_variable(pid, f"{_TOKEN}={token}".encode())}
    return _family(living, found)


def _has_variable(pid: int, entry: bytes) -> bool:
    try:
        return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # ended meanwhile, or of another user
        return False


def descendants(pid: int) -> set[int]:
    """Return the living descendants of a process."""
    return _family(_living(), {pid}) - {pid}


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    return pid in _living()


def stacks(pid: int) -> str:
    """Return the stack of each thread of a Python process, down to its C functions; or why it cannot be read."""
    command = ["py-spy", "dump", "--native", "--nonblocking", "--pid", str(pid)]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"({error})"
    return told.stdout or told.stderr


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(sessions: Mapping[int, int], grace: float, token: str = "") -> None:
    """End the sessions: each leader's process group gets its signal, and after `grace` seconds everything gets SIGKILL.

    :param sessions: session id -> the first signal; SIGKILL ends all of the session at once.
    :param token: ends processes that carry it, too, with SIGKILL.
    """
    living = _living()
    known = {(pid, living[pid].started) for pid in members(sessions, token) & living.keys()}
    for leader, number in sessions.items():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, number)
        if number == signal.SIGKILL:
            _signal(members([leader]), number)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and not _living().keys().isdisjoint(sessions):
        time.sleep(0.05)
    deadline = time.monotonic() + SURVIVE_S
    while rest := members(sessions, token) | {pid for pid, proc in _living().items() if (pid, proc.started) in known}:
        _signal(rest, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise AssertionError(f"processes survived SIGKILL for {SURVIVE_S:g} s: {sorted(rest)}")
        time.sleep(0.02)


class Watchdog:
    """A helper process that ends sessions and removes directories when the process that started it ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """Return the id of the watchdog's own process."""
        return self._process.pid

    def send_command(self, *words: str) -> None:
        """Send one command: `session ID SIGNAL`, `ended ID`, `token TEXT` or `directory PATH`."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the watchdog, after it has done its remaining work."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.close()
        self._process.wait(2 * SURVIVE_S)


class Processes:
    """Named processes; each leads a session, logs to a file of its own, and ends with its owner."""

    def __init__(self) -> None:
        self._watchdog = Watchdog()
        self._token = secrets.token_hex(8)
        self._watchdog.send_command("token", self._token)
        self._running: dict[str, tuple[subprocess.Popen[bytes], int, Path]] = {}
        atexit.register(self.close)

    def start(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        log: Path,
        *,
        cwd: Path | None = None,
        user: str | None = None,
        stop_signal: int = signal.SIGTERM,
    ) -> int:
        """Start a process and return its id, which is also its session's; `user` needs root."""
        assert name not in self._running, f"{name} runs already"
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                env={**env, _TOKEN: self._token},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        self._watchdog.send_command("session", str(process.pid), str(int(stop_signal)))
        self._running[name] = (process, stop_signal, log)
        return process.pid

    def remove_at_end(self, directory: Path) -> None:
        """Remove a directory when the processes end."""
        self._watchdog.send_command("directory", str(directory))

    def pid_of(self, name: str) -> int:
        """Return the id of the process that was started under this name."""
        if name not in self._running:
            raise KeyError(f"no process {name!r}; running: {', '.join(self._running) or 'none'}")
        return self._running[name][0].pid

    def names(self) -> list[str]:
        """Return the names of processes that were started and not ended by `end`."""
        return list(self._running)

    def pids(self, *names: str) -> set[int]:
        """Return all living processes in the sessions of these processes, or of all, and what they left behind."""
        return members((self.pid_of(name) for name in names or self._running), "" if names else self._token)

    def dead(self) -> dict[str, str]:
        """Return the processes that ended by themselves: name -> how, with the end of their log."""
        found = {}
        for name, (process, _, log) in self._running.items():
            if process.poll() is not None:
                found[name] = f"ended with {process.returncode}; {log} ends with:\n{tail(log)}"
        return found

    def end(self, name: str, number: int | None = None, grace: float = 10) -> None:
        """End one process and what it started: its signal, `grace` seconds, then SIGKILL for the session."""
        process, stop_signal, _ = self._running.pop(name)
        end({process.pid: stop_signal if number is None else number}, grace)
        process.wait(SURVIVE_S)
        self._watchdog.send_command("ended", str(process.pid))

    def close(self, grace: float = 2) -> None:
        """End everything at the same time, and the watchdog with it; a second call does nothing."""
        atexit.unregister(self.close)
        running, self._running = self._running, {}
        try:
            end({process.pid: number for process, number, _ in running.values()}, grace, self._token)
            for process, _, _ in running.values():
                process.wait(SURVIVE_S)
                self._watchdog.send_command("ended", str(process.pid))
        finally:
            self._watchdog.close()


def tail(path: Path, lines: int = 30) -> str:
    """Return the last lines of a text file, or why there are none."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error})"


def _watch() -> None:
    """Run the watchdog: read commands from standard input, and execute them at its end."""
    sessions: dict[int, int] = {}
    directories: list[str] = []
    token = ""
    for line in sys.stdin:
        order, argument, *rest = line.rstrip("\n").split(" ", 2)
        if order == "session":
            sessions[int(argument)] = int(rest[0])
        elif order == "ended":
            sessions.pop(int(argument), None)
        elif order == "token":
            token = argument
        elif order == "directory":
            directories.append(" ".join([argument, *rest]))
    end(sessions, grace=3, token=token)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _watch()
