"""Assertions for promises 1 and 2: what a dataset may contain, computed from what the service delivered.

They know the jobs of the simulated service and the URLs of each load, and never ask weblake for the expected result.
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
from simulated_service import Job, SimulatedService

from weblake.receipt import Receipt
from weblake.storage import Storage

_LOAD = re.compile(r"(?:documents|page_errors)/load_date=\d{4}-\d\d-\d\d/([0-9a-f]{16})-00000\.parquet")

#: The counts whose sum is the number of submitted URLs.
_COUNTS = ("stored", "failed", "robots_blocked", "rejected", "missing", "duplicates")
_SITE = "https://site.test/"


def name_of(url: str) -> str:
    """Return the name of the requested load that a URL belongs to: each load has a separate part of the site."""
    return url.removeprefix(_SITE).partition("/")[0]


@dataclass
class Reported:
    """What the runs reported so far, from which the expected content of the dataset follows."""

    #: The receipts that runs returned, by load id.
    landed: dict[str, Receipt] = field(default_factory=dict)
    #: The slot of each load that may be replaced, by load id.
    slots: dict[str, str] = field(default_factory=dict)
    #: The jobs that a run reported to be in the activity table.
    active: set[str] = field(default_factory=set)


class DatasetAssertions:
    """Checks a root after each step."""

    def __init__(self, world: SimulatedService, storage: Storage, starts: Callable[[], Mapping[str, int]]) -> None:
        self.world, self.storage = world, storage
        self.reported = Reported()
        #: How often each requested load may have been started.
        self._starts = starts
        self._read: dict[bytes, list[dict[str, Any]]] = {}
        self._digests: dict[str, bytes] = {}

    def check(self) -> None:
        """Check everything that must be true at any time."""
        documents = self.table("documents", once=True)
        errors = self.table("page_errors", once=False)
        for load_id, rows in documents.items():
            self._check_load(load_id, rows, errors.get(load_id, []))
        jobs = [rows[0]["job_id"] for rows in documents.values()]
        assert len(set(jobs)) == len(jobs), f"the documents of a job are visible twice: {sorted(documents)}"
        self._check_still_visible(documents)
        self._check_starts()
        self._check_usage()

    def table(self, table: str, *, once: bool) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each visible load; with `once`, assert that a published file never changes."""
        found = {}
        for name in self.storage.list(table):
            match = _LOAD.fullmatch(name)
            assert match is not None, f"a glob over {table} finds {name}"
            found[match[1]] = self._rows(name, once=once)
        return found

    def check_receipt(self, receipt: Receipt) -> None:
        """Check that the counts of a receipt add up and equal those of the service."""
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

    def _check_load(self, load_id: str, rows: list[dict[str, Any]], errors: list[dict[str, Any]]) -> None:
        job: Job = self.world.jobs[rows[0]["job_id"]]
        content = job.content
        assert {row["job_id"] for row in rows} == {job.job_id}
        assert {row["load_id"] for row in rows} == {load_id}
        assert content.polls == 0, f"load {load_id} is visible before its job has ended"
        assert (content.lost, content.status) == (0, "completed"), (
            f"load {load_id} is visible although its job is {content}"
        )
        served = Counter((each["metadata"]["sourceURL"], each["markdown"]) for each in content.documents)  # type: ignore[index]
        assert Counter((row["source_url"], row["markdown"]) for row in rows) == served, (
            f"load {load_id} is not complete"
        )
        assert sorted(row["position"] for row in rows) == list(range(len(rows)))
        assert sorted(row["url"] for row in errors) == sorted(content.failed), f"load {load_id} has other page errors"

    def _check_still_visible(self, documents: Mapping[str, object]) -> None:
        """Check that a landed load stays visible unless a load of its slot replaced it."""
        taken = {self.reported.slots[load_id] for load_id in documents if load_id in self.reported.slots}
        for load_id in self.reported.landed:
            assert load_id in documents or self.reported.slots.get(load_id) in taken, (
                f"load {load_id} landed and is no longer visible"
            )

    def _check_starts(self) -> None:
        started = Counter(name_of(job.target) for job in self.world.jobs.values())
        allowed = self._starts()
        for name, times in started.items():
            assert times <= allowed[name], f"{name} was started {times} times"

    def _check_usage(self) -> None:
        seen: Counter[str] = Counter()
        for name in self.storage.list("activity"):
            for row in self._rows(name, once=False):
                seen[row["id"]] += 1
                created = datetime.fromtimestamp(self.world.jobs[row["id"]].created, row["created_at"].tzinfo)
                assert row["created_at"] == created
        assert set(seen.values()) <= {1}, "an activity is in the table twice"
        assert self.reported.active <= seen.keys(), "a landed activity is missing"
        for name in self.storage.list("usage_periods"):
            for row in self._rows(name, once=False):
                assert row["total_credits"] in self.world.reported


def by_slot(reported: Reported) -> dict[str, set[str]]:
    """Return the load ids of each slot."""
    found: dict[str, set[str]] = defaultdict(set)
    for load_id, slot in reported.slots.items():
        found[slot].add(load_id)
    return found
