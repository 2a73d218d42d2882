"""Runs the Airflow or the Dagster of a demo step in a process that ends with the demo.

The core imports neither: it starts a program by its module's name. The API key is only in that program's environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from weblake.errors import GiveUp

#: Seconds that the process has to end after it was asked to.
_GRACE_S = 5.0
#: Maximum log lines that are shown of a failed run.
_LAST_LINES = 20


class GuestFailed(GiveUp):
    """A guest's run did not succeed; `log` has the last lines of what it said."""

    def __init__(self, message: str, log: Sequence[str], package: str) -> None:
        super().__init__(
            message,
            hint="Its last lines stand above. What had landed before is whole, and the demo leaves this step out "
            f"where {package} is not installed.",
        )
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class Lake:
    """The site to scrape and the dataset to land in."""

    root: Path
    site: str
    service: str
    key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of the program: its exit code, its output, and the last lines of its log without the key."""

    code: int
    out: bytes
    log: list[str]


def missing(needed: Sequence[str]) -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in needed if find_spec(name) is None]


def missing_packages_text(names: Sequence[str], package: str) -> str:
    """Return one line that says what is missing and how to install it."""
    return f"left out: {' and '.join(names)} not installed; pip install {package}"


def run(command: Sequence[str], environment: Mapping[str, str], *, key: str, timeout_s: float) -> Ended:
    """Run a program to its end, in a scratch directory that is deleted afterwards.

    Args:
        command: The program and its arguments.
        environment: Its complete environment; TMPDIR and NO_COLOR are added.
        key: The secret to remove from the log.
        timeout_s: Timeout in seconds.

    Raises:
        TimeoutError: It took longer, and was ended; the second argument has its last lines.
    """
    # The program's home is inside it, too, and is deleted even if the process is killed.
    with tempfile.TemporaryDirectory(prefix="weblake-demo-guest-", ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(  # noqa: S603  # our own module
            command,
            env={**environment, "TMPDIR": scratch, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=scratch,
            # Ctrl-C must reach only this process, which then ends the program: the program must not get two signals.
            start_new_session=True,
        )
        try:
            out, said = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            raise TimeoutError(f"longer than {timeout_s:g} s", _lines(late.stderr, key)) from None
        finally:
            _end(process)
    return Ended(process.returncode, out, _lines(said, key))


def own_environment(*others: str) -> dict[str, str]:
    """Return this process's environment without the variables of another installation, which have these prefixes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children; do nothing if it has already ended."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_GRACE_S)
            return


def _lines(said: bytes | None, key: str) -> list[str]:
    text = (said or b"").decode(errors="replace").replace(key, "***")
    return [line[:500] for line in text.splitlines() if line.strip()][-_LAST_LINES:]
