"""List the loads that have an intent and have not landed, with their records and the service's status of their jobs.

Read-only: no job is started, adopted or cancelled, and nothing is written. Only the program that requested a load can
finish it, because only that program knows what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import get_args

from weblake import events
from weblake.api.job_kinds import JOB_KINDS
from weblake.client import Client
from weblake.dataset import layout, ledger_listing, parallel
from weblake.dataset.ledger_listing import DONE, INTENT
from weblake.dataset.records import Intent, Job
from weblake.dataset.root import DOCUMENTS, Dataset, open_dataset
from weblake.dataset.slots import group_of_intent, succeeds
from weblake.errors import FixRequest, GiveUp, JobGone, OutcomeUnknown, StorageRefused, WeblakeError
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.usage_reports import Listing, read_listing
from weblake.loads import lost_starts, starts
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import Endpoint, Task
from weblake.storage import RootPath

#: States of a load in the ledger, in the order of a load's progress.
NOT_STARTED, OPEN, STARTED, PUBLISHED = "not started", "start unanswered", "started", "published"
#: State of a job that the service no longer has; a value of weblake's own.
GONE = "gone"
#: The service's status of a cancelled job.
CANCELLED = "cancelled"
#: Status polls at the same time.
PARALLEL_POLLS = 8


@dataclass(frozen=True, slots=True)
class Orphan:
    """A load that has an intent and has not landed."""

    load_id: str
    #: `batch_scrape`, `crawl`, `scrape` or `parse`.
    kind: str
    #: Time of the intent: ISO 8601, UTC.
    created_at: str
    #: The service that the intent names.
    service: str | None
    #: Number of URLs to send; None if only the service knows.
    submitted: int | None
    first_target: str | None
    #: Path keys of the dataset; None for `load_date`.
    partition: dict[str, str] | None
    #: Slot and run of the orchestrator's task; None for the command line and for Python.
    slot: str | None
    run: str | None
    #: Names of the orchestrator, the graph, the task and the partition; empty if unknown.
    task: tuple[str, ...]
    #: One of NOT_STARTED, OPEN, STARTED, PUBLISHED.
    record: str
    #: Number of recorded start requests, and the time of the last record, just before the request was sent.
    starts: int = 0
    started_at: str | None = None
    #: Whether the service declared that it does not start a second job for the same idempotency key.
    replay: bool = False
    #: Id of the job, if recorded; and whether it was started elsewhere and is only landed here.
    job_id: str | None = None
    elsewhere: bool = False
    #: The key with which a load that was requested with `new` goes on; None for any other load.
    new_key: str | None = None
    #: The service's status of the job, or `gone`; None if it was not requested or not returned.
    state: str | None = None
    #: Jobs of the activity list that a start without a response may have created; None if unknown.
    candidates: tuple[str, ...] | None = None
    #: Why the service's data is not known; empty if it is known or not needed.
    why: str = ""
    #: The number of the load within one run of its task; and whether a later one exists, which a retry continues.
    generation: int = 0
    superseded: bool = False

    @property
    def paid(self) -> bool | None:
        """Whether a job was paid for this load; None if unknown."""
        if self.record == OPEN:
            return True if self.candidates else None
        return self.record in (STARTED, PUBLISHED)

    @property
    def age_s(self) -> float:
        """Seconds since the intent."""
        return max(0.0, time.time() - datetime.fromisoformat(self.created_at).timestamp())

    def to_dict(self) -> dict[str, object]:
        """Return the orphan as a dict that can be written as JSON."""
        return asdict(self) | {"paid": self.paid}


@dataclass(frozen=True, slots=True)
class UnknownJob:
    """A job of the activity list that no record of this root names."""

    job_id: str
    kind: str
    created_at: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A load that has an intent and whose records cannot be read."""

    load_id: str
    #: Which record, and why.
    why: str


@dataclass(frozen=True, slots=True)
class Unlanded:
    """The loads of a root that have not landed."""

    #: Oldest first.
    orphans: tuple[Orphan, ...]
    #: Loads that were downloaded and were not complete: their checked files are kept.
    refused: tuple[str, ...] = ()
    #: Loads that were given up, although the pages that their jobs had scraped can be landed: the job was cancelled, or
    #: a later load of the same task has taken its place. Oldest first.
    cancelled: tuple[Orphan, ...] = ()
    #: Jobs of the last 24 hours that no record of this root names; None if they were not requested.
    unknown_jobs: tuple[UnknownJob, ...] | None = None
    #: The error that ended the requests to the service, or None.
    unasked: WeblakeError | None = None
    #: Loads that have not landed and have an unreadable record, so their state is unknown.
    unreadable: tuple[Unreadable, ...] = ()
    #: The keys with which refused loads that were requested with `new` go on, by load id.
    refused_keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def oldest_s(self) -> float:
        """Age of the oldest orphan in seconds; 0 if there is none."""
        return max((each.age_s for each in self.orphans), default=0.0)


def orphans(
    root: RootPath, *, client: Client | None = None, offline: bool = False, unknown_jobs: bool = False
) -> Unlanded:
    """Return the loads of a root that have an intent and have not landed, with the service's status of their jobs.

    Some of them may be running now. A load whose pages all failed has landed, and so has one whose job was landed by
    another load.

    Args:
        root: The root of the dataset.
        client: The client of the service; by default of the one that WEBLAKE_BASE_URL names, or the embedded one.
        offline: Read the ledger only and send no requests.
        unknown_jobs: Also list the jobs of the last 24 hours that no record of this root names.

    Raises:
        StorageRefused: The root holds no dataset, or the ledger cannot be listed. A single record that cannot be read
            is reported in `unreadable`.
    """
    dataset = open_dataset(root)
    layout.check_holds_dataset(dataset.storage)
    if offline:
        return open_loads(dataset)
    if client is not None:
        return find_open_loads(client, dataset, unknown_jobs=unknown_jobs)
    with Client() as own:
        return find_open_loads(own, dataset, unknown_jobs=unknown_jobs)


def open_loads(dataset: Dataset) -> Unlanded:
    """Return the open loads from the ledger alone; needs no service."""
    known = ledger_listing.steps(dataset.ledger)
    unfinished = [ledger_listing.id_of(each) for each, has in known.items() if has & INTENT and not has & DONE]
    found = [*ledger_listing.read_each(dataset.ledger, unfinished, lambda load_id: _classify(dataset, load_id, known))]
    newest: dict[tuple[str | None, str | None], int] = {}
    for each in found:
        if isinstance(each, Orphan | Intent):
            newest[each.slot, each.run] = max(each.generation, newest.get((each.slot, each.run), 0))
    orphans = [
        replace(each, superseded=each.superseded or each.generation < newest[each.slot, each.run])
        for each in found
        if isinstance(each, Orphan)
    ]
    orphans.sort(key=lambda each: (datetime.fromisoformat(each.created_at), each.load_id))
    return Unlanded(
        orphans=tuple(each for each in orphans if not each.superseded),
        cancelled=tuple(each for each in orphans if each.superseded),
        refused=tuple(sorted(each.load_id for each in found if isinstance(each, Intent))),
        refused_keys={each.load_id: each.new_key for each in found if isinstance(each, Intent) and each.new_key},
        unreadable=tuple(sorted((each for each in found if isinstance(each, Unreadable)), key=attrgetter("load_id"))),
    )


def _classify(dataset: Dataset, load_id: str, known: Mapping[int, int]) -> Orphan | Unreadable | Intent | None:
    """Classify a load without a done record: open, unreadable, refused (its intent), or landed as another (None)."""
    ledger = dataset.ledger
    try:
        intent, job = ledger.intent(load_id), ledger.job(load_id)
        by = ledger.landing_load(job.kind, job.job_id) if job is not None else None
        if intent is None or (by is not None and ledger_listing.has_landed(ledger, known, by)):
            return None
        if dataset.storage.exists(layout.refused_path(DOCUMENTS, load_id)):
            return intent
        return _orphan(dataset, intent, job)
    except StorageRefused as error:
        return Unreadable(load_id, error.message)


def open_loads_of_task(dataset: Dataset, task: Task) -> list[Orphan]:
    """Return the loads of a task, of any run, that have not landed, oldest first; reads the whole ledger."""
    return [each for each in open_loads(dataset).orphans if each.slot == task.slot(0, each.partition).name]


def find_open_loads(client: FlowRunner, dataset: Dataset, *, unknown_jobs: bool = False) -> Unlanded:
    """Return the open loads with the service's data; if the service fails, the ledger's data and the error."""
    known = open_loads(dataset)
    lookup = _ServiceLookup(client, dataset, (*known.orphans, *known.cancelled))
    try:
        found = lookup.all()
        listed = replace(
            known,
            orphans=tuple(each for each in found if each.state != CANCELLED and not each.superseded),
            cancelled=tuple(each for each in found if each.state == CANCELLED or each.superseded),
            unknown_jobs=lookup.unknown_jobs(found) if unknown_jobs else None,
        )
    except WeblakeError as error:
        listed = replace(known, unasked=error)
    client.retry.observe(
        events.OrphansListed(
            root=dataset.url, orphans=len(listed.orphans), oldest_s=listed.oldest_s, refused=len(listed.refused)
        )
    )
    return listed


class _ServiceLookup:
    """Requests the service's data about orphans; reads each activity list once."""

    def __init__(self, client: FlowRunner, dataset: Dataset, known: Sequence[Orphan]) -> None:
        self._client, self._dataset, self._known = client, dataset, known
        self._listings: dict[str, Listing | WeblakeError] = {}

    def all(self) -> tuple[Orphan, ...]:
        """Return each orphan with the service's data; raise the error of a service that cannot be used at all."""
        ours = (each for each in self._known if each.service in (None, self._client.service))
        for kind in sorted({each.kind for each in ours if each.record == OPEN}):
            self._read(kind)
        return tuple(parallel.in_order(self._known, self._with_service_data, threads=PARALLEL_POLLS))

    def unknown_jobs(self, orphans: Sequence[Orphan]) -> tuple[UnknownJob, ...]:
        """Return the listed jobs that no load of this root owns and that none of its open starts may have created."""
        taken = {job for each in orphans for job in each.candidates or ()}
        found: dict[str, UnknownJob] = {}
        for kind in get_args(Endpoint):
            listed = self._read(kind)
            if isinstance(listed, WeblakeError):
                raise listed
            for entry, _ in listed.entries:
                job_id = (entry.id or "").lower()
                if job_id and job_id not in taken and not self._is_owned(entry.endpoint or kind, job_id):
                    found[job_id] = UnknownJob(job_id, entry.endpoint or kind, entry.created_at, entry.target)
        return tuple(sorted(found.values(), key=lambda each: each.created_at or ""))

    def _is_owned(self, kind: str, job_id: str) -> bool:
        try:
            return self._dataset.ledger.owner(kind, job_id) is not None
        except StorageRefused:
            return True  # the owner cannot be read, but the record shows that there is one

    def _read(self, kind: str) -> Listing | WeblakeError:
        if kind not in get_args(Endpoint):
            return OutcomeUnknown("the activity list does not have this kind of call")
        if kind not in self._listings:
            try:
                self._listings[kind] = self._client.run(read_listing(self._client.retry, kind))
            except (FixRequest, GiveUp) as error:  # the service has no such list, or returns an invalid one
                self._listings[kind] = error
        return self._listings[kind]

    def _with_service_data(self, orphan: Orphan) -> Orphan:
        if orphan.record not in (OPEN, STARTED):
            return orphan
        if orphan.service not in (None, self._client.service):
            why = f"not asked; the start went to another one ({orphan.service}, not {self._client.service})"
            return replace(orphan, why=why)
        return self._with_candidates(orphan) if orphan.record == OPEN else self._with_status(orphan)

    def _with_candidates(self, orphan: Orphan) -> Orphan:
        listed = self._read(orphan.kind)
        if isinstance(listed, WeblakeError):
            return replace(orphan, why=listed.message)
        ledger = self._dataset.ledger
        intent, last = ledger.intent(orphan.load_id), ledger.last_start(orphan.load_id)
        assert intent is not None
        assert last is not None
        try:
            return replace(orphan, candidates=tuple(lost_starts.find_candidates(intent, last, listed, ledger)))
        except (OutcomeUnknown, StorageRefused) as error:
            return replace(orphan, why=error.message)

    def _with_status(self, orphan: Orphan) -> Orphan:
        job_id, retry = str(orphan.job_id), self._client.retry
        try:
            if orphan.kind not in JOB_KINDS:
                self._client.run(starts.read_scrape(job_id, retry))
                return replace(orphan, state="completed")
            head = self._client.run(get_status(JobRef(orphan.kind, job_id), retry))
        except JobGone:
            return replace(orphan, state=GONE)
        except (FixRequest, GiveUp) as error:
            return replace(orphan, why=error.message)
        return replace(orphan, state=self._client.redact(str(head.get("status"))).lower()[:40])


def _orphan(dataset: Dataset, intent: Intent, job: Job | None) -> Orphan:
    known = dataset.ledger.starts(intent.load_id)
    if dataset.storage.exists(dataset.path(DOCUMENTS, intent)):
        record = PUBLISHED
    elif job is not None:
        record = STARTED
    else:
        record = OPEN if known and not known[-1].void else NOT_STARTED
    return Orphan(
        load_id=intent.load_id,
        kind=intent.kind,
        created_at=intent.created_at,
        service=(known[-1].service if known else None) or intent.service,
        submitted=intent.submitted,
        first_target=intent.first_target,
        partition=intent.partition,
        slot=intent.slot,
        run=intent.run,
        task=intent.task,
        record=record,
        starts=len(known),
        started_at=known[-1].at if known else None,
        replay=bool(intent.replay),
        job_id=job.job_id if job else None,
        elsewhere=not intent.request_sha256,
        new_key=intent.new_key,
        generation=intent.generation,
        superseded=intent.slot is not None and _has_later_generation(dataset, intent),
    )


def _has_later_generation(dataset: Dataset, intent: Intent) -> bool:
    """Return whether a later load of the same slot has landed, or was about to be published: it replaces this one.

    It may be of another run: the later loads of this run that it has replaced are not in the index any more.
    """
    others = map(dataset.ledger.intent, dataset.slots.members(group_of_intent(intent)))
    return any(other is not None and succeeds(other, intent) for other in others)
