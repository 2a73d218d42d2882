"""Supervisor process of a user's code: `python -I -S supervisor.py`. It runs one command and ends all its processes.

The first line of standard input is the command as JSON. When that pipe closes, because the service has ended the
execution or was killed, even by SIGKILL, the supervisor ends everything that the code started. On Linux this includes
processes that left its group and session: orphans become children of the supervisor.

The supervisor sets resource limits on itself, and its children inherit them. Setting them in the service between fork
and exec would be unsafe because of the service's other threads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Environment variable that marks all processes of an execution.
MARK = "CODE_RUN"
#: Linux: orphaned descendants become children of this process.
_PR_SET_CHILD_SUBREAPER = 36
#: Linux: the flag of the kernel's own threads, which have no environment.
_PF_KTHREAD = 0x00200000
#: Seconds in which a process that executes a new program must show its environment.
_EXEC_S = 0.2
#: Seconds that background processes get to finish after the code itself has ended.
_GRACE_S = 0.5
#: Seconds in which killed processes must have ended.
_KILL_TIMEOUT_S = 2.0


def main() -> None:
    """Run the command from standard input, and write its exit status to the file that the command names."""
    task = json.loads(_read_first_line())
    _become_subreaper()
    _limit(task["limits"])
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(wake, False)
    # Not SIG_IGN, which reaps children automatically; the handler does nothing, because the wakeup byte ends the
    # select.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    child = _start(task["command"], task["folder"])
    # The output pipes must close with the last process of the code, so this process must not hold them.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    status = _wait(child, woken, None)
    if status is not None:
        _wait(-1, woken, time.monotonic() + _GRACE_S)
    if Path("/proc/self/stat").exists():
        kill_all(lambda: descendants(os.getpid()))
    else:
        # Without Linux's subreaper, only the process group of the code can be found.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    ended = Path(task["ended"])
    with suppress(OSError):
        ended.write_text("" if status is None else str(os.waitstatus_to_exitcode(status)))


def _read_first_line() -> bytes:
    """Return the first line of standard input without reading beyond it."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 65536)
        if not more:
            sys.exit(0)
        line += more
    return line


def _start(command: list[str], folder: str) -> int:
    child = os.fork()
    if child:
        return child
    try:
        # A separate process group: a signal that the code sends to its own group does not reach this process.
        os.setpgid(0, 0)
        # Python ignores these signals, and children would inherit that: `yes | head` would not end.
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.execvp(command[0], command)  # noqa: S606 - it is made by the service, and needs no shell
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _wait(child: int, woken: int, until: float | None) -> int | None:
    """Return the status of a child; None if the control pipe was closed, after the timeout, or without such a child.

    :param child: -1 for all children; then it waits until there is none.
    """
    while True:
        try:
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped[0] == child:
                    return reaped[1]
        except ChildProcessError:
            return None
        left = None if until is None else max(until - time.monotonic(), 0)
        ready = select.select([0, woken], [], [], left)[0]
        if woken in ready:
            os.read(woken, 4096)
        if not ready or (0 in ready and not os.read(0, 4096)):
            return None


def kill_all(find: Callable[[], set[int]]) -> bool:
    """Kill all processes that `find` returns until it returns none; return False if some did not end."""
    deadline = time.monotonic() + _KILL_TIMEOUT_S
    while found := find():
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def descendants(pid: int) -> set[int]:
    """Return the descendants of a process, including unreaped zombies: one of their threads may still run."""
    below: dict[int, list[int]] = {}
    for process in _processes():
        with suppress(OSError):
            # The process name in parentheses may itself contain spaces and parentheses.
            parent = int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
            below.setdefault(parent, []).append(int(process.name))
    found, new = set[int](), [pid]
    while new:
        new = [child for parent in new for child in below.get(parent, ()) if child not in found]
        found.update(new)
    return found


def marked_processes(mark: str) -> set[int]:
    """Return the living processes that have the mark in their environment; empty if there is no /proc."""
    entry, found = f"{MARK}={mark}".encode(), set()
    for process in _processes():
        with suppress(OSError):
            if entry in _environment(process).split(b"\0"):
                found.add(int(process.name))
    return found


def _environment(process: Path) -> bytes:
    """Return the environment of a process; empty if it has none.

    It is also empty for a moment while the process executes a new program, so an empty one is read again.
    """
    deadline = time.monotonic() + _EXEC_S
    while not (environment := (process / "environ").read_bytes()):
        state, *numbers = (process / "stat").read_bytes().rpartition(b")")[2].split()
        if state == b"Z" or int(numbers[5]) & _PF_KTHREAD or time.monotonic() > deadline:
            break
        time.sleep(0.001)
    return environment


def _processes() -> list[Path]:
    with suppress(OSError):
        return [process for process in Path("/proc").iterdir() if process.name.isdigit()]
    return []


def _become_subreaper() -> None:
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _limit(limits: dict[str, Any]) -> None:
    """Lower the limits of this process, by names of the module `resource`; no limit is raised."""
    import resource

    for name, wanted in limits.items():
        number = getattr(resource, name, None)
        if number is None:
            continue
        most = resource.getrlimit(number)[1]
        least = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        with suppress(OSError, ValueError):
            resource.setrlimit(number, (least, least))


if __name__ == "__main__":
    main()
