"""The order of a landing's syncs as strace sees them, on which durability after a power loss depends."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from catalogue import proves
from crash_lab import DAY_DIR, DOCUMENTS, ERRORS, LEDGER, WEBLAKE, Lab
from failpoint_runs import plain

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("strace") is None, reason="NOT PROVEN HERE: strace is not installed"),
]

#: Calls that change a directory or sync it.
WATCHED = "write,writev,pwrite64,fsync,fdatasync,link,linkat,unlink,unlinkat,rename,renameat,mkdir,mkdirat"


class Call(NamedTuple):
    """One call, and the paths below the root that it names, without the parts that differ between roots."""

    name: str
    what: str


def changes(trace: str, root: Path) -> Iterator[Call]:
    for name, rest in re.findall(r"^\d+\s+([a-z0-9]+)\((.*)$", trace, re.MULTILINE):
        paths = re.findall(rf'[<"]{re.escape(str(root))}(/[^">]*|)[">]', rest)
        if paths:
            yield Call(name, " -> ".join(dict.fromkeys(plain(path) or "/" for path in paths)))


@proves("P2", at="src/weblake/storage/local.py", line="        os.fsync(descriptor)", becomes="        pass")
@proves(
    "P2",
    at="src/weblake/storage/local.py",
    line="                os.fsync(file.fileno())",
    becomes="                pass",
)
def test_p2_a_landing_syncs_in_the_required_order(lab: Lab) -> None:
    root, log = lab.root("whole"), lab.tmp / "trace"
    traced = ["strace", "-f", "-y", "-s", "8", "-o", str(log), "-e", f"trace={WATCHED}", "--"]
    done = subprocess.run([*traced, *WEBLAKE, *lab.batch(root)], env=lab.env, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr
    calls = [*changes(log.read_text(), root)]

    def at(name: str, what: str) -> int:
        (found,) = [n for n, call in enumerate(calls) if call.name == name and call.what.endswith(what)]
        return found

    def last(name: str, what: str, before: int) -> int:
        return max(n for n, call in enumerate(calls[:before]) if call.name == name and call.what.endswith(what))

    published, done_record = at("link", DOCUMENTS), at("link", "ID.done.json")
    written, synced = last("write", "documents.parquet", published), last("fsync", "documents.parquet", published)
    assert written < synced < published < at("fsync", DAY_DIR) < done_record
    assert at("mkdir", DAY_DIR) < last("fsync", "/documents", published) < synced, "a directory was not durable"
    errors = at("rename", ERRORS)
    assert last("fsync", "page_errors.parquet", errors) > last("write", "page_errors.parquet", errors)
    assert errors < at("fsync", "/page_errors/load_date=DAY") < published, (
        "a document is visible before its page errors"
    )
    for step in ("ID.json", "ID.start-1.json", "ID.job.json", "ID.done.json"):
        linked = at("link", f"{LEDGER}/{step}")
        assert calls[linked - 1] == ("fsync", "/_weblake/tmp/PART"), f"{step} was recorded before it was durable"
        after = [call for call in calls[linked + 1 :] if call.name in ("fsync", "link")]
        assert after[0] == ("fsync", LEDGER), f"{step} was not made durable"
