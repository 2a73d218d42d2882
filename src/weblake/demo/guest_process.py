"""A guest for one step of the demo: an Airflow or a Dagster of its own, in a process that ends with the demo.

The core knows neither: it starts a program by its module's name. The API key stands in that program's environment and
nowhere else.
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

#: Seconds that a guest has to end by itself when it is not wanted any more.
_GRACE_S = 5.0
#: Lines that are shown of a run that failed.
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
    """Where a guest scrapes, and where it lands."""

    root: Path
    site: str
    service: str
    key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a guest's program ended: its exit code, what it wrote, and the last lines of its log without the key."""

    code: int
    out: bytes
    log: list[str]


def missing(needed: Sequence[str]) -> list[str]:
    """Those of the modules that are not installed."""
    return [name for name in needed if find_spec(name) is None]


def missing_packages_text(names: Sequence[str], package: str) -> str:
    """One line: what is not there, and how to get it."""
    return f"left out: {' and '.join(names)} not installed; pip install {package}"


def run(command: Sequence[str], environment: Mapping[str, str], *, key: str, timeout_s: float) -> Ended:
    """Run a guest's program to its end, in a scratch directory that is gone afterwards.

    Args:
        command: The program and its arguments.
        environment: All of it; TMPDIR and NO_COLOR are added.
        key: What the log must not show.
        timeout_s: Seconds that it may take.

    Raises:
        TimeoutError: It took longer, and was ended; the second argument has its last lines.
    """
    # The guest's own home lies in it, too, and is gone with it however the process ends.
    with tempfile.TemporaryDirectory(prefix="weblake-demo-guest-", ignore_cleanup_errors=True) as scratch:
        process = subprocess.Popen(  # noqa: S603  # our own module
            command,
            env={**environment, "TMPDIR": scratch, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=scratch,
            # Ctrl-C reaches this process alone, which then ends that one: it must not be told twice.
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
    """Ours without the settings of another guest that is set up here: names that begin so."""
    return {name: value for name, value in os.environ.items() if not name.startswith(others)}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it may have started; does nothing where it has ended."""
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
