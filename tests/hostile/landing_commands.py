"""Landing commands run against a scripted service, with assertions for their output and their dataset."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from command_in_process import run_command
from secret_search import contains_secret, in_files

#: Contains characters that percent-encoding changes.
KEY = "test-key/canary+0=1"

#: The counts whose sum is the number of submitted URLs.
COUNTS = ("stored", "failed", "robots_blocked", "rejected", "missing", "duplicates")

#: Seconds after its time limit at which a command has ended, whatever the service does: ten times what a process needs.
LATE_S = 60.0

#: Starts the command line in a child process with shorter waits for a lost start.
MAIN_WITH_SHORT_WAITS = """
import sys
from pathlib import Path
import weblake.http.transport, weblake.loads.load  # a time limit of a test is not for imports
from weblake import cli
from weblake.api import operation
from weblake.loads import starts
# As in conftest.py: a start may take 10 s; a lost one is searched for 0.1 s after it was sent.
operation.START_DEADLINE_S, starts.MARGIN_S, starts.BETWEEN_S = 10.0, -9.9 - starts.PROMPT_S, 0.05
peak = sys.argv.pop(1)
try:
    cli.main()
finally:
    status = Path("/proc/self/status").read_text()
    Path(peak).write_text(status.partition("VmHWM:")[2].split()[0])
"""


#: The peak memory in KB of each command that ran in a separate process.
PEAKS: list[int] = []


@dataclass
class Outcome:
    """The output and exit code of one command."""

    root: Path
    code: int
    out: str
    err: str
    seconds: float

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    def landed(self, documents: Sequence[dict[str, Any]], *, complete: bool = True, **counts: int) -> dict[str, Any]:
        """Assert that the dataset has exactly these documents, once each, and return the receipt."""
        assert self.code == 0, f"{self.out}\n{self.err}"
        receipt = self.json
        assert "error" not in receipt
        assert receipt["complete"] is complete
        assert receipt["submitted"] == sum(receipt[name] for name in COUNTS)
        expected = {"stored": len(documents)} | counts
        assert {name: receipt[name] for name in expected} == expected
        assert rows(self.root) == sorted((str(d["metadata"]["sourceURL"]), d["markdown"]) for d in documents)
        return receipt

    def expect_error(self, kind: str, *words: str) -> dict[str, Any]:
        """Assert that the command failed with this error type and nothing is visible; return the printed object."""
        assert self.code == 1, f"{self.out}\n{self.err}"
        assert published(self.root) == []
        return self.failed(kind, *words)

    def failed(self, kind: str, *words: str) -> dict[str, Any]:
        """Assert the form of a failure and return the printed object."""
        assert self.code == 1, f"{self.out}\n{self.err}"
        printed = self.json
        error = printed["error"]
        assert set(error) == {"type", "message", "hint"}
        assert error["type"] == kind, error
        for word in words:
            assert word in f"{error['message']} {error['hint']}", error
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("weblake: ")
        assert "Traceback" not in self.err
        return printed


@dataclass
class Lake:
    """One dataset root, and the commands that were run on it."""

    root: Path
    env: dict[str, str]
    outcomes: list[Outcome] = field(default_factory=list)

    def land(self, *args: str, kind: str = "batch", job: str, **how: Any) -> Outcome:
        return self.run("land", kind, job, *args, **how)

    def run(
        self,
        *args: str,
        timeout: float = 20.0,
        process: bool = False,
    ) -> Outcome:
        """Run one landing command with --to, --json and --timeout, in this process unless `process`."""
        argv = [*args, "--to", str(self.root), "--json", "--timeout", f"{timeout:g}"]
        begun = time.monotonic()
        code, out, err = (_process if process else run_command)(argv, self.env)
        outcome = Outcome(self.root, code, out, err, time.monotonic() - begun)
        self.outcomes.append(outcome)
        assert outcome.seconds < timeout + LATE_S, f"it took {outcome.seconds:.1f} s: {err}"
        return outcome


def _process(argv: list[str], env: dict[str, str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.NamedTemporaryFile() as peak:
        command = [sys.executable, "-W", "error::ResourceWarning", "-c", MAIN_WITH_SHORT_WAITS, peak.name, *argv]
        child = subprocess.Popen(command, env=os.environ | env, stdout=out, stderr=err, stdin=subprocess.DEVNULL)
        try:
            child.wait()
        except BaseException:
            child.kill()
            child.wait()
            raise
        # Reported by the child itself: the value of wait4 includes what this process held when it forked.
        PEAKS.append(int(Path(peak.name).read_text()))
        out.seek(0)
        err.seek(0)
        return child.returncode, out.read().decode(), err.read().decode()


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the connection of this process, because opening one takes longer than a query."""
    return duckdb.connect()


def published(root: Path, table: str = "documents") -> list[Path]:
    """Return every file that a glob over the table finds."""
    return sorted(path for path in (root / table).rglob("*") if path.is_file())


def rows(root: Path) -> list[tuple[str, str]]:
    """Return the source URL and markdown of each row, sorted, and assert that three readers agree on them."""
    files = published(root)
    by_arrow = ds.dataset(root / "documents", partitioning="hive").to_table(columns=["source_url", "markdown"])
    pattern = f"{root}/documents/**/*.parquet"
    by_duckdb = database().execute(f"select source_url, markdown from read_parquet('{pattern}')").fetchall()
    by_polars = pl.read_parquet(pattern).select("source_url", "markdown").rows()
    found = sorted(by_duckdb)
    assert found == sorted(by_polars) == sorted((r["source_url"], r["markdown"]) for r in by_arrow.to_pylist())
    assert len(files) == 1
    return found


def documents(root: Path) -> list[dict[str, Any]]:
    """Return the rows of the dataset in the order of `position`."""
    found = ds.dataset(root / "documents", partitioning="hive").to_table().to_pylist()
    return sorted(found, key=lambda row: row["position"])


def page_errors(root: Path) -> list[dict[str, Any]]:
    """Return the rows of page_errors."""
    files = published(root, "page_errors")
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def leaks(lake: Lake) -> list[str]:
    """Return where the key occurs in the files and output of the commands."""
    printed = [
        f"output {n}" for n, each in enumerate(lake.outcomes) if contains_secret((each.out + each.err).encode(), KEY)
    ]
    return printed + in_files([lake.root], KEY)
