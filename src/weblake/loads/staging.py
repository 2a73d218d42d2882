"""From a job that has ended to one checked Parquet file on scratch, and its account.

Memory holds a few chunks and row groups, however large the job is: two threads make row groups side by side, while the
next chunk is on its way.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from weblake.api import response_json
from weblake.api.models import JobErrors
from weblake.background import run_in_two_threads
from weblake.credentials import one_line
from weblake.errors import JobGone, MalformedReply
from weblake.jobs.polling import JobRef
from weblake.loads.accounting import Account, Reconciler
from weblake.loads.download import Download, FlowRunner
from weblake.receipt import Receipt
from weblake.steps import Reply
from weblake.tables import schemas
from weblake.tables.document_rows import DocumentBatches
from weblake.tables.documents import Parsed
from weblake.tables.parquet import GROUP_BYTES, ParquetFile, Written
from weblake.tables.row_groups import Gathering, RowGroup, row_group

#: The status of a load whose job expired while it was read: what is left of it is never whole.
EXPIRED = "expired"
#: Documents become a batch by so many JSON bytes, and so many batches a row group.
BATCH_BYTES, BATCHES_A_GROUP = 4 << 20, 2
#: The first row groups are of one batch, and those of the last chunk, so that no thread waits for its first one, nor at
#: the end for the other's last one.
FIRST_GROUPS = 2
#: Whoever watches sees it move after so many seconds.
SEEN_S = 1.0


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


#: Row groups, and the documents taken by then.
_Made: TypeAlias = tuple[Sequence[RowGroup], int]


def stage_job(
    client: FlowRunner,
    identity: Identity,
    reconciler: Reconciler,
    scratch: Path,
    *,
    until: float,
    on_chunk: Callable[[int], None] | None = None,
    first: Reply | None = None,
) -> Staged:
    """Reads a job's chunks and errors into a file on scratch.

    Args:
        client: Drives the reads.
        identity: What the rows say.
        tally: Knows what was submitted.
        scratch: A directory of our own.
        until: Monotonic seconds by which it has to be done.
        on_chunk: Called with the documents read so far.
        first: The reply with the first chunk, where somebody has it already.

    Raises:
        JobGone: There is no such job any more, and nothing of it had been read.
        WeblakeError: It cannot be read now.
    """
    download = Download(client, JobRef(identity.kind, identity.job_id), until=until, first=first)
    del first  # it is held no longer than its chunk
    rows = _Rows(identity, reconciler, scratch / "documents.parquet")
    with rows.file:
        try:
            for made, taken in run_in_two_threads(_row_groups(rows, download)):
                rows.write(made)
                if on_chunk is not None:
                    on_chunk(taken)
            errors = download.errors()
        except JobGone as gone:
            if rows.file.rows and download.has_expired():
                return rows.close(JobErrors(), {**download.pager.head, "status": EXPIRED}, gone)
            raise
        return rows.close(errors, download.pager.head)


def _row_groups(rows: _Rows, download: Download) -> Iterator[Callable[[], _Made]]:
    """What makes row groups of one size of what is new in the chunks: small ones are gathered, large ones divided."""
    seen = time.monotonic()
    try:
        for chunk in download.chunks():
            before = rows.taken
            if download.pager.ended:
                rows.file.settle()
            for document in rows.parse_all(chunk):
                rows.take(document)
                if rows.full(last=download.pager.ended):
                    yield rows.flush()
                    seen = time.monotonic()
            download.pager.record_new(rows.taken - before)
            if time.monotonic() - seen >= SEEN_S:
                yield partial(_made, [], rows.taken)
                seen = time.monotonic()
    except JobGone:
        yield rows.flush()  # what had been read of it may be all that is left
        raise
    yield rows.flush()


def stage_document(identity: Identity, reconciler: Reconciler, scratch: Path, raw: bytes) -> Staged:
    """Puts the one document of a scrape or a parsed file on scratch."""
    rows = _Rows(identity, reconciler, scratch / "documents.parquet")
    with rows.file:
        rows.take(rows.parse(raw))
        rows.write(rows.flush()()[0])
        return rows.close(JobErrors(), {"status": "completed", "creditsUsed": _credits_of(raw)})


class _Rows:
    """Documents on their way into one file."""

    def __init__(self, identity: Identity, reconciler: Reconciler, path: Path) -> None:
        self._identity = identity
        self._reconciler = reconciler
        self._batches = DocumentBatches(identity.load_id, identity.job_id, identity.kind, identity.loaded_at)
        self.parse, self.parse_all = self._batches.parse, self._batches.parse_all
        #: What gives batches that belong to the next row group.
        self._ready: list[Callable[[], pa.RecordBatch]] = []
        #: Row groups so far.
        self._groups = 0
        self.file = ParquetFile(path, schemas.DOCUMENTS)

    def take(self, parsed: Parsed | None) -> None:
        """Takes a document into the next batch, if it is one, and new."""
        if parsed is None:
            self._reconciler.malformed(1)
            return
        content = parsed.digest if parsed.scrape_id is None else b""  # the id tells it apart; digests cost
        if self._reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, content):
            self._batches.append(parsed)
            if self._batches.pending_bytes >= BATCH_BYTES:
                self._ready.append(self._batches.flush())

    @property
    def taken(self) -> int:
        """The documents taken so far."""
        return self._batches.position

    def full(self, *, last: bool) -> bool:
        """Whether there are enough of them for a row group."""
        return len(self._ready) >= (1 if last or self._groups < FIRST_GROUPS else BATCHES_A_GROUP)

    def flush(self) -> Callable[[], _Made]:
        """What makes row groups of the documents taken since the last call, in any thread."""
        ready, self._ready = self._ready, []
        self._groups += 1
        if self._batches.pending_bytes:
            ready.append(self._batches.flush())
        return partial(_made, ready, self.taken)

    def write(self, groups: Iterable[RowGroup]) -> None:
        """Adds row groups to the file."""
        for group in groups:
            self.file.append(group)

    def close(self, errors: JobErrors, head: Mapping[str, object], gone: JobGone | None = None) -> Staged:
        account = self._reconciler.close(errors, head)
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


def _made(ready: list[Callable[[], pa.RecordBatch]], taken: int) -> _Made:
    """Makes row groups of these batches, which it takes off the list: their documents are let go one by one."""
    gathering, made = Gathering(GROUP_BYTES), list[RowGroup]()
    while ready:
        made += [row_group(schemas.DOCUMENTS, group) for group in gathering.add(ready.pop(0)())]
    rest = gathering.rest()
    if rest:
        made.append(row_group(schemas.DOCUMENTS, rest))
    return made, taken


def _credits_of(raw: bytes) -> object:
    """What a document says that it cost; None where it does not say."""
    with suppress(MalformedReply, KeyError):
        return response_json.loads(
            response_json.split_object(response_json.split_object(raw)["metadata"])["creditsUsed"]
        )
    return None


def _amount(value: object) -> float | None:
    """Credits as the service gave them; -1 and the like are no amount."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    return None
