"""A landing is killed with SIGKILL at every change that it makes to its root, as strace sees them.

Promises 1 (whole or not at all) and 3 (paid once) rest on this sweep. Without strace, test_failpoints.py sweeps the
changes that Python sees; test_crash_pairs.py also kills the repeat.

A seeded part of the calls is tried under `system`, all of them under `nightly`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from catalogue import proves
from crash_lab import DOCUMENTS, LEDGER, Lab, visible
from syscall_sweep import Call, each_of, important_points, only, points, run, traced
from tiers import part, swept

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(1800),
    traced,
]


@proves(
    "P1",
    at="src/weblake/storage/local.py",
    line="            won = _link(local_file, final)",
    becomes="            won = not final.exists() and bool(final.write_bytes(local_file.read_bytes()))",
    case="part",
)
@swept(8)
def test_p1_a_landing_killed_before_any_change_is_whole_or_absent(lab: Lab, one_in: int) -> None:
    whole = lab.run(lab.land(lab.root("whole")), lab.root("whole"))
    assert whole.code == 0, whole.err
    assert {"mkdir", "openat", "write", "fsync", "link", "unlink", "rename"} <= {call.name for call in whole.changes}
    started = lab.starts()
    seen: list[bool] = []

    def trial(call: Call) -> None:
        root = lab.root(f"land {call} {whole.changes.index(call)}")
        seen.append(lab.killed(lab.land(root), root, call))
        assert lab.repeat(lab.land(root), root)["job_id"] == lab.job

    sweep = important_points(whole.changes)
    chosen = {*part(sweep, one_in), *(call for call in sweep if call.what.endswith(DOCUMENTS))}  # always the commit
    assert each_of([call for call in sweep if call in chosen], trial) == []
    assert lab.starts() == started
    assert {True, False} == set(seen), "the sweep did not reach both sides of the commit"


@proves(
    "P1",
    at="src/weblake/loads/starts.py",
    line="    operation = replace(plan.build(last.key), repeatable=True)",
    becomes="    operation = replace(plan.build(str(uuid.uuid4())), repeatable=True)",
    case="part",
)
@swept(8)
def test_p1_a_start_killed_before_any_change_is_paid_once(lab: Lab, one_in: int) -> None:
    whole = lab.run(lab.batch(lab.root("whole")), lab.root("whole"))
    assert whole.code == 0, whole.err
    begun = whole.changes.index(only(whole.changes, "mkdir", LEDGER))
    ended = whole.changes.index(only(whole.changes, "mkdir", "/tmp/STAGING"))
    # Before the start nothing is paid, and after it a batch lands like any other job: so only these calls, and the
    # commit. At the call after the record of a start, a job is paid and its id is unknown.
    told = whole.changes.index(only(whole.changes, "link", "ID.job.json"))
    chosen = {*part(points(whole.changes[begun:ended]), one_in), whole.changes[told]}
    interrupted_run = [
        *(call for call in whole.changes[begun:ended] if call in chosen),
        only(whole.changes, "link", DOCUMENTS),
    ]
    started, jobs = lab.starts(), list[str]()

    def trial(call: Call) -> None:
        root = lab.root(f"batch {call} {whole.changes.index(call)}")
        lab.killed(lab.batch(root), root, call)
        jobs.append(lab.repeat(lab.batch(root), root)["job_id"])

    assert each_of(interrupted_run, trial) == []
    assert len(set(jobs)) == len(interrupted_run)
    assert lab.starts() - started == len(interrupted_run), "more than one job was started"


@swept(12)
def test_p1_a_promotion_killed_before_any_change_is_whole_or_absent(lab: Lab, one_in: int) -> None:
    """A load that was refused because a page failed, and is then allowed."""
    refused = lab.root("refused")
    first = lab.run([*lab.land(refused), "--fail-ratio", "0"], refused)
    assert (first.code, visible(refused)) == (1, []), first.err
    kept = {path.name for path in (refused / "_weblake/refused").iterdir()}
    assert {name.split(".")[1] for name in kept} == {"documents", "page_errors"}

    def allowed(root: Path) -> list[str]:
        return [*lab.land(root), "--allow-partial"]

    def refused_in(root: Path) -> Path:
        shutil.copytree(refused, root)
        return root

    root = refused_in(lab.root("whole"))
    whole = lab.run(allowed(root), root)
    assert whole.code == 0, whole.err
    assert visible(root) == lab.stored

    def trial(call: Call) -> None:
        root = refused_in(lab.root(f"promoted {call} {whole.changes.index(call)}"))
        lab.killed(allowed(root), root, call)
        lab.repeat(allowed(root), root)

    assert each_of(part(important_points(whole.changes), one_in), trial) == []


#: A naive writer: in place, under the final name.
IN_PLACE = """
import sys, pathlib, pyarrow as pa, pyarrow.parquet as pq
folder = pathlib.Path(sys.argv[1]) / "documents"
folder.mkdir(parents=True, exist_ok=True)
pq.write_table(pa.table({"source_url": sys.argv[2:]}), folder / "load-00000.parquet")
"""
#: A naive writer that publishes atomically but keeps no record.
FORGETFUL = """
import os, sys, pathlib, uuid, pyarrow as pa, pyarrow.parquet as pq
root = pathlib.Path(sys.argv[1])
(root / "documents").mkdir(parents=True, exist_ok=True)
if not (root / "done").is_dir():
    pq.write_table(pa.table({"source_url": sys.argv[2:]}), root / "part")
    os.rename(root / "part", root / "documents" / f"{sys.argv[2][-1]}{len(list(root.glob('*/*')))}.parquet")
    (root / "done").mkdir()
"""


@pytest.mark.parametrize(("writer", "caught"), [(IN_PLACE, "a reader failed"), (FORGETFUL, "the repeat left")])
def test_the_sweep_detects_naive_writers(tmp_path: Path, writer: str, caught: str) -> None:
    urls = ["https://a.test/1", "https://a.test/2"]

    def command(root: Path) -> list[str]:
        return [sys.executable, "-c", writer, str(root), *urls]

    whole = run(command(tmp_path / "whole"), tmp_path / "whole", tmp_path / "whole.trace", {})
    assert whole.code == 0, whole.err
    assert visible(tmp_path / "whole") == urls

    def trial(call: Call) -> None:
        root = tmp_path / f"{call.name}-{whole.changes.index(call)}"
        interrupted_run = run(command(root), root, root.with_suffix(".trace"), {}, call.aim(root, "signal=KILL"))
        assert interrupted_run.code == -9
        assert visible(root) in ([], urls), "a partial load is visible"
        assert subprocess.run(command(root), capture_output=True).returncode == 0
        assert visible(root) == urls, f"the repeat left {visible(root)}"

    failures = each_of(important_points(whole.changes)[-6:], trial)  # early ones come before the file exists
    assert any(caught in failure for failure in failures), f"the sweep did not detect it: {failures}"
