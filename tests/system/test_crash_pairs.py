"""A batch is killed, and killed again during recovery.

A few seeded pairs under `system`, more of them under `nightly`. All pairs: `uv run python tests/system/crash_pairs.py`.
"""

from __future__ import annotations

import os
import random

import pytest
from catalogue import proves
from crash_lab import DAY_DIR, Lab
from crash_pairs import Pairs
from failpoint_runs import failpoint_runs
from syscall_sweep import Call, each_of, important_points, only, points, traced
from tiers import part, swept

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

#: The number of pairs by failpoints and by system calls under `nightly`, and the seed of their selection.
PAIRS, TRACED_PAIRS = (int(n) for n in os.environ.get("WEBLAKE_PAIRS", "30 8").split())
SEED = os.environ.get("WEBLAKE_PAIRS_SEED", "6")


@traced
@swept(8)
def test_p1_a_batch_killed_again_during_recovery_lands_whole(lab: Lab, one_in: int) -> None:
    """Killed on the line right after the commit, and then at each change of the run that completes it."""
    undisturbed = lab.run(lab.land(lab.root("unharmed")), lab.root("unharmed"))
    sync = only(undisturbed.changes, "fsync", DAY_DIR)
    root = lab.root("whole")
    assert lab.killed(lab.land(root), root, sync), "the load was not committed"
    whole = lab.run(lab.land(root), root, nth=2)
    assert whole.code == 0, whole.err
    synced, done = only(whole.changes, "fsync", DAY_DIR), only(whole.changes, "link", "ID.done.json")
    assert whole.changes.index(synced) < whole.changes.index(done), "recorded before it is durable"

    def trial(call: Call) -> None:
        root = lab.root(f"twice {call} {whole.changes.index(call)}")
        lab.killed(lab.land(root), root, sync)
        assert lab.killed(lab.land(root), root, call, nth=2)
        lab.repeat(lab.land(root), root)

    assert each_of(part(points(whole.changes), one_in), trial) == []


@pytest.mark.nightly
@traced
def test_p1_a_batch_killed_at_two_changes_lands_whole(lab: Lab) -> None:
    """A part of these pairs is in `.ci/run` by failpoints, and each single call by strace."""
    whole = lab.run(lab.batch(lab.root("whole")), lab.root("whole")).changes
    choice = random.Random(SEED)
    firsts = choice.sample(important_points(whole), TRACED_PAIRS)
    seeds = {first: choice.random() for first in firsts}
    print(f"WEBLAKE_PAIRS_SEED={SEED}:", *map(str, firsts), sep="\n  ")
    started = lab.starts()

    def trial(first: Call) -> None:
        traced, root = (lab.root(f"pair {whole.index(first)} {first} {n}") for n in range(2))
        for each in (traced, root):
            lab.killed(lab.batch(each), each, first)
        seconds = important_points(lab.run(lab.batch(traced), traced, nth=2).changes)
        if seconds:  # after the last call there is nothing left to do
            lab.killed(lab.batch(root), root, random.Random(seeds[first]).choice(seconds), nth=2)
        lab.repeat(lab.batch(root), root)

    assert each_of(firsts, trial) == []
    assert lab.starts() - started == 2 * len(firsts), "more than one job was started"


@proves(
    "P1",
    at="src/weblake/loads/starts.py",
    line="    operation = replace(plan.build(last.key), repeatable=True)",
    becomes="    operation = replace(plan.build(str(uuid.uuid4())), repeatable=True)",
    case="part",
)
@swept(5)
def test_p1_a_batch_killed_at_two_failpoints_lands_whole(lab: Lab, one_in: int) -> None:
    with failpoint_runs(lab.env, lab.tmp) as runs:
        pairs = Pairs(lab, runs, {})
        chosen = pairs.some(PAIRS // one_in, SEED)
        print(f"WEBLAKE_PAIRS_SEED={SEED}:", *chosen)
        for pair in chosen:
            pairs.trial(pair)
