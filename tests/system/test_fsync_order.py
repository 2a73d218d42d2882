"""The order of a landing's syncs as strace sees them, on which durability after a power loss depends."""

from __future__ import annotations

import pytest
from catalogue import proves
from crash_lab import DAY_DIR, DOCUMENTS, ERRORS, LEDGER, Lab
from syscall_sweep import only, traced

pytestmark = [
    pytest.mark.system,
    traced,
]


@proves("P2", at="src/weblake/storage/local.py", line="        os.fsync(descriptor)", becomes="        pass")
@proves(
    "P2",
    at="src/weblake/storage/local.py",
    line="                os.fsync(file.fileno())",
    becomes="                pass",
)
def test_p2_a_landing_syncs_in_the_required_order(lab: Lab) -> None:
    root = lab.root("whole")
    calls = lab.run(lab.batch(root), root).changes

    def at(name: str, what: str) -> int:
        return calls.index(only(calls, name, what))

    def last(name: str, what: str, before: int) -> int:
        return max(n for n, call in enumerate(calls[:before]) if call.name == name and call.what.endswith(what))

    published, done = at("link", DOCUMENTS), at("link", "ID.done.json")
    written, synced = last("write", "documents.parquet", published), last("fsync", "documents.parquet", published)
    assert written < synced < published < at("fsync", DAY_DIR) < done
    assert at("mkdir", DAY_DIR) < last("fsync", "/documents", published) < synced, "a directory was not durable"
    errors = at("rename", ERRORS)
    assert last("fsync", "page_errors.parquet", errors) > last("write", "page_errors.parquet", errors)
    assert errors < at("fsync", "/page_errors/load_date=DAY") < published, (
        "a document is visible before its page errors"
    )
    for step in ("ID.json", "ID.start-1.json", "ID.job.json", "ID.done.json"):
        linked = at("link", f"{LEDGER}/{step}")
        assert calls[linked - 1].plain == ("fsync", "/_weblake/tmp/PART"), f"{step} was recorded before it was durable"
        after = [call.plain for call in calls[linked + 1 :] if call.name in ("fsync", "link")]
        assert after[0] == ("fsync", LEDGER), f"{step} was not made durable"
