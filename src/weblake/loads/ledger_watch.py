"""A dataset's ledger for a watcher that reads it again and again: what has landed, and which jobs belong to its loads.

One listing tells which records are new, and only those are read: a record never changes, so what was read stays true.
A record that cannot be read is logged and left out until it can be.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weblake.compat import read_time
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Intent, Ledger, Start
from weblake.dataset.ledger_listing import DONE, JOB, OWNER, START, id_of, read_each, steps
from weblake.errors import StorageRefused
from weblake.loads.submitted_urls import url_key

if TYPE_CHECKING:
    from weblake.dataset.root import Dataset
    from weblake.jobs.ended_jobs import ListedJob

_LOG = logging.getLogger(__name__)
#: Seconds by which the service's clock may be behind ours.
CLOCK_SLACK_S = 60.0
#: After so many seconds a start that got no answer cannot be looked up any more: the activity list goes back 24 hours.
LOOKUP_S = 25 * 3600.0


@dataclass(frozen=True, slots=True)
class _Open:
    """A start without an answer; None where the record that says so cannot be read."""

    since_s: float
    kind: str | None
    first_target: str | None

    def fits(self, kind: str, job: ListedJob) -> bool:
        """Whether nothing speaks against it that it made this job."""
        if self.kind not in (None, kind) or job.created / 1000 < self.since_s - CLOCK_SLACK_S:
            return False
        return not job.target or not self.first_target or url_key(job.target) == url_key(self.first_target)


class LedgerNews:
    """What is on record in one root. One thread at a time.

    Not for decisions about money: what is recorded after `refresh` is not seen.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._ledger: Ledger = dataset.ledger
        #: By the numbers that ids are: names under which jobs with an owner are filed, and when loads landed.
        self._owned: set[int] = set()
        self._landed: dict[int, int] = {}
        self._open: list[_Open] = []
        self._archive_is_read = False
        self._warn: Callable[[str], None] = _LOG.warning
        #: What has been told of records that cannot be read.
        self._told: set[str] = set()

    @property
    def count(self) -> int:
        """How many loads have landed, but for those that were retired before the root was compacted."""
        return len(self._landed)

    def landed_loads(self, after: int = -1) -> Iterator[tuple[str, int]]:
        """Yield the loads that landed later than this, and when: milliseconds since 1970. In no order."""
        return ((id_of(number), at) for number, at in self._landed.items() if at > after)

    def refresh(self, until: float | None = None, *, warn: Callable[[str], None] = _LOG.warning) -> bool:
        """Reads what is new.

        Args:
            until: Monotonic seconds at which reading is broken off; the next call goes on.
            warn: Told of each record that cannot be read, once.

        Returns:
            Whether everything is known now, but for what cannot be read.

        Raises:
            StorageRefused: The storage failed.
        """
        self._warn = warn
        known = steps(self._ledger)
        self._read_archive()
        self._owned |= {number for number, has in known.items() if has & OWNER}
        self._open = []
        done = (number for number, has in known.items() if has & DONE and number not in self._landed)
        unanswered = (number for number, has in known.items() if has & (START | JOB | DONE) == START)
        return self._each(done, self._read_done, until) and self._each(unanswered, self._read_open, until)

    def holds(self, kind: str, job_id: str) -> bool:
        """Whether a job belongs to some load of this root."""
        return int(job_load_id(kind, job_id), 16) in self._owned

    def may_be_ours(self, kind: str, job: ListedJob) -> bool:
        """Whether a load here may have started this job without having heard of it: a start whose answer is still out.

        Such a job is that load's to adopt. Whoever lands it first would have it bought again.
        """
        return any(each.fits(kind, job) for each in self._open)

    def _each(self, numbers: Iterable[int], read: Callable[[str], None], until: float | None) -> bool:
        def in_time(number: int) -> bool:
            if until is not None and time.monotonic() > until:
                return False
            read(id_of(number))
            return True

        return all(read_each(self._ledger, numbers, in_time))

    def _read_archive(self) -> None:
        """Loads that were retired before the root was compacted: whose their jobs are is known by the names alone."""
        if not self._archive_is_read:
            for shard in map(self._ledger.archive.shard, range(self._ledger.archive.count())):
                self._owned |= {int(name[:16], 16) for name in shard if name.endswith(".owner.json")}
            self._archive_is_read = True

    def _read_done(self, load_id: str) -> None:
        try:
            done = self._ledger.done_record(load_id)
        except StorageRefused as error:
            self._tell(error)
            return
        if done is not None:
            self._landed[int(load_id, 16)] = round(read_time(done.at).timestamp() * 1000)

    def _read_open(self, load_id: str) -> None:
        intent: Intent | None = None
        last: Start | None = None
        try:
            intent = self._ledger.intent(load_id)
        except StorageRefused as error:
            self._tell(error)
        try:
            last = self._ledger.last_start(load_id)
        except StorageRefused as error:
            self._tell(error)
            if intent is None:
                return
        if last is not None and last.void:
            return
        if intent is not None:
            found = _Open(intent.created_seconds(), intent.kind, intent.first_target)
        elif last is not None:
            found = _Open(last.at_seconds(), None, last.first_target)
        else:
            return
        if time.time() - found.since_s < LOOKUP_S:
            self._open.append(found)

    def _tell(self, error: StorageRefused) -> None:
        if error.message not in self._told:
            self._told.add(error.message)
            self._warn(f"{error.message} Its load is left out until it can be read.")
