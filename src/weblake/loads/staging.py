"""Write the results of an ended job to one checked Parquet file on scratch, and compute the load's account.

Memory use is a few chunks and row groups, however large the job is: two threads encode row groups in parallel while the
next chunk is downloaded.
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
from weblake.arrow import schemas
from weblake.arrow.document_rows import DocumentBatches
from weblake.arrow.documents import Parsed
from weblake.arrow.parquet import GROUP_BYTES, ParquetFile, Written
from weblake.arrow.row_groups import RowGroup, RowGroupBuffer, row_group
from weblake.background import run_in_two_threads
from weblake.errors import JobGone, MalformedReply
from weblake.jobs.polling import JobRef
from weblake.loads.accounting import Account, Reconciler
from weblake.loads.download import Download, FlowRunner
from weblake.receipt import Receipt
from weblake.steps import Response

#: Status of a load whose job expired during the download; such a load is never complete.
EXPIRED = "expired"
#: JSON bytes of the documents of a batch, and batches of a row group.
BATCH_BYTES, BATCHES_A_GROUP = 4 << 20, 2
#: Number of first row groups that consist of one batch, as do those of the last chunk: so neither thread waits at the
#: beginning for its first row group, or at the end for the other thread's last one.
FIRST_GROUPS = 2
#: Seconds after which progress is reported even if no row group is full.
REPORT_S = 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The load and its job: the values that all rows have in common, and the limit of a crawl."""

    load_id: str
    job_id: str
    kind: str
    loaded_at: datetime
    #: Maximum number of pages of a crawl; None if it is not known.
    page_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """A load on scratch: its closed and checked file, its account and its receipt."""

    written: Written
    account: Account
    receipt: Receipt
    #: The service's error message for the job, on one line; empty if there is none.
    service_message: str = ""
    #: The error, if the job expired during the download; otherwise None.
    gone: JobGone | None = None


#: Row groups, and the number of documents taken so far.
_Encoded: TypeAlias = tuple[Sequence[RowGroup], int]


def stage_job(
    client: FlowRunner,
    identity: Identity,
    reconciler: Reconciler,
    scratch: Path,
    *,
    until: float,
    on_chunk: Callable[[int], None] | None = None,
    first: Response | None = None,
) -> Staged:
    """Download a job's chunks and errors into a file on scratch, and return the staged load.

    Args:
        client: Runs the read requests.
        identity: Values that all rows have in common.
        reconciler: Counts the documents; it has the list of submitted URLs.
        scratch: A directory that only this load uses.
        until: Deadline in monotonic seconds.
        on_chunk: Called with the number of documents read so far.
        first: The response with the first chunk, if the caller already has it.

    Raises:
        JobGone: The job no longer exists, and nothing of it had been read.
        WeblakeError: The job cannot be read now.
    """
    download = Download(client, JobRef(identity.kind, identity.job_id), until=until, first=first)
    del first  # so that it is freed with its chunk
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
                return rows.close(JobErrors(), {**download.pager.head, "status": EXPIRED}, gone=gone)
            raise
        return rows.close(errors, download.pager.head, message=download.message())


def _row_groups(rows: _Rows, download: Download) -> Iterator[Callable[[], _Encoded]]:
    """Yield functions that encode new documents as row groups of even size: small chunks joined, large ones split."""
    seen = time.monotonic()
    try:
        for chunk in download.chunks():
            before = rows.taken
            if download.pager.ended:
                rows.file.start_sync()
            for document in rows.parse_all(chunk):
                rows.take(document)
                if rows.full(last=download.pager.ended):
                    yield rows.flush()
                    seen = time.monotonic()
            download.pager.record_new(rows.taken - before)
            if time.monotonic() - seen >= REPORT_S:
                yield partial(_encode, [], rows.taken)
                seen = time.monotonic()
    except JobGone:
        yield rows.flush()  # the documents read so far may be all that can be saved
        raise
    yield rows.flush()


def stage_document(identity: Identity, reconciler: Reconciler, scratch: Path, raw: bytes) -> Staged:
    """Write the single document of a scrape or parse to a file on scratch, and return the staged load."""
    rows = _Rows(identity, reconciler, scratch / "documents.parquet")
    with rows.file:
        rows.take(rows.parse(raw))
        rows.write(rows.flush()()[0])
        return rows.close(JobErrors(), {"status": "completed", "creditsUsed": _credits_of(raw)})


class _Rows:
    """Collects the new documents of a load in batches, and writes their row groups to one file."""

    def __init__(self, identity: Identity, reconciler: Reconciler, path: Path) -> None:
        self._identity = identity
        self._reconciler = reconciler
        self._batches = DocumentBatches(identity.load_id, identity.job_id, identity.kind, identity.loaded_at)
        self.parse, self.parse_all = self._batches.parse, self._batches.parse_all
        #: Functions that return the batches of the next row group.
        self._ready: list[Callable[[], pa.RecordBatch]] = []
        #: Number of row groups so far.
        self._groups = 0
        self.file = ParquetFile(path, schemas.DOCUMENTS)

    def take(self, parsed: Parsed | None) -> None:
        """Add a document to the next batch if it is new; None counts as a malformed document."""
        if parsed is None:
            self._reconciler.malformed(1)
            return
        content = parsed.digest if parsed.scrape_id is None else b""  # with an id, the costly digest is not needed
        if self._reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, content):
            self._batches.append(parsed)
            if self._batches.pending_bytes >= BATCH_BYTES:
                self._ready.append(self._batches.flush())

    @property
    def taken(self) -> int:
        """Number of documents taken so far."""
        return self._batches.position

    def full(self, *, last: bool) -> bool:
        """Return whether there are enough batches for a row group; `last` says that no chunk follows."""
        return len(self._ready) >= (1 if last or self._groups < FIRST_GROUPS else BATCHES_A_GROUP)

    def flush(self) -> Callable[[], _Encoded]:
        """Return a function, for any thread, that encodes the documents taken since the last call as row groups."""
        ready, self._ready = self._ready, []
        self._groups += 1
        if self._batches.pending_bytes:
            ready.append(self._batches.flush())
        return partial(_encode, ready, self.taken)

    def write(self, groups: Iterable[RowGroup]) -> None:
        """Append row groups to the file."""
        for group in groups:
            self.file.append(group)

    def close(
        self, errors: JobErrors, head: Mapping[str, object], *, message: str = "", gone: JobGone | None = None
    ) -> Staged:
        account = self._reconciler.close(errors, head)
        credits_used, limit = head.get("creditsUsed"), self._identity.page_limit
        receipt = Receipt(
            load_id=self._identity.load_id,
            kind=self._identity.kind,
            job_id=self._identity.job_id,
            status=str(head.get("status")).lower()[:40],
            complete=account.complete and str(head.get("status")).lower() == "completed",
            submitted=account.submitted,
            stored=account.stored,
            failed=account.failed,
            robots_blocked=account.robots_blocked,
            rejected=account.rejected,
            missing=account.missing,
            duplicates=account.duplicates,
            limit_reached=limit is not None and account.submitted - account.robots_blocked >= limit,
            credits_used=_amount(credits_used),
        )
        written = self.file.close(json.dumps(receipt.to_dict(files=False)).encode())
        return Staged(written, account, receipt, message, gone)


def _encode(ready: list[Callable[[], pa.RecordBatch]], taken: int) -> _Encoded:
    """Encode batches as row groups; each batch is removed from the list, so that its documents are freed early."""
    buffer, made = RowGroupBuffer(GROUP_BYTES), list[RowGroup]()
    while ready:
        made += [row_group(schemas.DOCUMENTS, group) for group in buffer.add(ready.pop(0)())]
    rest = buffer.rest()
    if rest:
        made.append(row_group(schemas.DOCUMENTS, rest))
    return made, taken


def _credits_of(raw: bytes) -> object:
    """Return the `creditsUsed` of a document's metadata, or None."""
    with suppress(MalformedReply, KeyError):
        return response_json.loads(
            response_json.split_object(response_json.split_object(raw)["metadata"])["creditsUsed"]
        )
    return None


def _amount(value: object) -> float | None:
    """Return a number of credits, or None if the value is not a valid amount (such as -1)."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15:
        return float(value)
    return None
