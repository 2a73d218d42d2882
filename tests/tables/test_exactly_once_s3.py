"""Each load is in the table once, on object storage: three syncs at once, killed at any write, with lost replies.

`part` lands 6 loads, `all` (nightly) 60; Iceberg only `all`, because each process takes seconds to start.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from lossy_proxy import LossyProxy, lossy_proxy
from polling import until
from task_lab import RETRY, TaskLab
from tiers import SEED

from weblake import tables
from weblake.dataset.root import open_dataset

#: Writes of a sync process before which or after which it is killed: a commit of one load to Delta Lake sends about
#: ten with its records, a commit to Iceberg that replaces loads twenty before its first record.
_WRITES = {"delta": 15, "iceberg": 40}

# A catalog in SQLite has no connection that could be cut: its reply is lost by an error after the commit.
_SYNCS = """
import faulthandler, random, sys
faulthandler.enable()
import weblake.tables as tables
root, options, seed = sys.argv[1], eval(sys.argv[2]), sys.argv[3]
if options:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException
    rng, real = random.Random(seed), SqlCatalog.commit_table
    def loses_replies(*args):
        done = real(*args)
        if rng.randrange(4) == 0:
            raise CommitStateUnknownException("the reply is lost")
        return done
    SqlCatalog.commit_table = loses_replies
while True:
    tables.sync(root, table_options=options)
    print("synced", flush=True)
"""


class Syncs:
    """A process that syncs again and again, is killed at one of its writes, and is started again."""

    def __init__(self, root: str, options: Mapping[str, str] | None, proxy: LossyProxy, errors: Path, seed: str):
        self._writes = _WRITES["delta" if options is None else "iceberg"]
        self._root, self._options, self._proxy, self._errors, self._seed = root, options, proxy, errors, seed
        self._rng = random.Random(seed)
        self._process: subprocess.Popen[bytes] | None = None
        self.ended: list[int] = []

    def run(self) -> None:
        """Start the process if it is not running."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self.ended.append(code)
        options = None if self._options is None else {**self._options, "s3.endpoint": self._proxy.url}
        command = [sys.executable, "-c", _SYNCS, self._root, repr(options), f"{self._seed} {len(self.ended)}"]
        environment = {**os.environ, "AWS_ENDPOINT_URL": self._proxy.url}
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
        self._proxy.kill_at(self._rng.randrange(1, self._writes), self._process.kill, before=self._rng.random() < 0.5)

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)


_ALL = [pytest.mark.nightly, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("format", "loads"),
    [
        pytest.param("delta", 6, id="delta-part", marks=pytest.mark.nightly),
        pytest.param("delta", 60, id="delta-all", marks=_ALL),
        pytest.param("iceberg", 60, id="iceberg-all", marks=_ALL),
    ],
)
def test_three_processes_that_are_killed_at_their_writes(
    lab: TaskLab,
    s3_endpoint: str,
    s3_root: str,
    format: str,
    loads: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    options, named = None, {}
    if format == "iceberg":
        named = {"catalog": "lake", "identifier": "web.documents"}
        options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{s3_root}-warehouse"}
        options |= {"s3.endpoint": s3_endpoint, "s3.region": "us-east-1"}
    days = loads // 2
    landed: dict[str, str] = {}

    def land(number: int) -> None:
        day = f"day-{number % days}"
        lab.run, lab.keys = f"run-{number}", {"day": day}
        landed[day] = lab.land(RETRY).receipt.load_id

    lab.dataset = open_dataset(s3_root)
    land(0)
    tables.add(s3_root, format, table_options=options, **named)  # type: ignore[arg-type]
    errors = tmp_path / "errors"
    with ExitStack() as stack:
        syncs = []
        for number in range(3):
            proxy = stack.enter_context(lossy_proxy(s3_endpoint, random.Random(f"{SEED} {number}"), lose_one_in=25))
            syncs.append((Syncs(s3_root, options, proxy, errors, f"{SEED} {number} {format}"), proxy))
            stack.callback(syncs[-1][0].end)

        def all_committed() -> bool:
            for each, _ in syncs:
                each.run()
            killed = sum(each.ended.count(-signal.SIGKILL) for each, _ in syncs)
            return killed >= loads // 6 and tables.status(s3_root, table_options=options)[0].in_step

        for number in range(1, loads):
            for each, _ in syncs:
                each.run()
            land(number)
        until(all_committed, 240 if loads < 60 else 900)
    tables.sync(s3_root, everything=True, table_options=options)
    (status,) = tables.status(s3_root, table_options=options)
    assert status.in_step, json.dumps(status.to_dict())
    assert (status.loads, status.rows) == (days, 3 * days)

    assert sum(proxy.lost for _, proxy in syncs) >= loads // 12, "replies were lost"
    assert {code for each, _ in syncs for code in each.ended} == {-signal.SIGKILL}, errors.read_text()
