"""What may be seen of a lake, reckoned from what the service truly served: promise 1 and 2 as assertions.

The oracle knows the jobs of the world and which load belongs to which URLs. It never asks the product what is right.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow.parquet as pq
from simulated_service import Job, World

from weblake.receipt import Receipt
from weblake.storage import Storage

_LOAD = re.compile(r"(?:documents|page_errors)/load_date=\d{4}-\d\d-\d\d/([0-9a-f]{16})-00000\.parquet")

#: What accounts for a submitted URL.
_COUNTS = ("stored", "failed", "robots_blocked", "rejected", "missing", "duplicates")
_SITE = "https://site.test/"


def name_of(url: str) -> str:
    """The order that a URL belongs to: each has a part of the site for itself."""
    return url.removeprefix(_SITE).partition("/")[0]


@dataclass
class Told:
    """What the runs were told so far, and what that obliges the lake to."""

    #: Receipts that a run got, by load id.
    landed: dict[str, Receipt] = field(default_factory=dict)
    #: The slot of a load whose place another one may take, by load id.
    slots: dict[str, str] = field(default_factory=dict)
    #: Jobs of which a run was told that they are in the activity table.
    active: set[str] = field(default_factory=set)


class Oracle:
    """Looks at a root after each step."""

    def __init__(self, world: World, storage: Storage, starts: Callable[[], Mapping[str, int]]) -> None:
        self.world, self.storage = world, storage
        self.told = Told()
        #: How often each order may have been started.
        self._starts = starts
        self._read: dict[bytes, list[dict[str, Any]]] = {}
        self._digests: dict[str, bytes] = {}

    def check(self) -> None:
        """All that must be true at any moment."""
        documents = self.table("documents", once=True)
        errors = self.table("page_errors", once=False)
        for load_id, rows in documents.items():
            self._whole(load_id, rows, errors.get(load_id, []))
        jobs = [rows[0]["job_id"] for rows in documents.values()]
        assert len(set(jobs)) == len(jobs), f"the documents of a job are visible twice: {sorted(documents)}"
        self._kept(documents)
        self._paid_once()
        self._usage()

    def table(self, table: str, *, once: bool) -> dict[str, list[dict[str, Any]]]:
        """The rows of each visible load; with `once`, what has a name never changes."""
        found = {}
        for name in self.storage.list(table):
            match = _LOAD.fullmatch(name)
            assert match is not None, f"a reader of {table} meets {name}"
            found[match[1]] = self._rows(name, once=once)
        return found

    def balanced(self, receipt: Receipt) -> None:
        """A receipt adds up, and says what the service served."""
        job = self.world.jobs[receipt.job_id]
        assert receipt.submitted == sum(getattr(receipt, name) for name in _COUNTS), receipt
        assert receipt.stored == len(job.content.documents), (receipt, job)
        assert receipt.failed == len(job.content.failed), (receipt, job)
        assert (receipt.missing, job.content.lost, job.content.status) == (0, 0, "completed"), (receipt, job)

    def _rows(self, name: str, *, once: bool) -> list[dict[str, Any]]:
        data = self.storage.read(name)
        assert data is not None
        digest = hashlib.sha256(data).digest()
        if once:
            assert self._digests.setdefault(name, digest) == digest, f"{name} was written twice"
        if digest not in self._read:
            self._read[digest] = pq.read_table(io.BytesIO(data)).to_pylist()
        return self._read[digest]

    def _whole(self, load_id: str, rows: list[dict[str, Any]], errors: list[dict[str, Any]]) -> None:
        job: Job = self.world.jobs[rows[0]["job_id"]]
        content = job.content
        assert {row["job_id"] for row in rows} == {job.job_id}
        assert {row["load_id"] for row in rows} == {load_id}
        assert content.polls == 0, f"load {load_id} is visible before its job has ended"
        assert (content.lost, content.status) == (0, "completed"), f"load {load_id} is visible, and {content}"
        served = Counter((each["metadata"]["sourceURL"], each["markdown"]) for each in content.documents)  # type: ignore[index]
        assert Counter((row["source_url"], row["markdown"]) for row in rows) == served, f"load {load_id} is not whole"
        assert sorted(row["position"] for row in rows) == list(range(len(rows)))
        assert sorted(row["url"] for row in errors) == sorted(content.failed), f"load {load_id} has other errors"

    def _kept(self, documents: Mapping[str, object]) -> None:
        """What has landed stays, unless a load of its slot stands in its place."""
        taken = {self.told.slots[load_id] for load_id in documents if load_id in self.told.slots}
        for load_id in self.told.landed:
            assert load_id in documents or self.told.slots.get(load_id) in taken, f"load {load_id} had landed, and went"

    def _paid_once(self) -> None:
        started = Counter(name_of(job.target) for job in self.world.jobs.values())
        allowed = self._starts()
        for name, times in started.items():
            assert times <= allowed[name], f"{name} was paid {times} times"

    def _usage(self) -> None:
        seen: Counter[str] = Counter()
        for name in self.storage.list("activity"):
            for row in self._rows(name, once=False):
                seen[row["id"]] += 1
                created = datetime.fromtimestamp(self.world.jobs[row["id"]].created, row["created_at"].tzinfo)
                assert row["created_at"] == created
        assert set(seen.values()) <= {1}, "an activity is there twice"
        assert self.told.active <= seen.keys(), "an activity that was landed is gone"
        for name in self.storage.list("usage_periods"):
            for row in self._rows(name, once=False):
                assert row["total_credits"] in self.world.reported


def by_slot(told: Told) -> dict[str, set[str]]:
    """The loads of each slot."""
    found: dict[str, set[str]] = defaultdict(set)
    for load_id, slot in told.slots.items():
        found[slot].add(load_id)
    return found
