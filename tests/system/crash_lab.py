"""The loads of the crash sweep, what readers see of them, and what a root may contain afterwards."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
from failpoint_runs import Runs, failpoint_runs

import weblake
from weblake.dataset.history import history
from weblake.dataset.root import open_dataset

WEBLAKE = (sys.executable, "-m", "weblake")
DOCUMENTS = "/documents/load_date=DAY/ID-00000.parquet"
ERRORS = "/page_errors/load_date=DAY/ID-00000.parquet"
DAY_DIR = "/documents/load_date=DAY"
LEDGER = "/_weblake/ledger"
#: All that a root may contain after a load, except files of dead runs in `_weblake/tmp`.
EXPECTED = {
    *(DOCUMENTS, ERRORS, "/_weblake/layout.json"),
    *(f"{LEDGER}/ID{step}.json" for step in ("", ".start-1", ".owner", ".job", ".lander", ".done")),
}


def visible(root: Path) -> list[str]:
    """Return the source URLs that readers of a glob see, and assert that all readers see the same."""
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
    except Exception as error:  # every reader has its own exception types, and each of them is a broken promise
        raise AssertionError(f"a reader failed: {error!r}") from error
    first = sorted(seen[0])
    assert all(sorted(each) == first for each in seen), f"readers differ: {seen}"
    return first


@dataclass
class Lab:
    """A service, a job of three stored pages and one failed page, and roots to land it in."""

    service: Any
    env: Mapping[str, str] = field(repr=False)
    tmp: Path
    urls: list[str]
    job: str
    #: Runs the commands: a fork takes a quarter of the CPU time of a new process.
    runs: Runs

    @property
    def stored(self) -> list[str]:
        return sorted(self.urls[:-1])

    def land(self, root: Path) -> list[str]:
        return ["land", "batch", self.job, "--to", str(root), "--json"]

    def batch(self, root: Path) -> list[str]:
        return ["batch", *self.urls, "--to", str(root), "--json"]

    def starts(self) -> int:
        return int(self.service.counts().get("batch_scrape_started", 0))

    def root(self, name: str) -> Path:
        return self.tmp / re.sub(r"\W+", "-", name).strip("-")

    def check_whole_or_absent(self, root: Path, why: str = "") -> bool:
        """Assert that an interrupted load is entirely visible or not at all, and return which."""
        seen = visible(root)
        assert seen in ([], self.stored), f"a partial load is visible: {seen} {why}"
        return bool(seen)

    def repeat(self, command: list[str], root: Path) -> dict[str, Any]:
        """Repeat an interrupted command without faults, and assert that it succeeds."""
        ended = self.runs(None, command)
        assert ended.code == 0, f"the repeat failed: {ended.err}"
        return self.check_complete(root, json.loads(ended.out))

    def check_complete(self, root: Path, receipt: dict[str, Any]) -> dict[str, Any]:
        """Assert that a root contains this load and nothing else."""
        assert (receipt["stored"], receipt["failed"], receipt["complete"]) == (3, 1, True)
        assert [(file["rows"], file["path"].split("/")[0]) for file in receipt["files"]] == [
            (3, "documents"),
            (1, "page_errors"),
        ]
        assert visible(root) == self.stored, f"the repeat left {visible(root)}"
        failed = weblake.read(str(root), "page_errors").to_table().to_pylist()
        assert [(row["url"], row["outcome"], row["job_id"]) for row in failed] == [
            (self.urls[-1], "failed", receipt["job_id"])
        ]
        loads = history(open_dataset(str(root)))
        assert [(load.receipt.load_id, load.receipt.stored) for load in loads] == [(receipt["load_id"], 3)]
        left = unexpected_files(root)
        assert left == set(), f"unexpected files in the root: {left}"
        return receipt


@contextmanager
def crash_lab(service: Any, site: str, env: Mapping[str, str], tmp: Path) -> Iterator[Lab]:
    """Yield a lab with a completed job."""
    with socket.socket() as closed:  # bound and not listening: this page fails
        closed.bind(("127.0.0.1", 0))
        urls = [f"{site}/{n}" for n in range(3)] + [f"http://127.0.0.1:{closed.getsockname()[1]}/"]
        with failpoint_runs({**os.environ, **env}, tmp / "repeats") as runs:
            lab = Lab(service, {**os.environ, **env}, tmp, urls, "", runs)
            lab.job = lab.repeat(lab.batch(tmp / "first"), tmp / "first")["job_id"]
            yield lab


def unexpected_files(root: Path) -> set[str]:
    """Return the files below a root that should not be there."""
    found = {path for path in root.rglob("*") if not path.is_relative_to(root / "_weblake/tmp")}
    plain = {
        re.sub(r"[0-9a-f]{16}", "ID", re.sub(r"=[-\d]{10}", "=DAY", str(path)[len(str(root)) :])): path
        for path in found
    }
    folders = {"/_weblake/refused", "/_weblake/submitted"} | {
        str(parent) for name in EXPECTED for parent in Path(name).parents
    }
    return {name for name, path in plain.items() if name not in (folders if path.is_dir() else EXPECTED)}
