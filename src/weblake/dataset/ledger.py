"""What has been done for each load, step by step, so that any later run goes on from there.

    _weblake/ledger/<load_id>.json               intent: what is to be bought, before anything is
                    <load_id>.start-1.json       a start request is about to be sent
                    <load_id>.start-1.void.json  it surely started nothing, and the next one may be sent
                    <load_id>.owner.json         which load a job belongs to; the name is that of its id alone
                    <load_id>.job.json           the job's id
                    <load_id>.done.json          the receipt: it has landed, and in which file its rows are
                    <load_id>.retired.json       a later load of its slot has taken its place

Each record is created whole and only if absent, and never changed: each step has one winner, and who comes second gets
the winner's record. A record that cannot be read is unknown and stops the load; it is never taken for absent, which
would buy again. No request body or key is kept: headers may hold cookies. Lists of URLs are kept beside the ledger
(sent_lists.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Annotated, TypeVar

import msgspec

from weblake.api.job_kinds import JOB_KINDS
from weblake.compat import read_time
from weblake.dataset.identity import checked_load_id, job_load_id
from weblake.dataset.layout import LEDGER
from weblake.dataset.ledger_archive import LedgerArchive
from weblake.errors import StorageRefused
from weblake.remedies import Remedy
from weblake.storage import Storage

#: The version of every record that is written here.
VERSION = 1
#: Records that are read at a time where many are.
READERS = 16

_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|\+00:00)$"

LoadId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}$")]
#: A time in UTC, ISO 8601, such as 2026-11-21T06:00:00+00:00.
UtcTime = Annotated[str, msgspec.Meta(pattern=_TIME)]
#: Anything but empty.
Text = Annotated[str, msgspec.Meta(min_length=1)]


def new_nonce() -> str:
    """What tells a record of ours from an equal one of another writer."""
    return secrets.token_hex(8)


def utc_now() -> str:
    """The time, as records have it."""
    return datetime.now(timezone.utc).isoformat()


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """What all records have. Fields that a later version adds are ignored."""

    load_id: LoadId
    version: int = msgspec.field(default_factory=lambda: VERSION)
    writer: str = msgspec.field(default_factory=new_nonce)


class Intent(Record, frozen=True, kw_only=True):
    """A load that is to be bought."""

    #: batch_scrape, crawl, scrape or parse.
    kind: Text
    #: The name under which the service's activity list has such jobs.
    endpoint: str
    created_at: UtcTime
    request_sha256: str
    #: The base URL, for people; without credentials.
    service: str | None = None
    submitted: int | None = None
    first_target: str | None = None
    #: The digest of the list of URLs that is to be sent; another run may come to send another one.
    urls: str | None = None
    #: Path keys and values in their order; None for the default, `load_date`.
    partition: dict[str, str] | None = None
    slot: str | None = None
    slot_has_partition: bool = False
    generation: int = 0
    #: The orchestrator's run.
    run: str | None = None
    #: What made it ask: a retry has the same, another request by a person has another.
    occasion: str | None = None
    #: What the orchestrator calls the work (Slot.task); empty where an earlier version recorded it.
    task: tuple[str, ...] = ()
    #: Whether the service declared true replay; None where it was not asked.
    replay: bool | None = None

    def created(self) -> datetime:
        """`created_at`, UTC-aware."""
        return read_time(self.created_at)

    def created_seconds(self) -> float:
        """`created_at` in seconds of the epoch."""
        return self.created().timestamp()

    def age_s(self) -> float:
        """Seconds since it went on record, by this machine's clock; never below zero."""
        return max(0.0, (datetime.now(timezone.utc) - self.created()).total_seconds())


class Start(Record, frozen=True, kw_only=True):
    """A start request that is about to be sent."""

    n: Annotated[int, msgspec.Meta(ge=1)]
    #: The idempotency key.
    key: Text
    at: UtcTime
    #: The digest of the list of URLs that is sent (sent_lists.py); None for a request without a list.
    urls: str | None = None
    #: The digest of the request, and what the activity list would show as its target.
    request_sha256: str | None = None
    first_target: str | None = None
    #: Whether it is on record that it started nothing.
    void: bool = False

    def at_seconds(self) -> float:
        """`at` in seconds of the epoch."""
        return read_time(self.at).timestamp()


class Void(Record, frozen=True, kw_only=True):
    """The evidence that a start did nothing."""

    n: int
    why: str
    at: UtcTime


class Job(Record, frozen=True, kw_only=True):
    """The job that was started, or found."""

    job_id: Text
    kind: Text
    at: UtcTime
    #: URLs that the service refused when it started.
    rejected: tuple[str, ...] = ()
    #: The digest of the list of URLs that it was started with, and that of the request.
    urls: str | None = None
    request_sha256: str | None = None
    #: Whether it was found in the activity list after its start's answer was lost.
    adopted: bool = False

    def age_s(self) -> float:
        """Seconds since it went on record, by this machine's clock; never below zero."""
        return max(0.0, (datetime.now(timezone.utc) - read_time(self.at)).total_seconds())


class Owner(Record, frozen=True, kw_only=True):
    """Which load a job belongs to, or as which it is landed: whoever would take it for another finds this first."""

    job_id: Text
    owner: LoadId
    at: UtcTime


class Done(Record, frozen=True, kw_only=True):
    """A load that has landed."""

    at: UtcTime
    receipt: dict[str, object]
    #: Older loads of its slot whose place it took.
    retired: tuple[LoadId, ...] = ()


class Retired(Record, frozen=True, kw_only=True):
    """A load whose place a later one has taken."""

    by: LoadId
    at: UtcTime


R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=msgspec.Struct)


class Ledger:
    """The records of one root.

    Every method raises StorageRefused where a record is there and cannot be read, or cannot be written.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: The records of the loads that were retired before the root was compacted.
        self.archive = LedgerArchive(storage)

    @property
    def storage(self) -> Storage:
        """The root's storage."""
        return self._storage

    def intent(self, load_id: str) -> Intent | None:
        """The intent of a load, if there is one."""
        return self._read(load_id, "", Intent)

    def begin(self, intent: Intent) -> Intent:
        """Records an intent; returns the one that is on record, ours (same `writer`) or an earlier one."""
        return self._record(intent, "")[0]

    def starts(self, load_id: str) -> list[Start]:
        """The starts of a load, first to last, each with `void` as it is on record."""
        found: list[Start] = []
        while (start := self._read(load_id, f".start-{len(found) + 1}", Start)) is not None:
            void = self._read(load_id, f".start-{start.n}.void", Void) is not None
            found.append(msgspec.structs.replace(start, void=void))
        return found

    def last_start(self, load_id: str) -> Start | None:
        """The newest start of a load."""
        starts = self.starts(load_id)
        return starts[-1] if starts else None

    def record_start(self, start: Start) -> bool:
        """Records that a start is about to be sent. True: send it. False: somebody else is about to send it."""
        if start.n > 1 and self._read(start.load_id, f".start-{start.n - 1}.void", Void) is None:
            raise StorageRefused(
                f"Start {start.n} of load {start.load_id} is not recorded: what became of start {start.n - 1} is open.",
                hint="This is a fault in weblake: please report it. Nothing was sent.",
            )
        return self._record(start, f".start-{start.n}")[1]

    def void_start(self, start: Start, why: str) -> None:
        """Records the evidence that a start did nothing, so that another one may be sent."""
        self._record(Void(load_id=start.load_id, n=start.n, why=why[:500], at=utc_now()), f".start-{start.n}.void")

    def job(self, load_id: str) -> Job | None:
        """The job of a load, if it is on record."""
        return self._read(load_id, ".job", Job)

    def record_job(self, job: Job) -> Job:
        """Records a load's job; returns the one that is on record."""
        return self._record(job, ".job")[0]

    def own(self, kind: str, job_id: str, load_id: str) -> str:
        """Records that a job belongs to a load unless it has an owner; returns the owner."""
        return self._claim(kind, job_id, load_id, ".owner")

    def land_as(self, kind: str, job_id: str, load_id: str) -> str:
        """Records that a job is landed as this load unless it is as another; returns which.

        Only batches and crawls can be landed by anybody who has their ids: of any other kind nothing is recorded.
        """
        return self._claim(kind, job_id, load_id, ".lander") if kind in JOB_KINDS else load_id

    def owner(self, kind: str, job_id: str) -> str | None:
        """The load that a job belongs to; None where that is not on record.

        The fields of this record keep their meaning in later versions, so one of a newer version is read, too: a job
        of a newer worker's load is recognised as such.
        """
        name = _record_name(job_load_id(kind, job_id), ".owner")
        data = self._bytes_of(name)
        if data is None:
            return None
        return self._decoded(name, data, Owner).owner

    def lander(self, kind: str, job_id: str) -> str | None:
        """The load as which a job is landed; None if unclaimed. Kinds as `land_as`."""
        if kind not in JOB_KINDS:
            return None
        found = self._read(job_load_id(kind, job_id), ".lander", Owner)
        return found.owner if found else None

    def _claim(self, kind: str, job_id: str, load_id: str, step: str) -> str:
        filed = job_load_id(kind, job_id)
        return self._record(Owner(load_id=filed, job_id=job_id, owner=load_id, at=utc_now()), step)[0].owner

    def done(self, load_id: str) -> dict[str, object] | None:
        """The receipt of a load that has landed, with `at` and, where it took the place of others, `retired`."""
        found = self.done_record(load_id)
        return _flat(found) if found else None

    def done_record(self, load_id: str) -> Done | None:
        """Return the record that a load has landed, or None."""
        return self._read(load_id, ".done", Done)

    def files(self, load_ids: Sequence[str]) -> set[str]:
        """The files that these loads landed, and which hold their rows unless they were retired."""
        with ThreadPoolExecutor(READERS) as readers:
            found = readers.map(lambda load_id: self._read(load_id, ".done", Done), load_ids)
            listed = [done.receipt.get("files") for done in found if done is not None]
        return {str(file["path"]) for files in listed if isinstance(files, list) for file in files}

    def record_done(
        self, load_id: str, receipt: Mapping[str, object], *, retired: Sequence[str] = (), at: str | None = None
    ) -> dict[str, object]:
        """Records that a load has landed; returns what is on record, as `done` does. `at`: default now."""
        record = Done(load_id=load_id, at=at or utc_now(), receipt=dict(receipt), retired=tuple(retired))
        return _flat(self._record(record, ".done")[0])

    def retired(self, load_id: str) -> Retired | None:
        """Which load has taken the place of this one, if one has."""
        return self._read(load_id, ".retired", Retired)

    def is_archived(self, load_id: str) -> bool:
        """Whether a load had been retired before the root was compacted; nothing of it is left then but its records."""
        return self.archive.read(_record_name(load_id, ".retired")) is not None

    def standing(self, load_id: str) -> str:
        """The load that has this one's place now: itself, or the last of those that took it one after another."""
        seen = {load_id}
        while (retired := self.retired(load_id)) is not None and retired.by not in seen:
            load_id = retired.by
            seen.add(load_id)
        return load_id

    def record_retired(self, load_id: str, by: str) -> Retired:
        """Records that a later load has taken the place of this one; returns what is on record."""
        return self._record(Retired(load_id=load_id, by=by, at=utc_now()), ".retired")[0]

    def record_retirement(self, load_id: str, receipt: Mapping[str, object], *, at: str, by: str, version: int) -> None:
        """Record that another load has landed and been replaced, unless that is on record.

        Records of it that exist are not read: they may be damaged or of a newer version, which must not stop this load.

        Args:
            load_id: The replaced load.
            receipt: Its receipt.
            at: When it landed.
            by: The load that has taken its place.
            version: The version of its own records. A worker of that version may be landing it at this moment, and
                must be able to read what is recorded here.
        """
        version = min(version, VERSION)
        name = _record_name(load_id, ".done")
        if not self._storage.exists(name):
            done = Done(load_id=load_id, version=version, at=at, receipt=dict(receipt))
            self._storage.create(name, msgspec.json.encode(done))
        retired = Retired(load_id=load_id, version=version, by=by, at=utc_now())
        self._storage.create(_record_name(load_id, ".retired"), msgspec.json.encode(retired))

    def _record(self, record: R, step: str) -> tuple[R, bool]:
        """Creates a record; returns the one that is there now and whether it is this one."""
        return self.create_record(_record_name(record.load_id, step), record)

    def create_record(self, name: str, record: R) -> tuple[R, bool]:
        """Create a record under a name, only if absent; return the record of that name and whether it is this one.

        Raises:
            StorageRefused: It could not be written, or the one that is there cannot be read.
        """
        try:
            data = msgspec.json.encode(record)
            # What could not be read back must not be written: it would stop the load for good.
            msgspec.json.decode(data, type=type(record))
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise StorageRefused(
                f"The record {name} was not written: {error}.", hint="Please report it. Nothing was sent."
            ) from error
        # An archived step counts as recorded: a second record of it must not be created.
        if self.archive.read(name) is None and self._storage.create(name, data):
            return record, True
        found = self.read_record(name, record.load_id, type(record))
        if found is None:
            raise self._unknown(name, "it vanished after it was found")
        return found, False

    def _read(self, load_id: str, step: str, kind: type[R]) -> R | None:
        return self.read_record(_record_name(load_id, step), load_id, kind)

    def read_record(self, name: str, load_id: str, kind: type[R]) -> R | None:
        """Return the record of this name, or None where there is none.

        Raises:
            StorageRefused: It is damaged, of a newer version, or of another load than `load_id`.
        """
        data = self._bytes_of(name)
        return None if data is None else self.decode_record(name, data, load_id, kind)

    def decode_record(self, name: str, data: bytes, load_id: str, kind: type[R]) -> R:
        """Return the record of these bytes; raises as `read_record`."""
        version = self._decoded(name, data, _Versioned).version
        if not 1 <= version <= VERSION:
            raise self._unknown(name, f"it has version {version}, which this weblake does not know")
        record = self._decoded(name, data, kind)
        if record.load_id != load_id:
            raise self._unknown(name, "it belongs to another load")
        return record

    def _decoded(self, name: str, data: bytes, kind: type[S]) -> S:
        try:
            found = msgspec.json.decode(data, type=kind)
            for stamp in ("at", "created_at"):
                read_time(getattr(found, stamp, "2026-01-01"))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._unknown(name, "it is damaged") from error
        return found

    def _bytes_of(self, name: str) -> bytes | None:
        data = self._storage.read(name)
        return self.archive.read(name) if data is None else data

    def _unknown(self, name: str, why: str) -> StorageRefused:
        return StorageRefused(
            f"The record {name} of {self._storage.url} cannot be read: {why}.",
            hint=Remedy(
                "What it says may have been paid for. Restore it from a backup or upgrade weblake; "
                "only if it is certain that nothing was started, delete it, or {start_afresh}."
            ),
        )


class _Versioned(msgspec.Struct):
    version: int


def _record_name(load_id: str, step: str) -> str:
    return f"{LEDGER}/{checked_load_id(load_id)}{step}.json"


def _flat(done: Done) -> dict[str, object]:
    return {**done.receipt, "at": done.at, **({"retired": list(done.retired)} if done.retired else {})}
