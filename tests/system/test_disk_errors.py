"""A disk that is full, fails, is read-only or has no file handles left, at a change of the root as strace sees it.

At the most important calls by name, and at a seeded part of the others: a few under `system`, all of them under
`nightly`.
"""

from __future__ import annotations

import errno
import json
import os
import random

import pytest
from catalogue import proves
from crash_lab import DAY_DIR, DOCUMENTS, ERRORS, LEDGER, Lab
from syscall_sweep import Call, TracedRun, each_of, only, points, traced
from tiers import part, swept

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(1800),
    traced,
]

#: Where and how a disk fails: the call, its path, the errno, and whether the load was committed by then.
TROUBLE = [
    ("mkdir", "/_weblake", errno.EROFS, False),
    ("openat", f"{LEDGER}/ID.json", errno.EMFILE, False),
    ("write", "/tmp/STAGING/documents.parquet", errno.ENOSPC, False),
    ("fsync", "/tmp/STAGING/documents.parquet", errno.EIO, False),
    ("rename", ERRORS, errno.EDQUOT, False),
    ("link", f"{LEDGER}/ID.start-1.json", errno.ENOSPC, False),
    ("link", f"{LEDGER}/ID.job.json", errno.EIO, False),
    ("link", DOCUMENTS, errno.EROFS, False),
    ("fsync", DAY_DIR, errno.EIO, True),
    ("link", f"{LEDGER}/ID.done.json", errno.ENOSPC, True),
]
ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE)
#: The seed of the errnos.
SEED = os.environ.get("WEBLAKE_DISK_SEED", "6")


def failed(interrupted_run: TracedRun) -> None:
    """Assert how a run reported a disk error."""
    assert interrupted_run.code == 1, f"exit {interrupted_run.code}: {interrupted_run.err}"
    assert len(interrupted_run.err.strip().splitlines()) == 1, interrupted_run.err
    assert interrupted_run.out, f"no error was reported as JSON: {interrupted_run.err}"
    failure = json.loads(interrupted_run.out)["error"]
    assert failure["type"] == "StorageRefused"
    assert failure["hint"]


def assert_no_second_fsync(interrupted_run: TracedRun) -> None:
    """After a failed fsync the kernel has dropped the file's pages: the success of a second fsync means nothing."""
    for n, call in enumerate(interrupted_run.changes):
        if call.name == "fsync" and call.failed and call.what.endswith((".parquet", "PART")):
            assert call.plain not in [later.plain for later in interrupted_run.changes[n + 1 :]], (
                f"{call} was tried again"
            )


def test_p3_a_disk_error_at_an_important_change_is_reported(lab: Lab) -> None:
    whole = lab.run(lab.batch(lab.root("whole")), lab.root("whole")).changes
    chosen: dict[Call, tuple[int, bool]] = {}
    for name, what, number, committed in TROUBLE:
        if name == "openat":  # of the file that becomes this record
            linked = whole.index(only(whole, "link", what))
            fitting = [each for each in whole[:linked] if each.name == name]
        else:
            fitting = [each for each in whole if each.name == name and each.what.endswith(what)]
        # The last write is the footer; the first fsync is the one after it.
        chosen[fitting[0 if name == "fsync" else -1]] = (number, committed)
    assert len(chosen) == len(TROUBLE)
    started = lab.starts()

    def trial(call: Call) -> None:
        number, committed = chosen[call]
        root = lab.root(f"disk {call}")
        interrupted_run = lab.run(lab.batch(root), root, call.aim(root, f"error={errno.errorcode[number]}"))
        assert interrupted_run.meant(call)
        assert "(INJECTED)" in interrupted_run.trace
        failed(interrupted_run)
        assert lab.check_whole_or_absent(root) is committed
        assert_no_second_fsync(interrupted_run)
        lab.repeat(lab.batch(root), root)

    assert each_of([*chosen], trial) == []
    assert lab.starts() - started == len(TROUBLE), "more than one job was started"


@proves(
    "P3",
    at="src/weblake/storage/rules.py",
    line="        raise refusal(error, doing, url, hidden) from error",
    becomes="        raise",
    case="part",
)
@swept(12)
def test_p3_a_disk_error_at_any_change_is_reported(lab: Lab, one_in: int) -> None:
    """The run fails with a reason, or the call did not matter (removal of staging) and the load is visible."""
    whole = lab.run(lab.batch(lab.root("whole")), lab.root("whole")).changes
    choice = random.Random(SEED)
    chosen = [(call, choice.choice(ERRNOS)) for call in part(points(whole), one_in)]
    print(f"WEBLAKE_DISK_SEED={SEED}:", *(f"{call} {errno.errorcode[number]}" for call, number in chosen), sep="\n  ")
    started = lab.starts()

    def trial(call: Call) -> None:
        number = dict(chosen)[call]
        root = lab.root(f"any {call} {whole.index(call)}")
        interrupted_run = lab.run(lab.batch(root), root, call.aim(root, f"error={errno.errorcode[number]}"))
        assert interrupted_run.meant(call)
        if interrupted_run.code:
            failed(interrupted_run)
        landed = lab.check_whole_or_absent(root)
        assert landed or interrupted_run.code, "it reported a landed load"
        assert_no_second_fsync(interrupted_run)
        lab.repeat(lab.batch(root), root)

    assert each_of([call for call, _ in chosen], trial) == []
    assert lab.starts() - started == len(chosen), "more than one job was started"
