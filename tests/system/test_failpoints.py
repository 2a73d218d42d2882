"""A landing is killed, or gets a disk error, before a change of its root: nothing or a whole load, paid once.

At the points that matter most and at a seeded part of all points and of their pairs under `system`, at all points under
`nightly`.
"""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from catalogue import proves
from crash_lab import Lab, crash_lab, visible
from failpoint_runs import Runs, every, failpoint_runs, important_points
from tiers import part, swept

from weblake_service.server import LocalService

pytestmark = pytest.mark.system

ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE)
#: The seed of points and errnos.
SEED = os.environ.get("WEBLAKE_DISK_SEED", "6")
#: How many pairs of points are tried under `nightly`.
PAIRS = 30
COMMANDS: dict[str, Callable[[Lab, Path], list[str]]] = {
    "batch": Lab.batch,
    "land": Lab.land,
    "promotion": lambda lab, root: [*lab.land(root), "--allow-partial"],
}


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


@proves(
    "P1",
    at="src/weblake/storage/local.py",
    line="            won = _link(local_file, final)",
    becomes="            won = not final.exists() and bool(final.write_bytes(local_file.read_bytes()))",
)
@proves(
    "P10",
    at="src/weblake/loads/starts.py",
    line="    operation = replace(operation, repeatable=True)",
    becomes="    operation = replace(self._build(str(uuid.uuid4())), repeatable=True)",
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


def new_root(lab: Lab, runs: Runs, command: str, name: str) -> Path:
    """Return a root for a command; a promotion needs a load that was refused because a page failed."""
    root = lab.root(name)
    if command == "promotion":
        refused = runs(root, [*lab.land(root), "--fail-ratio", "0"])
        assert (refused.code, visible(root)) == (1, []), refused.err
    return root


@pytest.mark.timeout(1800)
@swept(8)
@pytest.mark.parametrize("command", COMMANDS)
def test_p1_a_run_killed_before_any_change_is_whole_or_absent(lab: Lab, runs: Runs, command: str, one_in: int) -> None:
    args, root = COMMANDS[command], new_root(lab, runs, command, "whole")
    whole = runs(root, args(lab, root))
    assert whole.code == 0, whole.err
    chosen, started, seen = part(every(whole.points), one_in), lab.starts(), set[bool]()
    for at in chosen:
        root = new_root(lab, runs, command, f"at {at}")
        interrupted_run = runs(root, args(lab, root), at)
        assert interrupted_run.killed, f"point {at} was not reached: {interrupted_run.err}"
        seen.add(lab.check_whole_or_absent(root, f"before {interrupted_run.points[-1]}"))
        receipt = runs.repeat(lab, root, args(lab, root))
        assert command == "batch" or receipt["job_id"] == lab.job
    assert seen == {True, False}, "the sweep did not reach both sides of the commit"
    assert lab.starts() - started == (len(chosen) if command == "batch" else 0), "more than one job was started"


@pytest.mark.timeout(1800)
@swept(5)
def test_p1_a_batch_killed_again_during_recovery_lands_whole(lab: Lab, runs: Runs, one_in: int) -> None:
    choice, whole = random.Random(SEED), runs(lab.root("whole"), lab.batch(lab.root("whole"))).points
    for first in choice.sample(every(whole), PAIRS // one_in):
        started, roots = lab.starts(), [lab.root(f"pair {first} {n}") for n in range(2)]
        for root in roots:
            assert runs(root, lab.batch(root), first).killed
        seconds = every(runs(roots[0], lab.batch(roots[0])).points)
        if not seconds:  # after the last point there is nothing left to do
            continue
        second, root = choice.choice(seconds), roots[1]
        pair = f"{(first, second)} (WEBLAKE_DISK_SEED={SEED})"
        seen = lab.check_whole_or_absent(root, f"after the first of {pair}")
        assert runs(root, lab.batch(root), second).killed, f"{pair}: the second point was not reached"
        assert lab.check_whole_or_absent(root, f"after {pair}") >= seen, f"{pair}: a published load is gone"
        runs.repeat(lab, root, lab.batch(root))
        assert lab.starts() - started == len(roots), f"{pair}: more than one job was started"


@proves(
    "P3",
    at="src/weblake/storage/rules.py",
    line="        raise refusal(error, doing, url, hidden) from error",
    becomes="        raise",
    case="part",
)
@swept(24)
def test_p3_a_disk_error_before_any_change_is_reported(lab: Lab, runs: Runs, one_in: int) -> None:
    """Cause a disk error at each of these points, check the root, and repeat the run."""
    whole = runs(lab.root("whole"), lab.batch(lab.root("whole"))).points
    choice = random.Random(SEED)
    started, chosen = lab.starts(), part(every(whole), one_in)
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
