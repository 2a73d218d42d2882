"""What the crash sweep lands, what readers see of it, and what may lie in a root afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
from syscall_sweep import Call, Struck, run

import weblake
from weblake.dataset.root import open_dataset
from weblake.loads.publishing import history

WEBLAKE = (sys.executable, "-m", "weblake")
STEADY = str(Path(__file__).with_name("fixed_staging_names.py"))
DOCUMENTS = "/documents/load_date=DAY/ID-00000.parquet"
ERRORS = "/page_errors/load_date=DAY/ID-00000.parquet"
DAY_DIR = "/documents/load_date=DAY"
LEDGER = "/_weblake/ledger"
#: All that a root may hold after a load, but for what dead runs left in `_weblake/tmp`.
EXPECTED = {
    *(DOCUMENTS, ERRORS, "/_weblake/layout.json", "/_weblake/slots/index.json"),
    *(f"{LEDGER}/ID{step}.json" for step in ("", ".start-1", ".owner", ".job", ".lander", ".done")),
}


def visible(root: Path) -> list[str]:
    """The source URLs that readers of a glob see; all of them must see the same."""
    glob = f"{root}/documents/**/*.parquet"
    files = sorted(str(path) for path in root.glob("documents/**/*.parquet"))
    try:
        table = ds.dataset(root / "documents", partitioning="hive") if (root / "documents").is_dir() else None
        seen = [table.to_table().column("source_url").to_pylist() if table and table.count_rows() else []]
        if files:
            with duckdb.connect() as db:
                found = db.execute(f"select source_url from read_parquet('{glob}')").fetchall()
            seen += [
                [url for (url,) in found],
                pl.read_parquet(glob)["source_url"].to_list(),
                pd.read_parquet(root / "documents")["source_url"].tolist(),
            ]
    except Exception as error:  # each reader has its own errors, and each of them is a broken promise
        raise AssertionError(f"a reader failed: {error!r}") from error
    first = sorted(seen[0])
    assert all(sorted(each) == first for each in seen), f"readers differ: {seen}"
    return first


@dataclass
class Lab:
    """A service, a job of three pages and one that fails, and roots to land it in."""

    service: Any
    env: Mapping[str, str] = field(repr=False)
    tmp: Path
    urls: list[str]
    job: str

    @property
    def stored(self) -> list[str]:
        return sorted(self.urls[:-1])

    def land(self, root: Path) -> list[str]:
        return ["land", "batch", self.job, "--to", str(root), "--json"]

    def batch(self, root: Path) -> list[str]:
        return ["batch", *self.urls, "--to", str(root), "--json"]

    def run(self, command: list[str], root: Path, strike: Sequence[str] = (), nth: int = 1, **more: Any) -> Struck:
        """Runs a command under strace, as the nth on this root."""
        steady = [sys.executable, STEADY, str(nth), *command]
        return run(steady, root, root.with_suffix(f".trace-{nth}"), self.env, strike, **more)

    def killed(self, command: list[str], root: Path, call: Call, nth: int = 1) -> bool:
        """Kills it right before a call; returns whether the load was there by then."""
        struck = self.run(command, root, call.aim(root, "signal=KILL"), nth)
        assert struck.code == -signal.SIGKILL, f"it was not killed: {struck.code} {struck.err}"
        assert struck.meant(call), f"something else was struck: {struck.changes}"
        return self.unharmed(root)

    def starts(self) -> int:
        return int(self.service.counts().get("batch_scrape_started", 0))

    def root(self, name: str) -> Path:
        return self.tmp / re.sub(r"\W+", "-", name).strip("-")

    def unharmed(self, root: Path, why: str = "") -> bool:
        """Asserts that a struck load is there whole or not at all; returns which."""
        seen = visible(root)
        assert seen in ([], self.stored), f"a part is visible: {seen} {why}"
        return bool(seen)

    def again(self, command: list[str], root: Path) -> dict[str, Any]:
        """Runs a command plainly after a struck one and asserts that all is well."""
        ended = subprocess.run([*WEBLAKE, *command], env=self.env, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, f"the rerun failed: {ended.stderr}"
        return self.whole(root, json.loads(ended.stdout))

    def whole(self, root: Path, receipt: dict[str, Any]) -> dict[str, Any]:
        """Asserts that a root holds this one load and nothing else."""
        assert (receipt["stored"], receipt["failed"], receipt["complete"]) == (3, 1, True)
        assert [(file["rows"], file["path"].split("/")[0]) for file in receipt["files"]] == [
            (3, "documents"),
            (1, "page_errors"),
        ]
        assert visible(root) == self.stored, f"the rerun left {visible(root)}"
        failed = weblake.read(str(root), "page_errors").to_table().to_pylist()
        assert [(row["url"], row["outcome"], row["job_id"]) for row in failed] == [
            (self.urls[-1], "failed", receipt["job_id"])
        ]
        loads = history(open_dataset(str(root)))
        assert [(load.receipt.load_id, load.receipt.stored) for load in loads] == [(receipt["load_id"], 3)]
        left = litter(root)
        assert left == set(), f"left below the root: {left}"
        return receipt


@contextmanager
def crash_lab(service: Any, site: str, env: Mapping[str, str], tmp: Path) -> Iterator[Lab]:
    """A lab whose job has ended."""
    with socket.socket() as closed:  # bound, and nobody listens: a page that surely fails
        closed.bind(("127.0.0.1", 0))
        urls = [f"{site}/{n}" for n in range(3)] + [f"http://127.0.0.1:{closed.getsockname()[1]}/"]
        lab = Lab(service, {**os.environ, **env}, tmp, urls, "")
        lab.job = lab.again(lab.batch(tmp / "first"), tmp / "first")["job_id"]
        yield lab


def litter(root: Path) -> set[str]:
    """What lies below a root that should not."""
    found = {path for path in root.rglob("*") if not path.is_relative_to(root / "_weblake/tmp")}
    plain = {
        re.sub(r"[0-9a-f]{16}", "ID", re.sub(r"=[-\d]{10}", "=DAY", str(path)[len(str(root)) :])): path
        for path in found
    }
    folders = {"/_weblake/refused", "/_weblake/submitted"} | {
        str(parent) for name in EXPECTED for parent in Path(name).parents
    }
    return {name for name, path in plain.items() if name not in (folders if path.is_dir() else EXPECTED)}
