"""A landing is killed, or gets a disk error, at the failpoints that matter most, without strace.

test_crash_sweep.py and test_disk_errors.py try every change of the root, as strace sees them.
"""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from catalogue import proves
from crash_lab import Lab, crash_lab, visible
from failpoint_runs import Runs, failpoint_runs

from weblake_service.server import LocalService

#: The end of a point's name, of which the last in a run that starts and lands one load is meant; and which points are
#: tried: that one (0), the next one (1), or both.
IMPORTANT = (
    ("os.link /_weblake/tmp/PART -> /_weblake/ledger/ID.start-1.json", (1,)),
    ("os.link /_weblake/tmp/PART -> /_weblake/ledger/ID.job.json", (0,)),
    ("write /_weblake/tmp/STAGING/documents.parquet", (0,)),
    (" /documents/load_date=DAY/ID-00000.parquet", (0, 1)),  # whatever gives the file its name, or its content in place
)
ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE)
#: The seed of points and errnos.
SEED = os.environ.get("WEBLAKE_DISK_SEED", "6")


@pytest.fixture(scope="module")
def module_lab(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("failpoints")
    with LocalService(folder / "service.db") as service:
        env = {"WEBLAKE_BASE_URL": service.url, "WEBLAKE_API_KEY": service.key, "NO_COLOR": "1"}
        with crash_lab(service, site, env, folder) as made:
            yield made


@pytest.fixture
def lab(module_lab: Lab, tmp_path: Path) -> Lab:
    """Return the lab of the module, with roots of this test."""
    return replace(module_lab, tmp=tmp_path)


@pytest.fixture
def runs(module_lab: Lab) -> Runs:
    return module_lab.runs


def important_points(points: list[str]) -> list[int]:
    """Return the numbers of the IMPORTANT points."""
    found = [(max(n for n, point in enumerate(points, 1) if point.endswith(name)), tried) for name, tried in IMPORTANT]
    return [at + n for at, tried in found for n in tried]


@proves(
    "P1",
    at="src/weblake/storage/local.py",
    line="            won = _link(local_file, final)",
    becomes="            won = not final.exists() and bool(final.write_bytes(local_file.read_bytes()))",
)
@proves(
    "P10",
    at="src/weblake/loads/starts.py",
    line="    operation = replace(plan.build(last.key), repeatable=True)",
    becomes="    operation = replace(plan.build(str(uuid.uuid4())), repeatable=True)",
)
def test_p1_p10_a_batch_killed_at_an_important_failpoint_lands_whole(lab: Lab, runs: Runs) -> None:
    """Kill a run before each of these points, check the root, and repeat it."""
    whole = runs(lab.root("whole"), lab.batch(lab.root("whole")))
    assert whole.code == 0, whole.err
    started, seen, jobs = lab.starts(), set[bool](), set[str]()
    chosen = important_points(whole.points)
    for at in chosen:
        root = lab.root(f"at {at}")
        interrupted_run = runs(root, lab.batch(root), at)
        assert interrupted_run.killed, f"point {at} was not reached: {interrupted_run.err}"
        assert interrupted_run.points == whole.points[:at], f"the run made other changes before point {at}"
        seen.add(lab.check_whole_or_absent(root, f"before {interrupted_run.points[-1]}"))
        jobs.add(runs.repeat(lab, root, lab.batch(root))["job_id"])
    assert seen == {True, False}, "the sweep did not reach both sides of the commit"
    assert lab.starts() - started == len(jobs) == len(chosen), "more than one job was started"


@proves(
    "P3",
    at="src/weblake/storage/rules.py",
    line="        raise refusal(error, doing, url, hidden) from error",
    becomes="        raise",
)
def test_p3_a_disk_error_at_an_important_failpoint_is_reported(lab: Lab, runs: Runs) -> None:
    """Cause a disk error at each of these points, check the root, and repeat the run."""
    whole = runs(lab.root("whole"), lab.batch(lab.root("whole"))).points
    choice = random.Random(SEED)
    started, chosen = lab.starts(), important_points(whole)
    for at in chosen:
        number, root = choice.choice(ERRNOS), lab.root(f"trouble at {at}")
        where = f"{errno.errorcode[number]} at {whole[at - 1]} (WEBLAKE_DISK_SEED={SEED})"
        interrupted_run = runs(root, lab.batch(root), at, number)
        assert interrupted_run.points[:at] == whole[:at], f"the run made other changes before {where}"
        if interrupted_run.code:
            assert interrupted_run.code == 1, f"{where}: exit {interrupted_run.code}: {interrupted_run.err}"
            assert len(interrupted_run.err.splitlines()) == 1, f"{where}: {interrupted_run.err}"
            assert interrupted_run.out, f"{where}: no error was reported as JSON: {interrupted_run.err}"
            failure = json.loads(interrupted_run.out)["error"]
            assert (failure["type"], bool(failure["hint"])) == ("StorageRefused", True), f"{where}: {failure}"
        assert lab.check_whole_or_absent(root, where) or interrupted_run.code, f"{where}: it reported a landed load"
        runs.repeat(lab, root, lab.batch(root))
    assert lab.starts() - started == len(chosen), "more than one job was started"


@proves("P6", at="src/weblake/dataset/layout.py", line="{checked_load_id(load_id)}-0", becomes="part-0")
def test_p6_two_processes_land_two_loads_at_the_same_time(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    root = lab.root("lake")
    with failpoint_runs(lab.env, tmp_path / "other") as others:
        mine = runs.begin(root, lab.batch(root))
        theirs = others.begin(root, [*lab.batch(root), "--key", "another"])
        ended = [runs.end(mine), others.end(theirs)]
    assert [ran.code for ran in ended] == [0, 0], [ran.err for ran in ended]
    names = {json.loads(ran.out)["files"][0]["path"] for ran in ended}
    assert len(names) == 2
    assert visible(root) == sorted(lab.stored * 2)
    assert {str(path.relative_to(root)) for path in root.glob("documents/**/*.parquet")} == names
