"""Runs of weblake's command line that are killed or get a disk error at a numbered failpoint (failpoints.py)."""

from __future__ import annotations

import itertools
import json
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crash_lab import Lab

PROGRAM = Path(__file__).with_name("failpoints.py")


#: The end of a point's name, of which the last in a run that starts and lands one load is meant; and which points are
#: tried: that one (0), the next one (1), or both.
IMPORTANT = (
    ("os.link /_weblake/tmp/PART -> /_weblake/ledger/ID.start-1.json", (1,)),
    ("os.link /_weblake/tmp/PART -> /_weblake/ledger/ID.job.json", (0,)),
    ("write /_weblake/tmp/STAGING/documents.parquet", (0,)),
    (" /documents/load_date=DAY/ID-00000.parquet", (0, 1)),  # whatever gives the file its name, or its content in place
)


@dataclass(frozen=True)
class FailpointRun:
    """The result of a run; `code` is negative for the signal that ended it."""

    code: int
    out: str
    err: str
    #: The points that were reached; the last one is where the fault occurred, if it did.
    points: list[str]

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


@dataclass
class Runs:
    """A program that forks a run on request."""

    process: subprocess.Popen[str]
    tmp: Path
    count: Iterator[int] = field(default_factory=itertools.count)

    def begin(
        self, root: Path | None, args: Sequence[str], at: int = 0, number: int = 0, sent: int = signal.SIGKILL
    ) -> Path:
        """Start a run with a fault at its point `at` (none: 0), a signal or an errno; return its log file.

        Without a root, the run is the command and nothing else: no points.
        """
        log = self.tmp / f"points-{next(self.count)}"
        log.touch()
        order = {
            "root": str(root or ""),
            "args": list(args),
            "at": at,
            "errno": number,
            "signal": sent,
            "log": str(log),
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return log

    def ended(self) -> bool:
        """Return whether the run that was started last has ended."""
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def end(self, log: Path) -> FailpointRun:
        """Wait for the run that was started last."""
        assert self.process.stdout is not None
        code = json.loads(self.process.stdout.readline())["code"]
        out, err = (Path(f"{log}.{name}").read_text() for name in ("out", "err"))
        points = [plain(line) for line in log.read_text().splitlines()]
        for path in (log, Path(f"{log}.out"), Path(f"{log}.err")):
            path.unlink()
        return FailpointRun(code, out, err, points)

    def __call__(
        self, root: Path | None, args: Sequence[str], at: int = 0, number: int = 0, sent: int = signal.SIGKILL
    ) -> FailpointRun:
        return self.end(self.begin(root, args, at, number, sent))

    def repeat(self, lab: Lab, root: Path, args: Sequence[str]) -> dict[str, Any]:
        """Repeat an interrupted run without faults, and assert that it succeeds."""
        ran = self(root, args)
        assert ran.code == 0, f"the repeat failed: {ran.err}"
        return lab.check_complete(root, json.loads(ran.out))


def plain(point: str) -> str:
    """Return a point without the parts that differ between runs."""
    text = re.sub(r"\d+-[0-9a-f]{16}(\.part)?", lambda m: "PART" if m[1] else "STAGING", point)
    return re.sub(r"[0-9a-f]{16}", "ID", re.sub(r"=\d{4}-\d\d-\d\d", "=DAY", text))


def every(points: list[str]) -> list[int]:
    """Return the numbers of all points; of the writes to one file only the first and the last."""
    inner = zip(points, points[1:], points[2:], strict=False)
    skipped = {n for n, (a, b, c) in enumerate(inner, 2) if b.startswith("write") and a == b == c}
    return [n for n in range(1, len(points) + 1) if n not in skipped]


def important_points(points: list[str]) -> list[int]:
    """Return the numbers of the IMPORTANT points."""
    found = [(max(n for n, point in enumerate(points, 1) if point.endswith(name)), tried) for name, tried in IMPORTANT]
    return [at + n for at, tried in found for n in tried]


@contextmanager
def failpoint_runs(env: Mapping[str, str], tmp: Path) -> Iterator[Runs]:
    """Yield a running program."""
    tmp.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM)], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Runs(process, tmp)
    finally:
        process.kill()
        process.wait(10)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
