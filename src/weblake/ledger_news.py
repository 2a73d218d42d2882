"""A dataset's ledger for a watcher that reads it again and again: what has landed, and which jobs belong to its loads.

One listing tells which records are new, and only those are read: a record never changes, so what was read stays true.
Imports: ended_jobs, layout, ledger, submitted; no Arrow.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from weblake.compat import read_time
from weblake.layout import LEDGER, check_whole
from weblake.ledger import READERS, Intent, Ledger
from weblake.submitted import url_key

if TYPE_CHECKING:
    from weblake.ended_jobs import ListedJob
    from weblake.publishing import Dataset

#: Seconds by which the service's clock may be behind ours.
CLOCK_SLACK_S = 60.0
#: After so many seconds a start that got no answer cannot be looked up any more: the activity list goes back 24 hours.
LOOKUP_S = 25 * 3600.0

_NAME = re.compile(rf"{LEDGER}/(?P<load_id>[0-9a-f]{{16}})\.(?P<step>start-\d+|job|done)\.json")


class LedgerNews:
    """What is on record in one root. One thread at a time.

    Not for decisions about money: what is recorded after `refresh` is not seen.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._ledger: Ledger = dataset.ledger
        self._storage = dataset.storage
        #: Loads whose job is known, and the jobs.
        self._with_job: set[str] = set()
        self._job_ids: set[str] = set()
        self._landed: dict[str, int] = {}
        self._open: list[Intent] = []

    @property
    def landed(self) -> dict[str, int]:
        """The loads that have landed, also those retired since, and when: milliseconds since 1970."""
        return dict(self._landed)

    def refresh(self, until: float | None = None) -> bool:
        """Reads what is new.

        Args:
            until: Monotonic seconds at which reading is broken off; the next call goes on.

        Returns:
            Whether everything is known now.

        Raises:
            StorageRefused: The storage failed, or a record cannot be read.
        """
        check_whole(self._storage)
        steps: dict[str, set[str]] = {}
        for name in self._storage.list(LEDGER):
            match = _NAME.fullmatch(name)
            if match:
                steps.setdefault(match["load_id"], set()).add(match["step"].partition("-")[0])
        jobs = [load_id for load_id, known in steps.items() if "job" in known and load_id not in self._with_job]
        done = [load_id for load_id, known in steps.items() if "done" in known and load_id not in self._landed]
        unanswered = [load_id for load_id, known in steps.items() if known == {"start"}]
        self._open = []
        return (
            self._each(jobs, self._read_job, until)
            and self._each(done, self._read_done, until)
            and self._each(unanswered, self._read_open, until)
        )

    def holds(self, job_id: str) -> bool:
        """Whether a job belongs to some load of this root."""
        return job_id.lower() in self._job_ids

    def may_be_ours(self, kind: str, job: ListedJob) -> bool:
        """Whether a load here may have started this job without having heard of it: a start whose answer is still out.

        Such a job is that load's to adopt. Whoever lands it first would have it bought again.
        """
        return any(_fits(intent, kind, job) for intent in self._open)

    def _each(self, load_ids: Iterable[str], read: Callable[[str], None], until: float | None) -> bool:
        with ThreadPoolExecutor(READERS) as readers:
            return all(list(readers.map(partial(_in_time, read, until), load_ids)))

    def _read_job(self, load_id: str) -> None:
        job = self._ledger.job(load_id)
        if job is not None:
            self._job_ids.add(job.job_id.lower())
            self._with_job.add(load_id)

    def _read_done(self, load_id: str) -> None:
        done = self._ledger.done(load_id)
        if done is None:
            return
        if isinstance(job_id := done.get("job_id"), str):
            self._job_ids.add(job_id.lower())
        self._landed[load_id] = round(read_time(str(done["at"])).timestamp() * 1000)

    def _read_open(self, load_id: str) -> None:
        intent, last = self._ledger.intent(load_id), self._ledger.last_start(load_id)
        if intent is not None and last is not None and not last.void and intent.age_s() < LOOKUP_S:
            self._open.append(intent)


def _in_time(read: Callable[[str], None], until: float | None, load_id: str) -> bool:
    if until is not None and time.monotonic() > until:
        return False
    read(load_id)
    return True


def _fits(intent: Intent, kind: str, job: ListedJob) -> bool:
    if intent.kind != kind or job.created / 1000 < intent.created_seconds() - CLOCK_SLACK_S:
        return False
    return not job.target or not intent.first_target or url_key(job.target) == url_key(intent.first_target)
