"""Ctrl-C at random moments of each command, on a busy machine.

uv run python tests/system/interrupt_sweep.py 200     200 moments of each command, and how they ended
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

WEBLAKE = [sys.executable, "-m", "weblake"]

#: A process that prints "started" at the first line of the command (before that, Python itself is interrupted), and
#: "closing" when the command has ended without an interrupt (after that, the interpreter shuts down).
STARTED = [
    sys.executable,
    "-c",
    """
import contextlib, sys
from weblake import cli
from weblake.cli import interrupts

@contextlib.contextmanager
def reporting(end_on_ctrl_c=interrupts.end_on_ctrl_c):
    print("started", file=sys.stderr, flush=True)
    try:
        with end_on_ctrl_c():
            yield
    finally:
        if not interrupts._received:
            print("closing", file=sys.stderr, flush=True)

interrupts.end_on_ctrl_c = reporting
cli.main()
""",
]

#: The longest time in seconds from an interrupt to the end of its process, on a busy machine.
IN_TIME_S = 20.0


class Ended(NamedTuple):
    """The result of an interrupted command."""

    code: int
    took_s: float
    err: str

    @property
    def as_expected(self) -> bool:
        """Return whether the result is what a user expects."""
        whole = self.code == 0 and self.err.endswith("closing\n")
        return (self.code == 130 or whole) and self.took_s < IN_TIME_S and "Traceback" not in self.err


def interrupted(command: list[str], folder: Path, whole_s: float) -> Ended | None:
    """Interrupt a command at a random moment; return None if it had ended by then."""
    log = folder / "stderr"
    with log.open("wb") as err:
        process = subprocess.Popen(
            [*STARTED, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
            env={**os.environ, "TMPDIR": str(folder), "NO_COLOR": "1"},
        )
    try:
        while b"started" not in log.read_bytes() and process.poll() is None:
            time.sleep(0.01)
        try:
            process.wait(random.uniform(0, whole_s))
        except subprocess.TimeoutExpired:
            pressed = time.monotonic()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(2 * IN_TIME_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return Ended(process.wait(10), time.monotonic() - pressed, log.read_text("utf-8", "replace"))
        return None
    finally:
        process.kill()
        process.wait(10)


@contextmanager
def busy(processes: int = 2) -> Iterator[None]:
    """Keep the machine busy."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in spinning:
            each.kill()
            each.wait(10)


def sweep(command: Callable[[Path], list[str]], moments: int) -> tuple[Counter[str], list[Ended]]:
    """Interrupt a command at random moments; return the count of each result, and the unexpected ones."""
    counts: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        whole_s = _whole_s(command(Path(folder)))
    for _ in range(moments):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            ended = interrupted(command(Path(folder)), Path(folder), whole_s)
        if ended is None:
            counts["had ended"] += 1
        else:
            counts[f"exit {ended.code}"] += 1
            wrong += [] if ended.as_expected else [ended]
    return counts, wrong


def _whole_s(command: list[str]) -> float:
    """Return how long a command takes; for the service, its start and some seconds more."""
    if command[0] == "serve":
        return 6.0
    begun = time.monotonic()
    subprocess.run([*WEBLAKE, *command], capture_output=True, check=False, timeout=300, stdin=subprocess.DEVNULL)
    return time.monotonic() - begun


def commands(urls: list[str], job_id: str) -> dict[str, Callable[[Path], list[str]]]:
    """Return the commands, each with its own root."""
    return {
        "demo": lambda folder: ["demo", "--to", str(folder / "lake")],
        "batch": lambda folder: ["batch", *urls, "--new", "--to", str(folder / "lake")],
        "crawl": lambda folder: ["crawl", urls[0], "--limit", "20", "--new", "--to", str(folder / "lake")],
        "land": lambda folder: ["land", "batch", job_id, "--to", str(folder / "lake")],
        "serve": lambda folder: ["serve", "--port", "0", "--data", str(folder / "data")],
    }


@contextmanager
def service_and_site() -> Iterator[dict[str, Callable[[Path], list[str]]]]:
    """Yield a service, a site and a completed job; the environment variables name the service."""
    from conftest import CANARY, start_site

    from weblake_service.server import LocalService

    with (
        tempfile.TemporaryDirectory() as folder,
        start_site() as site,
        LocalService(Path(folder) / "service.db", keys=CANARY, allow_private=True) as service,
    ):
        os.environ.update(WEBLAKE_BASE_URL=service.url, WEBLAKE_API_KEY=CANARY)
        urls = [f"{site}/{n}" for n in range(25)]
        started = subprocess.run(
            [*WEBLAKE, "batch", *urls, "--detach", "--to", str(Path(folder) / "lake")],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        yield commands(urls, started.stdout.split()[-1])


def main() -> None:
    """Print a line for each command."""
    moments = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    failed = False
    with service_and_site() as found, busy():
        for name, command in found.items():
            counts, wrong = sweep(command, moments)
            failed = failed or bool(wrong)
            print(f"{name}: {', '.join(f'{number} {how}' for how, number in sorted(counts.items()))}", flush=True)
            for each in wrong:
                print(f"  exit {each.code} after {each.took_s:.1f} s\n{each.err[-2000:]}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
