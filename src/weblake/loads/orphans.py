"""What was meant to land and has not: for each such load what is on record, and what the service knows of its job.

A look and nothing more: nothing is started, adopted, cancelled or written. Whoever meant the load finishes it, for only
that knows what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import get_args

from weblake.api.job_kinds import JOB_KINDS
from weblake.client import Client
from weblake.compat import read_time
from weblake.dataset import layout, ledger_listing
from weblake.dataset.ledger import Intent, Job
from weblake.dataset.ledger_listing import DONE, INTENT
from weblake.dataset.root import open_dataset
from weblake.errors import FixRequest, GiveUp, JobGone, OutcomeUnknown, StorageRefused, WeblakeError
from weblake.jobs.polling import JobRef, get_status
from weblake.loads import lost_starts, starts
from weblake.loads.download import FlowRunner
from weblake.loads.load_request import Endpoint
from weblake.loads.lost_starts import Listing
from weblake.loads.publishing import DOCUMENTS, Dataset
from weblake.storage import RootPath

#: What is on record of a load, in the order in which it comes about.
NOT_STARTED, OPEN, STARTED, PUBLISHED = "not started", "start unanswered", "started", "published"
#: Our own word for a job that the service does not have any more.
GONE = "gone"
#: The service's word for a job that somebody has cancelled.
CANCELLED = "cancelled"
#: Jobs that are asked after at the same time.
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Orphan:
    """One load that was meant and has not landed."""

    load_id: str
    #: batch_scrape, crawl, scrape or parse.
    kind: str
    #: When it was first meant: ISO 8601, UTC.
    created_at: str
    #: The service it was meant for.
    service: str | None
    #: URLs that were to be sent; None where only the service knows.
    submitted: int | None
    first_target: str | None
    #: Path keys of the dataset; None for `load_date`.
    partition: dict[str, str] | None
    #: The slot and the run of the orchestrator that asked; None for the command line and for Python.
    slot: str | None
    run: str | None
    #: What the orchestrator calls the work: its own name, then those of graph, task and partition; empty if unknown.
    task: tuple[str, ...]
    #: One of NOT_STARTED, OPEN, STARTED, PUBLISHED.
    record: str
    #: Start requests on record, and when the last one was about to be sent.
    starts: int = 0
    started_at: str | None = None
    #: Whether the service declared that the same key is no second start.
    replay: bool = False
    #: The job, where its id is on record, and whether it was started elsewhere and only to be landed here.
    job_id: str | None = None
    elsewhere: bool = False
    #: The service's word for how the job is doing, or `gone`; None where it was not asked or did not say.
    state: str | None = None
    #: Jobs of the activity list that the unanswered start may have made; None where that could not be found out.
    candidates: tuple[str, ...] | None = None
    #: Why the service could not tell; empty where it could, or need not.
    why: str = ""

    @property
    def paid(self) -> bool | None:
        """Whether a job was bought for it; None where nobody knows."""
        if self.record == OPEN:
            return True if self.candidates else None
        return self.record in (STARTED, PUBLISHED)

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return asdict(self) | {"paid": self.paid}


@dataclass(frozen=True, slots=True)
class UnknownJob:
    """A job of the activity list that is in no record of this root."""

    job_id: str
    kind: str
    created_at: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One load that was meant, and whose records cannot be read."""

    load_id: str
    #: Which record, and why.
    why: str


@dataclass(frozen=True, slots=True)
class Unlanded:
    """What a look at a root found."""

    #: Oldest first.
    orphans: tuple[Orphan, ...]
    #: Loads that were read to their end and did not add up: their checked files are kept.
    refused: tuple[str, ...] = ()
    #: Loads whose jobs somebody has cancelled: given up, though what they had scraped can be landed. Oldest first.
    cancelled: tuple[Orphan, ...] = ()
    #: Jobs of the last 24 hours that are in no record of this root; None where they were not asked for.
    strangers: tuple[UnknownJob, ...] | None = None
    #: Why the service was asked nothing more, if it was not.
    unasked: WeblakeError | None = None
    #: Loads that have not landed and of which a record cannot be read: whether they are open is not known.
    unreadable: tuple[Unreadable, ...] = ()


def orphans(
    root: RootPath, *, client: Client | None = None, offline: bool = False, strangers: bool = False
) -> Unlanded:
    """Lists the loads of a root that were meant and have not landed, with what the service knows of their jobs.

    Some of them may be under way at this moment. A load whose pages all failed has landed, and so has one whose job
    another load has landed.

    Args:
        root: The dataset.
        client: The service; by default the one that WEBLAKE_BASE_URL names, or the embedded one.
        offline: Goes by the ledger alone.
        strangers: Also lists jobs of the last 24 hours that are in no record of this root.

    Raises:
        StorageRefused: The root holds no dataset, or the ledger cannot be listed. A single record that cannot be read
            is in `unreadable`.
    """
    dataset = open_dataset(root)
    layout.check_holds_dataset(dataset.storage)
    if offline:
        return open_loads(dataset)
    if client is not None:
        return find_open_loads(client, dataset, strangers=strangers)
    with Client() as own:
        return find_open_loads(own, dataset, strangers=strangers)


def open_loads(dataset: Dataset) -> Unlanded:
    """The same from the ledger alone, which a reader may look at whatever else is down."""
    known = ledger_listing.steps(dataset.ledger)
    begun = [ledger_listing.id_of(each) for each, has in known.items() if has & INTENT and not has & DONE]
    found = [*ledger_listing.read_each(dataset.ledger, begun, lambda load_id: _found(dataset, load_id, known))]
    orphans = (each for each in found if isinstance(each, Orphan))
    return Unlanded(
        orphans=tuple(sorted(orphans, key=lambda each: (read_time(each.created_at), each.load_id))),
        refused=tuple(sorted(each for each in found if isinstance(each, str))),
        unreadable=tuple(sorted((each for each in found if isinstance(each, Unreadable)), key=attrgetter("load_id"))),
    )


def _found(dataset: Dataset, load_id: str, known: Mapping[int, int]) -> Orphan | Unreadable | str | None:
    """What a load without a done record is: open, unreadable, refused (its id), or landed as another one (None)."""
    ledger = dataset.ledger
    try:
        intent, job = ledger.intent(load_id), ledger.job(load_id)
        by = ledger.lander(job.kind, job.job_id) if job is not None else None
        if intent is None or (by is not None and ledger_listing.has_landed(ledger, known, by)):
            return None
        if dataset.storage.exists(layout.refused_path(DOCUMENTS, load_id)):
            return load_id
        return _orphan(dataset, intent, job)
    except StorageRefused as error:
        return Unreadable(load_id, error.message)


def open_loads_of_slot(dataset: Dataset, slot: str) -> list[Orphan]:
    """Return the loads of one slot that were meant and have not landed, from the ledger alone; reads all of it."""
    return [orphan for orphan in open_loads(dataset).orphans if orphan.slot == slot]


def find_open_loads(client: FlowRunner, dataset: Dataset, *, strangers: bool = False) -> Unlanded:
    """The same with what the service knows; of one that cannot be asked, the ledger's part and why."""
    known = open_loads(dataset)
    lookup = _ServiceLookup(client, dataset, known.orphans)
    try:
        found = lookup.all()
        return replace(
            known,
            orphans=tuple(each for each in found if each.state != CANCELLED),
            cancelled=tuple(each for each in found if each.state == CANCELLED),
            strangers=lookup.strangers(found) if strangers else None,
        )
    except WeblakeError as error:
        return replace(known, unasked=error)


class _ServiceLookup:
    """One look at the service: each activity list is read once."""

    def __init__(self, client: FlowRunner, dataset: Dataset, known: Sequence[Orphan]) -> None:
        self._client, self._dataset, self._known = client, dataset, known
        self._listings: dict[str, Listing | WeblakeError] = {}

    def all(self) -> tuple[Orphan, ...]:
        """Each with what the service says. Raises what kept the service from saying anything about any of them."""
        for kind in sorted({each.kind for each in self._ours() if each.record == OPEN}):
            self._read(kind)
        with ThreadPoolExecutor(AT_ONCE) as asking:
            return tuple(asking.map(self._asked, self._known))

    def strangers(self, orphans: Sequence[Orphan]) -> tuple[UnknownJob, ...]:
        """Jobs of the activity lists that no load here has, and none here may have started."""
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
            return True  # whose it is cannot be read, but it is some load's

    def _ours(self) -> list[Orphan]:
        return [each for each in self._known if each.service in (None, self._client.service)]

    def _read(self, kind: str) -> Listing | WeblakeError:
        endpoint = next((each for each in get_args(Endpoint) if each == kind), None)
        if endpoint is None:
            return OutcomeUnknown("the activity list does not have this kind of call")
        if kind not in self._listings:
            try:
                self._listings[kind] = self._client.run(lost_starts.listing(endpoint, self._client.retry))
            except (FixRequest, GiveUp) as error:  # this service has no such list, or a false one
                self._listings[kind] = error
        return self._listings[kind]

    def _asked(self, orphan: Orphan) -> Orphan:
        if orphan.record not in (OPEN, STARTED):
            return orphan
        if orphan.service not in (None, self._client.service):
            return replace(orphan, why=f"it was started at {orphan.service}, and this is {self._client.service}")
        return self._looked_up(orphan) if orphan.record == OPEN else self._polled(orphan)

    def _looked_up(self, orphan: Orphan) -> Orphan:
        listed = self._read(orphan.kind)
        if isinstance(listed, WeblakeError):
            return replace(orphan, why=listed.message)
        intent = self._dataset.ledger.intent(orphan.load_id)
        assert intent is not None
        try:
            return replace(orphan, candidates=tuple(lost_starts.candidates(intent, listed, self._dataset.ledger)))
        except (OutcomeUnknown, StorageRefused) as error:
            return replace(orphan, why=error.message)

    def _polled(self, orphan: Orphan) -> Orphan:
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
        return replace(orphan, state=str(head.get("status")).lower()[:40])


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
        service=intent.service,
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
    )
