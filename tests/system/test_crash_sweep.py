"""Landing, struck by SIGKILL, a failing disk or a signal at every change it makes to its root.

Docs: promise 1 (whole or not at all) and 3 (paid once) rest on this sweep.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from crash_lab import DAY_DIR, DOCUMENTS, ERRORS, LEDGER, WEBLAKE, Lab, visible
from syscall_sweep import Call, Struck, as_meant, changes, each_of, points, prefix, run

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("strace") is None, reason="NOT PROVEN HERE: strace is not installed"),
]


@pytest.fixture
def lab(service: Any, site: str, weblake_command: Any, tmp_path: Path) -> Iterator[Lab]:
    with socket.socket() as closed:  # bound, and nobody listens: a page that surely fails
        closed.bind(("127.0.0.1", 0))
        urls = [f"{site}/{n}" for n in range(3)] + [f"http://127.0.0.1:{closed.getsockname()[1]}/"]
        env = {**os.environ, **weblake_command.env, "PYTHONDONTWRITEBYTECODE": "1"}
        first = weblake_command("batch", *urls, "--to", str(tmp_path / "first"), "--json")
        assert first.code == 0, first.err
        yield Lab(service, env, tmp_path, urls, first.json["job_id"])


#: How often a moment is aimed at before it counts as missed.
TRIES = 8


def only(calls: list[Call], name: str, what: str) -> Call:
    """The one call of this name that ends with this."""
    found = [call for call in calls if call.name == name and call.what.endswith(what)]
    assert len(found) == 1, f"{name} {what}: {[str(call) for call in found]}"
    return found[0]


def telling(calls: list[Call]) -> list[Call]:
    """The points of a sweep without the opens: an empty new file in staging is what its first write leaves too."""
    return [call for call in points(calls) if call.name != "openat"]


def test_killed_before_any_change_of_a_landing(lab: Lab) -> None:
    whole = lab.run(lab.land(lab.root("whole")), lab.root("whole"))
    assert whole.code == 0, whole.err
    assert {"mkdir", "openat", "write", "fsync", "link", "unlink", "rename"} <= {call.name for call in whole.changes}
    started = lab.starts()
    seen: list[bool] = []

    def trial(call: Call) -> None:
        root = lab.root(f"land {call}")
        struck = lab.run(lab.land(root), root, f"{call.name}:signal=KILL:when={call.nth}")
        assert struck.code == -9, f"it was not killed: {struck.code} {struck.err}"
        prefix(struck, whole.changes, call)
        seen.append(lab.unharmed(root))
        assert lab.again(lab.land(root), root)["job_id"] == lab.job

    assert each_of(telling(whole.changes), trial) == []
    assert lab.starts() == started
    assert {True, False} == set(seen), "the sweep did not reach both sides of the commit"


def test_killed_before_any_change_of_a_start(lab: Lab) -> None:
    whole = lab.run(lab.batch(lab.root("whole")), lab.root("whole"))
    assert whole.code == 0, whole.err
    begun = whole.changes.index(only(whole.changes, "mkdir", LEDGER))
    ended = whole.changes.index(only(whole.changes, "mkdir", "/tmp/STAGING"))
    # Before it nothing is paid, and after it a batch is a landing like any other; so these, and the commit.
    swept = [*points(whole.changes[begun:ended]), only(whole.changes, "link", DOCUMENTS)]
    started, jobs, missed = lab.starts(), list[str](), list[Call]()

    def hit(call: Call) -> bool:
        root = lab.root(f"batch {call} {len(jobs)}")
        struck = lab.run(lab.batch(root), root, f"{call.name}:signal=KILL:when={call.nth}")
        lab.unharmed(root)
        jobs.append(lab.again(lab.batch(root), root)["job_id"])
        return struck.code == -9 and as_meant(struck, whole.changes, call)

    def trial(call: Call) -> None:
        # A call is found by counting, and on a busy machine a run now and then opens one file more (a module that it
        # needs only when it has to wait): that one was struck elsewhere, and the moment that was meant is tried again.
        for _ in range(TRIES):
            if hit(call):
                return
            missed.append(call)
        raise AssertionError(f"it was missed {TRIES} times")

    assert each_of(swept, trial) == []
    assert len(missed) <= len(swept) / 4, [str(call) for call in missed]
    assert len(set(jobs)) == len(swept) + len(missed)
    assert lab.starts() - started == len(swept) + len(missed), "something was paid twice"


def test_killed_again_while_it_recovers(lab: Lab) -> None:
    """Killed on the very line after the commit, and then at each change of the run that finishes it."""
    unharmed = lab.run(lab.land(lab.root("unharmed")), lab.root("unharmed"))
    sync = only(unharmed.changes, "fsync", DAY_DIR)
    strike = f"fsync:signal=KILL:when={sync.nth}"
    root = lab.root("whole")
    lab.run(lab.land(root), root, strike)
    assert lab.unharmed(root), "the commit was not there"
    whole = lab.run(lab.land(root), root)
    assert whole.code == 0, whole.err
    synced, done = only(whole.changes, "fsync", DAY_DIR), only(whole.changes, "link", "ID.done.json")
    assert whole.changes.index(synced) < whole.changes.index(done), "on record before it is durable"

    def trial(call: Call) -> None:
        root = lab.root(f"twice {call}")
        lab.run(lab.land(root), root, strike)
        struck = lab.run(lab.land(root), root, f"{call.name}:signal=KILL:when={call.nth}")
        assert struck.code == -9
        prefix(struck, whole.changes, call)
        assert lab.unharmed(root)
        lab.again(lab.land(root), root)

    assert each_of(points(whole.changes), trial) == []


def test_killed_before_any_change_of_a_promotion(lab: Lab) -> None:
    """A load that was refused, because a page failed, and is then allowed."""
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
        root = refused_in(lab.root(f"promoted {call}"))
        struck = lab.run(allowed(root), root, f"{call.name}:signal=KILL:when={call.nth}")
        assert struck.code == -9
        prefix(struck, whole.changes, call)
        lab.unharmed(root)
        lab.again(allowed(root), root)

    assert each_of(telling(whole.changes), trial) == []


def test_the_order_of_a_landing(lab: Lab) -> None:
    root = lab.root("whole")
    calls = lab.run(lab.batch(root), root).changes

    def at(name: str, what: str) -> int:
        return calls.index(only(calls, name, what))

    def last(name: str, what: str, before: int) -> int:
        return max(n for n, call in enumerate(calls[:before]) if call.name == name and call.what.endswith(what))

    published, done = at("link", DOCUMENTS), at("link", "ID.done.json")
    written, synced = last("write", "documents.parquet", published), last("fsync", "documents.parquet", published)
    assert written < synced < published < at("fsync", DAY_DIR) < done
    errors = at("rename", ERRORS)
    assert last("fsync", "page_errors.parquet", errors) > last("write", "page_errors.parquet", errors)
    assert errors < at("fsync", "/page_errors/load_date=DAY") < published, "a document is there before its errors"
    for step in ("ID.json", "ID.start-1.json", "ID.job.json", "ID.done.json"):
        linked = at("link", f"{LEDGER}/{step}")
        assert calls[linked - 1].plain == ("fsync", "/_weblake/tmp/PART"), f"{step} was on record before it was on disk"
        after = [call.plain for call in calls[linked + 1 :] if call.name in ("fsync", "link")]
        assert after[0] == ("fsync", LEDGER), f"{step} was not made durable"


#: Where a disk fails and how: the call, what it touches, the errno, and whether the commit had been made.
TROUBLE = [
    ("mkdir", "/_weblake", errno.EROFS, False),
    ("openat", f"{LEDGER}/ID.json", errno.EMFILE, False),
    ("write", "/tmp/STAGING/documents.parquet", errno.ENOSPC, False),
    ("fsync", "/tmp/STAGING/documents.parquet", errno.EIO, False),
    ("rename", ERRORS, errno.ENOSPC, False),
    ("link", f"{LEDGER}/ID.start-1.json", errno.ENOSPC, False),
    ("link", f"{LEDGER}/ID.job.json", errno.EIO, False),
    ("link", DOCUMENTS, errno.EROFS, False),
    ("fsync", DAY_DIR, errno.EIO, True),
    ("link", f"{LEDGER}/ID.done.json", errno.ENOSPC, True),
]


def test_a_disk_that_fails(lab: Lab) -> None:
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
        struck = lab.run(lab.batch(root), root, f"{call.name}:error={errno.errorcode[number]}:when={call.nth}")
        prefix(struck, whole, call)
        assert "(INJECTED)" in struck.trace
        assert struck.code == 1, f"exit {struck.code}: {struck.err}"
        told = json.loads(struck.out)["error"]
        assert told["type"] == "StorageRefused"
        assert told["hint"]
        assert len(struck.err.strip().splitlines()) == 1, struck.err
        assert lab.unharmed(root) is committed
        _never_synced_again(struck, root)
        lab.again(lab.batch(root), root)

    assert each_of([*chosen], trial) == []
    assert lab.starts() - started == len(TROUBLE), "something was paid twice"


def _never_synced_again(struck: Struck, root: Path) -> None:
    """After a failed fsync the kernel has dropped the pages: a second one would succeed and mean nothing."""
    calls = changes(struck.trace, root)
    for n, call in enumerate(calls):
        if call.name == "fsync" and call.failed:
            assert call.plain not in [later.plain for later in calls[n + 1 :]], f"{call} was tried again"


@pytest.mark.parametrize("name", ["INT", "TERM"])
def test_told_to_stop_at_a_change(lab: Lab, name: str) -> None:
    whole = lab.run(lab.batch(lab.root("whole")), lab.root("whole")).changes
    first = whole.index(only(whole, "link", f"{LEDGER}/ID.start-1.json"))
    footer = [call for call in whole if call.name == "write" and call.what.endswith("/documents.parquet")][-1]
    swept = [whole[first], only(whole, "link", "ID.job.json"), only(whole, "mkdir", "/tmp/STAGING")]
    swept += [footer, only(whole, "link", DOCUMENTS)]
    started = lab.starts()

    def trial(call: Call) -> None:
        root = lab.root(f"{name} {call}")
        struck = lab.run(lab.batch(root), root, f"{call.name}:signal={name}:when={call.nth}")
        assert struck.code == {"INT": 130, "TERM": 143}[name], f"exit {struck.code}: {struck.err}"
        assert "Traceback" not in struck.err
        assert "weblake: interrupted" in struck.err
        assert list((root / "_weblake/tmp").iterdir()) == [], "staging was left behind"
        lab.unharmed(root)
        lab.again(lab.batch(root), root)

    assert each_of(swept, trial) == []
    assert lab.starts() - started == len(swept)
    assert lab.service.counts().get("batch_scrape_cancelled", 0) == 0


def test_terminated_while_it_waits(lab: Lab, weblake_command: Any, tmp_path: Path) -> None:
    lab.service.faults(
        {"match": {"method": "GET", "path": "/v2/batch/scrape/.*"}, "times": 1, "effect": {"latency_ms": 60000}}
    )
    root = tmp_path / "lake"
    command = ("batch", *lab.urls, "--to", str(root), "--key", "terminated")
    process = weblake_command.start(*command)
    job_id = process.stderr.readline().split()[-1]  # on record; the wait for it has begun
    process.terminate()
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in err) == (143, False), err
    assert f"weblake cancel batch {job_id}" in err
    assert list((root / "_weblake/tmp").iterdir()) == []
    lab.service.faults()
    assert weblake_command("status", "batch", job_id, "--json").json["status"] == "completed"
    assert lab.again([*WEBLAKE, *command, "--json"], root)["job_id"] == job_id
    loads = weblake_command("loads", str(root), "--json").json["loads"]
    assert [(load["job_id"], load["stored"], load["retired_by"]) for load in loads] == [(job_id, 3, None)]


#: A writer as one writes it at first: in place, under the final name.
IN_PLACE = """
import sys, pathlib, pyarrow as pa, pyarrow.parquet as pq
folder = pathlib.Path(sys.argv[1]) / "documents"
folder.mkdir(parents=True, exist_ok=True)
pq.write_table(pa.table({"source_url": sys.argv[2:]}), folder / "load-00000.parquet")
"""
#: One that is whole at every moment, and forgets what it has done.
FORGETFUL = """
import os, sys, pathlib, uuid, pyarrow as pa, pyarrow.parquet as pq
root = pathlib.Path(sys.argv[1])
(root / "documents").mkdir(parents=True, exist_ok=True)
if not (root / "done").is_dir():
    pq.write_table(pa.table({"source_url": sys.argv[2:]}), root / "part")
    os.rename(root / "part", root / "documents" / f"{uuid.uuid4()}.parquet")
    (root / "done").mkdir()
"""


@pytest.mark.parametrize(("writer", "caught"), [(IN_PLACE, "a reader failed"), (FORGETFUL, "the rerun left")])
def test_the_sweep_catches_naive_writers(tmp_path: Path, writer: str, caught: str) -> None:
    urls = ["https://a.test/1", "https://a.test/2"]

    def command(root: Path) -> list[str]:
        return [sys.executable, "-c", writer, str(root), *urls]

    whole = run(command(tmp_path / "whole"), tmp_path / "whole", tmp_path / "whole.trace", {})
    assert whole.code == 0, whole.err
    assert visible(tmp_path / "whole") == urls

    def trial(call: Call) -> None:
        root = tmp_path / f"{call.name}-{call.nth}"
        struck = run(command(root), root, root.with_suffix(".trace"), {}, f"{call.name}:signal=KILL:when={call.nth}")
        assert struck.code == -9
        assert visible(root) in ([], urls), "a part is visible"
        assert subprocess.run(command(root), capture_output=True).returncode == 0
        assert visible(root) == urls, f"the rerun left {visible(root)}"

    failures = each_of(telling(whole.changes)[-6:], trial)  # early ones come before the file is there at all
    assert any(caught in failure for failure in failures), f"the sweep let it pass: {failures}"
