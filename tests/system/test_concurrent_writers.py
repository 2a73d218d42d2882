"""Two processes run one command on one root at the same time, and one of them is killed; readers read meanwhile.

A seeded part of the points is tried under `system`, all of them under `nightly`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow.dataset as ds
import pytest
from catalogue import proves
from crash_lab import Lab
from failpoint_runs import Runs, every, failpoint_runs
from tiers import part, swept

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

LOADS = 3


@pytest.fixture
def two(lab: Lab) -> Iterator[tuple[Runs, Runs]]:
    with failpoint_runs(lab.env, lab.tmp / "a") as one, failpoint_runs(lab.env, lab.tmp / "b") as other:
        yield one, other


@proves(
    "P5",
    at="src/weblake/storage/local.py",
    line="        os.link(source, final)",
    becomes="        os.replace(source, final)",
    case="part",
)
@swept(4)
def test_p5_one_of_two_writers_of_one_load_is_killed(lab: Lab, two: tuple[Runs, Runs], one_in: int) -> None:
    one, other = two
    root = lab.root("whole")
    whole = one(root, lab.batch(root)).points
    chosen = part(every(whole), one_in)
    started = lab.starts()
    for at in chosen:
        root = lab.root(f"both {at}")
        interrupted_run, undisturbed = one.begin(root, lab.batch(root), at), other.begin(root, lab.batch(root))
        ended = other.end(undisturbed)
        first = one.end(interrupted_run)  # killed; or it had less to do than alone, and never reached this point
        assert first.killed or first.code == 0, first.err
        assert ended.code == 0, f"the other process failed, with this one killed at {whole[at - 1]}: {ended.err}"
        assert lab.check_whole_or_absent(root)
        assert one.repeat(lab, root, lab.batch(root)) == json.loads(ended.out)
    assert lab.starts() - started == len(chosen), "more than one job was started"


def by_load(root: Path) -> dict[str, Callable[[], Counter[str]]]:
    """Return what each reader sees of each load."""
    glob = f"{root}/documents/**/*.parquet"
    query = f"select load_id from read_parquet('{glob}')"
    return {
        "pyarrow": lambda: Counter(
            ds.dataset(root / "documents", partitioning="hive").to_table(["load_id"])["load_id"].to_pylist()
        ),
        "duckdb": lambda: Counter(load_id for (load_id,) in duckdb.connect().execute(query).fetchall()),
        "polars": lambda: Counter(pl.read_parquet(glob)["load_id"].to_list()),
        "pandas": lambda: Counter(pd.read_parquet(root / "documents")["load_id"].tolist()),
    }


@proves("P7", at="src/weblake/storage/rules.py", line='TMP = "_weblake/tmp"', becomes='TMP = "documents/tmp"')
def test_p7_readers_see_each_load_entirely_or_not_at_all(lab: Lab, two: tuple[Runs, Runs]) -> None:
    root = lab.root("lake")
    writer, _ = two
    assert writer(root, lab.batch(root)).code == 0
    seen: set[int] = set()
    for n in range(LOADS):
        log = writer.begin(root, [*lab.batch(root), "--key", str(n)])
        looked = 0
        while looked < 3 or not writer.ended():
            for name, read in by_load(root).items():
                counts = read()
                assert set(counts.values()) == {len(lab.stored)}, f"{name} sees a partial load: {counts}"
                seen.add(len(counts))
            looked += 1
        assert writer.end(log).code == 0
    assert len(seen) > 1, "no read happened during a landing"
