"""From a job that has ended to one checked Parquet file on scratch, and its account.

Memory holds one chunk of the service and one row group, however large the job is. Imports: accounting, document_rows,
errors, models, operations, pages, parquet, receipt, replies, retry, schemas, secrets, steps, waiting, wire.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from weblake import operations, replies, wire
from weblake.accounting import Account, Tally
from weblake.errors import FixRequest, JobGone, MalformedReply
from weblake.models import JobError, JobErrors
from weblake.pages import Walk, reading
from weblake.receipt import Receipt
from weblake.retry import Patience, Retry
from weblake.secrets import one_line
from weblake.steps import Flow, Reply
from weblake.tables import schemas
from weblake.tables.document_rows import DocumentBatches
from weblake.tables.parquet import ParquetFile, Written
from weblake.waiting import JobRef, glance

T = TypeVar("T")

#: The status of a load whose job expired while it was read: what is left of it is never whole.
EXPIRED = "expired"

_ERRORS = {"batch_scrape": operations.get_batch_scrape_errors, "crawl": operations.get_crawl_errors}


class Runs(Protocol):
    """Whatever drives flows: a client."""

    retry: Retry

    @property
    def service(self) -> str:
        """Which service it talks to, as the ledger has it."""

    def run(self, flow: Flow[T]) -> T:
        """Drives a flow to its end."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What every row of a load says of it."""

    load_id: str
    job_id: str
    kind: str
    loaded_at: datetime


@dataclass(frozen=True, slots=True)
class Staged:
    """A load on scratch: its file, closed and checked, and its account."""

    written: Written
    account: Account
    receipt: Receipt
    #: What the service says went wrong with the job, on one line; empty where it says nothing.
    said: str = ""
    #: Why the rest of it cannot be had any more, where the job expired while it was read.
    gone: JobGone | None = None


def stage_job(
    client: Runs,
    identity: Identity,
    tally: Tally,
    scratch: Path,
    *,
    until: float,
    chunk_read: Callable[[int], None] | None = None,
) -> Staged:
    """Reads a job's chunks and errors into a file on scratch.

    Args:
        client: Drives the reads.
        identity: What the rows say.
        tally: Knows what was submitted.
        scratch: A directory of our own.
        until: Monotonic seconds by which it has to be done.
        chunk_read: Called with the documents stored so far.

    Raises:
        JobGone: There is no such job any more, and nothing of it had been read.
        WeblakeError: It cannot be read now.
    """
    job = JobRef(identity.kind, identity.job_id)
    walk = Walk(job, client.retry, until=until)
    rows = _Rows(identity, tally, scratch / "documents.parquet")
    with rows.file:
        try:
            while not walk.ended:
                fresh = rows.add(client.run(walk.step()))
                walk.fresh(fresh)
                if chunk_read is not None:
                    chunk_read(rows.stored)
            errors = client.run(_errors(job, client.retry, until))
        except JobGone as gone:
            if rows.stored and client.run(_has_expired(job, client.retry, until)):
                return rows.close(JobErrors(), {**walk.head, "status": EXPIRED}, gone)
            raise
        return rows.close(errors, walk.head)


def stage_document(identity: Identity, tally: Tally, scratch: Path, raw: bytes) -> Staged:
    """Puts the one document of a scrape or a parsed file on scratch."""
    rows = _Rows(identity, tally, scratch / "documents.parquet")
    with rows.file:
        rows.add([raw])
        return rows.close(JobErrors(), {"status": "completed", "creditsUsed": _credits_of(raw)})


class _Rows:
    """Documents on their way into one file."""

    def __init__(self, identity: Identity, tally: Tally, path: Path) -> None:
        self._identity = identity
        self._tally = tally
        self._batches = DocumentBatches(identity.load_id, identity.job_id, identity.kind, identity.loaded_at)
        self.file = ParquetFile(path, schemas.DOCUMENTS)
        self.stored = 0

    def add(self, raws: Sequence[wire.JsonBytes]) -> int:
        """Adds raw documents and returns how many were new."""
        fresh = 0
        for raw in raws:
            parsed = self._batches.parse(raw)
            if parsed is None:
                self._tally.malformed(1)
                continue
            content = parsed.digest if parsed.scrape_id is None else b""  # the id tells it apart; digests cost
            if self._tally.document(parsed.scrape_id, parsed.source_url, parsed.url, content):
                self._batches.append(parsed)
                fresh += 1
        self.stored += fresh
        if fresh:
            self.file.write(self._batches.flush())
        return fresh

    def close(self, errors: JobErrors, head: Mapping[str, object], gone: JobGone | None = None) -> Staged:
        account = self._tally.close(errors, head)
        credits_used = head.get("creditsUsed")
        receipt = Receipt(
            load_id=self._identity.load_id,
            kind=self._identity.kind,
            job_id=self._identity.job_id,
            status=str(head.get("status")).lower()[:40],
            complete=account.whole and str(head.get("status")).lower() == "completed",
            submitted=account.submitted,
            stored=account.stored,
            failed=account.failed,
            robots_blocked=account.robots_blocked,
            rejected=account.rejected,
            missing=account.missing,
            duplicates=account.duplicates,
            credits_used=_amount(credits_used),
        )
        written = self.file.close(json.dumps(receipt.to_dict(files=False)).encode())
        said = head.get("error")
        return Staged(written, account, receipt, one_line(said) if isinstance(said, str) else "", gone)


def _has_expired(job: JobRef, retry: Retry, until: float) -> Flow[bool]:
    """Whether the job itself is gone, and not one chunk of it on one of several servers."""
    try:
        yield from reading(job, glance(job, retry, Patience(until=until)))
    except JobGone:
        return True
    return False


def _errors(job: JobRef, retry: Retry, until: float) -> Flow[JobErrors]:
    """What `/errors` says; nothing where the service has no such list, which the account then shows."""
    try:
        operation = _ERRORS[job.kind](job.job_id)
        read = partial(_read_errors, operation.name)
        call = retry.exchange(operation, read, Patience(tries=8, cap_s=30.0, until=until))
        return (yield from reading(job, call))
    except FixRequest:
        return JobErrors()
    except JobGone:
        yield from reading(
            job, glance(job, retry, Patience(until=until))
        )  # raises where it is the job itself that has expired meanwhile
        return JobErrors()


def _read_errors(what: str, reply: Reply) -> JobErrors:
    """The list as it came; an entry that cannot be read is a failed page all the same, without a name."""
    value = replies.value_of(reply, what)
    lists = (value.get("errors"), value.get("robotsBlocked")) if isinstance(value, dict) else ()
    if not lists or not all(one is None or isinstance(one, list) for one in lists):
        raise MalformedReply(
            f"{what}: the service did not answer with lists of errors and of blocked pages.",
            hint="Nothing was published: without them nobody can tell which pages are missing.",
        )
    found = JobErrors.decode(value)
    unread = sum(len(one or ()) for one in lists) - len(found.errors) - len(found.robots_blocked)
    return msgspec.structs.replace(found, errors=[*found.errors, *[JobError()] * unread])


def _credits_of(raw: bytes) -> object:
    """What a document says that it cost; None where it does not say."""
    with suppress(MalformedReply, KeyError):
        return wire.loads(wire.split_object(wire.split_object(raw)["metadata"])["creditsUsed"])
    return None


def _amount(value: object) -> float | None:
    """Credits as the service gave them; -1 and the like are no amount."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    return None
