"""Incremental reads of a ledger for a watcher: which loads have landed, and which jobs belong to loads.

Each refresh lists the ledger once and reads new records only, because a record never changes. A record that cannot be
read is logged and left out until it can be read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weblake.compat import read_time
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Ledger
from weblake.dataset.ledger_listing import DONE, JOB, OWNER, START, id_of, read_each, steps
from weblake.dataset.records import Intent, Start
from weblake.errors import StorageRefused
from weblake.loads.submitted_urls import url_key

if TYPE_CHECKING:
    from weblake.dataset.root import Dataset
    from weblake.jobs.ended_jobs import ListedJob

_LOG = logging.getLogger(__name__)
#: Seconds that the service's clock may be behind the local clock.
CLOCK_SLACK_S = 60.0
#: Seconds after which a start without a response cannot be looked up: the activity list goes back 24 hours.
LOOKUP_S = 25 * 3600.0


@dataclass(frozen=True, slots=True)
class _Open:
    """A start request without a response; a field is None if its record cannot be read."""

    since_s: float
    kind: str | None
    first_target: str | None

    def fits(self, kind: str, job: ListedJob) -> bool:
        """Return whether this start may have created the job."""
        if self.kind not in (None, kind) or job.created / 1000 < self.since_s - CLOCK_SLACK_S:
            return False
        return not job.target or not self.first_target or url_key(job.target) == url_key(self.first_target)


class LedgerNews:
    """A cached view of the ledger of one root. Not thread-safe.

    Do not use it to decide whether to start a paid job: records that are written after `refresh` are missing.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._ledger: Ledger = dataset.ledger
        #: Ids as integers: of jobs with an owner; and of landed loads, with the time of landing in ms since 1970.
        self._owned: set[int] = set()
        self._landed: dict[int, int] = {}
        self._open: list[_Open] = []
        self._archive_is_read = False
        self._warn: Callable[[str], None] = _LOG.warning
        #: Messages about unreadable records that have been logged.
        self._told: set[str] = set()

    @property
    def count(self) -> int:
        """Number of landed loads, without those that were retired before the root was compacted."""
        return len(self._landed)

    def landed_loads(self, after: int = -1) -> Iterator[tuple[str, int]]:
        """Return the loads that landed after `after`, as pairs of id and time in ms since 1970. In no order."""
        return ((id_of(number), at) for number, at in self._landed.items() if at > after)

    def refresh(self, until: float | None = None, *, warn: Callable[[str], None] = _LOG.warning) -> bool:
        """Read the new records.

        Args:
            until: Deadline in monotonic seconds; the next call continues from there.
            warn: Called once with a message for each record that cannot be read.

        Returns:
            Whether all records have been read, except for those that cannot be read.

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
        """Return whether a job belongs to a load of this root."""
        return int(job_load_id(kind, job_id), 16) in self._owned

    def may_be_ours(self, kind: str, job: ListedJob) -> bool:
        """Return whether a start of this root that has no response yet may have created this job.

        Only that load may adopt such a job. If another load lands the job first, the job is paid a second time.
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
        """Read the owners of jobs in the ledger's archive, from the names of the records alone."""
        if not self._archive_is_read:
            for shard in map(self._ledger.archive.shard, range(self._ledger.archive.count())):
                self._owned |= {int(name[:16], 16) for name in shard if name.endswith(".owner.json")}
            self._archive_is_read = True

    def _read_done(self, load_id: str) -> None:
        try:
            done = self._ledger.done(load_id)
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
