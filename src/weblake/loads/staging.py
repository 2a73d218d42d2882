"""Write the results of an ended job to one checked Parquet file on scratch, and compute the load's account.

Memory use is a few chunks and row groups, however large the job is: one thread writes row groups while the calling
thread decodes documents and the next chunk is downloaded.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from typing_extensions import Self

from weblake.api import response_json
from weblake.api.models import JobErrors
from weblake.credentials import one_line
from weblake.errors import JobGone, MalformedReply
from weblake.jobs.polling import JobRef
from weblake.loads.accounting import Account, Reconciler
from weblake.loads.download import Download, FlowRunner
from weblake.receipt import Receipt
from weblake.steps import Response
from weblake.tables import schemas
from weblake.tables.document_rows import DocumentBatches
from weblake.tables.documents import Parsed
from weblake.tables.parquet import ParquetFile, Written

#: Status of a load whose job expired during the download; such a load is never complete.
EXPIRED = "expired"
#: JSON bytes of the documents of a batch, about a row group; and most batches that wait to be written.
BATCH_BYTES, MOST_WAITING = 8 << 20, 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The values that all rows of a load have in common."""

    load_id: str
    job_id: str
    kind: str
    loaded_at: datetime


@dataclass(frozen=True, slots=True)
class Staged:
    """A load on scratch: its closed and checked file, its account and its receipt."""

    written: Written
    account: Account
    receipt: Receipt
    #: The service's error message for the job, on one line; empty if there is none.
    said: str = ""
    #: The error, if the job expired during the download; otherwise None.
    gone: JobGone | None = None


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
    gone: JobGone | None = None
    with _Rows(identity, reconciler, scratch) as rows:
        try:
            for chunk in download.chunks():
                before = rows.taken
                for document in rows.parse_all(chunk):
                    rows.take(document)
                download.record_new(rows.taken - before)
                if on_chunk is not None:
                    on_chunk(rows.taken)
                del chunk
            errors, head = download.errors(), download.head
        except JobGone as error:
            if not rows.taken or not download.has_expired():
                raise
            # The documents read so far may be all that can be saved.
            gone, errors, head = error, JobErrors(), {**download.head, "status": EXPIRED}
        return rows.close(errors, head, gone)


def stage_document(identity: Identity, reconciler: Reconciler, scratch: Path, raw: bytes) -> Staged:
    """Write the single document of a scrape or parse to a file on scratch, and return the staged load."""
    with _Rows(identity, reconciler, scratch) as rows:
        rows.take(rows.parse(raw))
        return rows.close(JobErrors(), {"status": "completed", "creditsUsed": _credits_of(raw)})


class _Rows:
    """Collects the new documents of a load in batches, which a second thread writes to one file."""

    def __init__(self, identity: Identity, reconciler: Reconciler, scratch: Path) -> None:
        self._identity = identity
        self._reconciler = reconciler
        self._batches = DocumentBatches(identity.load_id, identity.job_id, identity.kind, identity.loaded_at)
        self.parse, self.parse_all = self._batches.parse, self._batches.parse_all
        self._file = ParquetFile(scratch / "documents.parquet", schemas.DOCUMENTS)
        self._writer = ThreadPoolExecutor(1, "weblake-write")
        self._written: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.shutdown()
        self._file.abort()  # no effect on a closed file

    def take(self, parsed: Parsed | None) -> None:
        """Add a document to the next batch if it is new; None counts as a malformed document."""
        if parsed is None:
            self._reconciler.malformed(1)
            return
        content = parsed.digest if parsed.scrape_id is None else b""  # with an id, the costly digest is not needed
        if self._reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, content):
            self._batches.append(parsed)
            if self._batches.pending_bytes >= BATCH_BYTES:
                self._write_batch()

    @property
    def taken(self) -> int:
        """Number of documents taken so far."""
        return self._batches.position

    def close(self, errors: JobErrors, head: Mapping[str, object], gone: JobGone | None = None) -> Staged:
        self._write_batch()
        while self._written:
            self._written.popleft().result()
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
        written = self._file.close(json.dumps(receipt.to_dict(files=False)).encode())
        said = head.get("error")
        return Staged(written, account, receipt, one_line(said) if isinstance(said, str) else "", gone)

    def _write_batch(self) -> None:
        """Write the documents taken since the last call in the second thread, behind at most MOST_WAITING batches."""
        while len(self._written) > MOST_WAITING:
            self._written.popleft().result()
        self._written.append(self._writer.submit(self._file.write, self._batches.flush()))


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
