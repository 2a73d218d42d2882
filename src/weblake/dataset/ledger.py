"""The ledger: one record for each completed step of a load, from which any later run continues.

    _weblake/ledger/<load_id>.json               intent: the request, recorded before anything is bought
                    <load_id>.start-1.json       a start request is about to be sent
                    <load_id>.start-1.void.json  the start certainly started nothing; the next one may be sent
                    <load_id>.owner.json         the load that a job belongs to; filed under an id derived from the job
                    <load_id>.lander.json        the load as which a job is landed; filed likewise
                    <load_id>.job.json           the job's id
                    <load_id>.stopped.json       the job has passed a limit of the load, and is about to be cancelled
                    <load_id>.done.json          the receipt: the load has landed, in the files that it names
                    <load_id>.returned.json      the orchestrator's task has returned the load
                    <load_id>.retired.json       a later load of the slot has replaced this one

Each record is created atomically, only if absent, and never changed. Of two writers of one step the first wins, and the
second receives the first one's record. An unreadable record stops the load: treating it as absent would buy again. No
request body or API key is stored, because headers may hold cookies. Lists of URLs are stored beside the ledger
(loads/sent_lists.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from weblake.api.job_kinds import JOB_KINDS
from weblake.dataset.identity import checked_load_id, job_load_id
from weblake.dataset.layout import LEDGER
from weblake.dataset.records import (
    VERSION,
    Done,
    Intent,
    Job,
    LimitReached,
    Owner,
    Record,
    Retired,
    Returned,
    StartAttempt,
    Void,
    utc_now,
)
from weblake.errors import Remedy, StorageRefused
from weblake.storage import Storage

#: Maximum number of loads that an error names.
_MAX_NAMED = 5

R = TypeVar("R", bound=Record)
S = TypeVar("S", bound=msgspec.Struct)


class Ledger:
    """Reads and creates the records of one root.

    Every method raises StorageRefused if an existing record cannot be read, or a record cannot be written.
    """

    def __init__(self, storage: Storage) -> None:
        #: The storage of the root.
        self.storage = storage

    def intent(self, load_id: str) -> Intent | None:
        """Return the intent of a load, or None."""
        return self._read(load_id, "", Intent)

    def record_intent(self, intent: Intent) -> Intent:
        """Record an intent and return the recorded one: this one (same `writer`) or an earlier one."""
        return self._record(intent, "")[0]

    def starts(self, load_id: str) -> list[StartAttempt]:
        """Return the starts of a load, oldest first, with `void` set from the records."""
        found: list[StartAttempt] = []
        while (start := self._read(load_id, f".start-{len(found) + 1}", StartAttempt)) is not None:
            void = self._read(load_id, f".start-{start.n}.void", Void) is not None
            found.append(msgspec.structs.replace(start, void=void))
        return found

    def last_start(self, load_id: str) -> StartAttempt | None:
        """Return the newest start of a load, or None."""
        starts = self.starts(load_id)
        return starts[-1] if starts else None

    def service_of(self, intent: Intent) -> str | None:
        """Return the service that the newest start of a load was sent to: after a refusal it may be another one."""
        last = self.last_start(intent.load_id)
        return intent.service if last is None or last.service is None else last.service

    def record_start(self, start: StartAttempt) -> bool:
        """Record that a start is about to be sent; return whether the caller is to send it and no other process is."""
        if start.n > 1 and self._read(start.load_id, f".start-{start.n - 1}.void", Void) is None:
            raise StorageRefused(
                f"StartAttempt {start.n} of load {start.load_id} is not recorded: "
                f"the outcome of start {start.n - 1} is unknown.",
                hint="This is a fault in weblake: please report it. Nothing was sent.",
            )
        return self._record(start, f".start-{start.n}")[1]

    def void_start(self, start: StartAttempt, why: str) -> None:
        """Record the evidence that a start started nothing, so that another one may be sent."""
        self._record(Void(load_id=start.load_id, n=start.n, why=why[:500], at=utc_now()), f".start-{start.n}.void")

    def job(self, load_id: str) -> Job | None:
        """Return the recorded job of a load, or None."""
        return self._read(load_id, ".job", Job)

    def record_job(self, job: Job) -> Job:
        """Record the job of a load and return the recorded one."""
        return self._record(job, ".job")[0]

    def claim_job(self, kind: str, job_id: str, load_id: str) -> str:
        """Record that a job belongs to a load unless it has an owner; return the id of the owner."""
        return self._claim(kind, job_id, load_id, ".owner")

    def claim_landing(self, kind: str, job_id: str, load_id: str) -> str:
        """Record that a job is landed as this load unless another load is recorded; return the id of the recorded load.

        Only batches and crawls can be landed by job id; for any other kind nothing is recorded.
        """
        return self._claim(kind, job_id, load_id, ".lander") if kind in JOB_KINDS else load_id

    def owner(self, kind: str, job_id: str) -> str | None:
        """Return the id of the load that a job belongs to, or None if none is recorded.

        The fields of this record keep their meaning in later versions, so a record of a newer version is also read: a
        job that belongs to a load of a newer worker is recognised as such.
        """
        name = _record_name(job_load_id(kind, job_id), ".owner")
        data = self.storage.read(name)
        if data is None:
            return None
        return self._decoded(name, data, Owner).owner

    def landing_load(self, kind: str, job_id: str) -> str | None:
        """Return the id of the load as which a job is landed, or None if unclaimed. Kinds as in `claim_landing`."""
        if kind not in JOB_KINDS:
            return None
        found = self._read(job_load_id(kind, job_id), ".lander", Owner)
        return found.owner if found else None

    def _claim(self, kind: str, job_id: str, load_id: str, step: str) -> str:
        filed = job_load_id(kind, job_id)
        return self._record(Owner(load_id=filed, job_id=job_id, owner=load_id, at=utc_now()), step)[0].owner

    def done(self, load_id: str) -> Done | None:
        """Return the record that a load has landed, or None."""
        return self._read(load_id, ".done", Done)

    def record_done(
        self,
        load_id: str,
        receipt: Mapping[str, object],
        *,
        retired: Sequence[str] = (),
        at: str | None = None,
        version: int | None = None,
    ) -> Done:
        """Record that a load has landed and return the recorded record.

        Args:
            load_id: The load.
            receipt: Its receipt.
            retired: The loads that it replaces.
            at: When it landed; default: now.
            version: The version of its own records; default: this one. The next load of a slot may record this of a
                load whose run was of an older version and has died, or is only slow and then reads the record.
        """
        record = Done(
            load_id=load_id,
            version=version or VERSION,
            at=at or utc_now(),
            receipt=dict(receipt),
            retired=tuple(retired),
        )
        return self._record(record, ".done")[0]

    def stopped(self, load_id: str) -> LimitReached | None:
        """Return the record of the limit at which the job of a load was cancelled, or None."""
        return self._read(load_id, ".stopped", LimitReached)

    def record_stopped(self, load_id: str, *, used: float = 0.0, timeout_s: float | None = None) -> None:
        """Record that the job of a load has passed a limit: its credits in `used`, or a time limit."""
        self._record(LimitReached(load_id=load_id, used=used, timeout_s=timeout_s, at=utc_now()), ".stopped")

    def returned(self, load_id: str) -> Returned | None:
        """Return the record that a task has returned a load to its orchestrator, or None."""
        return self._read(load_id, ".returned", Returned)

    def record_returned(self, load_id: str, occasion: str) -> None:
        """Record that a task has returned a load to its orchestrator, and why it ran (`Task.occasion`)."""
        self._record(Returned(load_id=load_id, occasion=occasion, at=utc_now()), ".returned")

    def retired(self, load_id: str) -> Retired | None:
        """Return the record that a later load has replaced this one, or None."""
        return self._read(load_id, ".retired", Retired)

    def current_load(self, load_id: str) -> str:
        """Return the id of the load that is current for this one: itself, or the last in its chain of replacements."""
        seen = {load_id}
        while (retired := self.retired(load_id)) is not None and retired.by not in seen:
            load_id = retired.by
            seen.add(load_id)
        return load_id

    def record_retired(self, load_id: str, by: str, *, version: int | None = None) -> Retired:
        """Record that a later load has replaced this one, `version` as of `record_done`; return the recorded record."""
        return self._record(Retired(load_id=load_id, version=version or VERSION, by=by, at=utc_now()), ".retired")[0]

    def record_retirement(self, load_id: str, receipt: Mapping[str, object], *, at: str, by: str, version: int) -> None:
        """Record that another load has landed and has been replaced, unless that is recorded already.

        Existing records of that load are not read: they may be damaged or of a newer version, which must not stop the
        load that replaces it.

        Args:
            load_id: The replaced load.
            receipt: The receipt of the replaced load.
            at: When it landed.
            by: The load that has replaced it.
            version: The version of its own records. A worker of that version may be landing it at this moment and
                must be able to read the records that this method creates.
        """
        version = min(version, VERSION)
        name = _record_name(load_id, ".done")
        if not self.storage.exists(name):
            done = Done(load_id=load_id, version=version, at=at, receipt=dict(receipt))
            self.storage.create(name, msgspec.json.encode(done))
        retired = Retired(load_id=load_id, version=version, by=by, at=utc_now())
        self.storage.create(_record_name(load_id, ".retired"), msgspec.json.encode(retired))

    def _record(self, record: R, step: str) -> tuple[R, bool]:
        """Create a record; return the recorded one and whether it is this one."""
        return self.create_record(_record_name(record.load_id, step), record)

    def create_record(self, name: str, record: R) -> tuple[R, bool]:
        """Create a record under a name, only if absent; return the record of that name and whether it is this one.

        Raises:
            StorageRefused: The record could not be written, or the existing one cannot be read.
        """
        try:
            data = msgspec.json.encode(record)
            # A record that cannot be read back must not be written: it would stop the load permanently.
            msgspec.json.decode(data, type=type(record))
        except (msgspec.MsgspecError, ValueError, TypeError) as error:
            raise StorageRefused(
                f"The record {name} was not written: {error}.",
                hint="This is a fault in weblake: please report it. Nothing was sent.",
            ) from error
        if self.storage.create(name, data):
            return record, True
        found = self.read_record(name, record.load_id, type(record))
        if found is None:
            raise self._unknown(name, "it vanished after it was found")
        return found, False

    def _read(self, load_id: str, step: str, kind: type[R]) -> R | None:
        return self.read_record(_record_name(load_id, step), load_id, kind)

    def read_record(self, name: str, load_id: str, kind: type[R]) -> R | None:
        """Return the record of this name, or None if there is none.

        Raises:
            StorageRefused: The record is damaged, of a newer version, or of another load than `load_id`.
        """
        data = self.storage.read(name)
        if data is None:
            return None
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
                datetime.fromisoformat(getattr(found, stamp, "2026-01-01"))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._unknown(name, "it is damaged") from error
        return found

    def _unknown(self, name: str, why: str) -> StorageRefused:
        return StorageRefused(
            f"The record {name} of {self.storage.url} cannot be read: {why}.",
            hint=Remedy(
                "What it says may have been paid for. Restore it from a backup or upgrade weblake; "
                "only if it is certain that nothing was started, delete it, or {start_afresh}."
            ),
        )


def files_gone(ledger: Ledger, gone: Mapping[str, str]) -> StorageRefused:
    """Return the error that files of landed loads do not exist; `gone` has the load id of each path."""
    of = sorted({path.partition("/")[0] for path in gone})
    ids = sorted(set(gone.values()))
    named = ", ".join(ids[:_MAX_NAMED]) + (f" and {len(ids) - _MAX_NAMED:,} more" if len(ids) > _MAX_NAMED else "")
    return StorageRefused(
        f"Files of landed loads are gone from {' and '.join(of)} of {ledger.storage.url}: another program has deleted "
        f"them. Loads: {named}.",
        hint=Remedy("Restore them, read the rows in a table of the dataset, or {start_afresh}, which is paid."),
    )


class _Versioned(msgspec.Struct):
    version: int


def _record_name(load_id: str, step: str) -> str:
    return f"{LEDGER}/{checked_load_id(load_id)}{step}.json"
