"""Write the results of an ended job to one checked Parquet file on scratch, and compute the load's account.

Memory use is a few chunks and one row group, however large the job is; the next chunk is downloaded meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weblake.api import response_json
from weblake.api.models import NEEDS_SCRIPTS, JobErrors
from weblake.arrow import schemas
from weblake.arrow.document_rows import DocumentBatches
from weblake.arrow.documents import Parsed
from weblake.arrow.parquet import ParquetFile, Written
from weblake.credentials import one_line
from weblake.dataset.records import Intent
from weblake.errors import JobGone, MalformedReply
from weblake.events import amount_of
from weblake.jobs.polling import JobRef
from weblake.loads.accounting import Account, Reconciler
from weblake.loads.download import Download, FlowRunner
from weblake.receipt import COUNTS, Receipt

#: Status of a load whose job expired during the download; such a load is never complete.
EXPIRED = "expired"
#: JSON bytes of the documents of a batch.
BATCH_BYTES = 4 << 20
_NEEDS_SCRIPTS, _MAX_WARNING_CHARS = NEEDS_SCRIPTS.encode(), 1000


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
    #: What to say of pages that scripts fill and that the service did not render; empty if there are none.
    unrendered: str = ""


def stage_job(
    client: FlowRunner,
    intent: Intent,
    job: JobRef,
    reconciler: Reconciler,
    scratch: Path,
    *,
    until: float,
) -> Staged:
    """Download a job's chunks and errors into a file on scratch, and return the staged load.

    Args:
        client: Runs the read requests.
        intent: The load, which may be another one than the one that started the job.
        job: Its job.
        reconciler: Counts the documents; it has the list of submitted URLs.
        scratch: A directory that only this load uses.
        until: Deadline in monotonic seconds.

    Raises:
        JobGone: The job no longer exists, and nothing of it had been read.
        WeblakeError: The job cannot be read now.
    """
    download = Download(client, job, until=until)
    rows = _Rows(intent, job, reconciler, scratch / "documents.parquet")
    with rows.file:
        try:
            for chunk in download.chunks():
                before = rows.taken
                for document in rows.parse_all(chunk):
                    rows.take(document)
                download.pager.record_new(rows.taken - before)
            rows.flush()
            errors = download.errors()
        except JobGone as gone:
            rows.flush()
            if rows.file.rows and download.has_expired():
                return rows.close(JobErrors(), {**download.pager.head, "status": EXPIRED}, gone=gone)
            raise
        return rows.close(errors, download.pager.head)


def stage_document(intent: Intent, job: JobRef, reconciler: Reconciler, scratch: Path, raw: bytes) -> Staged:
    """Write the single document of a scrape or parse to a file on scratch, and return the staged load."""
    rows = _Rows(intent, job, reconciler, scratch / "documents.parquet")
    with rows.file:
        rows.take(rows.parse(raw))
        rows.flush()
        return rows.close(JobErrors(), {"status": "completed", "creditsUsed": _credits_of(raw)})


class _Rows:
    """Collects the new documents of a load in batches, and writes their row groups to one file."""

    def __init__(self, intent: Intent, job: JobRef, reconciler: Reconciler, path: Path) -> None:
        self._intent, self._job = intent, job
        self._reconciler = reconciler
        self._batches = DocumentBatches(intent.load_id, job.job_id, job.kind, intent.created())
        self.parse, self.parse_all = self._batches.parse, self._batches.parse_all
        self.file = ParquetFile(path, schemas.DOCUMENTS)
        #: How many pages scripts fill that the service did not render, and the warning of the first one.
        self._unrendered, self._warning = 0, ""

    def take(self, parsed: Parsed | None) -> None:
        """Add a document to the next batch if it is new; None counts as a malformed document."""
        if parsed is None:
            self._reconciler.malformed(1)
            return
        content = parsed.digest if parsed.scrape_id is None else b""  # with an id, the costly digest is not needed
        if self._reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, content):
            self._batches.append(parsed)
            warning = bytes(parsed.fields.get("warning", b""))
            if _NEEDS_SCRIPTS in warning:
                self._unrendered += 1
                self._warning = self._warning or one_line(str(response_json.loads(warning)), _MAX_WARNING_CHARS)
            if self._batches.pending_bytes >= BATCH_BYTES:
                self.flush()

    @property
    def taken(self) -> int:
        """Number of documents taken so far."""
        return self._batches.position

    def flush(self) -> None:
        """Write the documents taken since the last call to the file."""
        if self._batches.pending_bytes:
            self.file.write(self._batches.flush())

    def close(self, errors: JobErrors, head: Mapping[str, object], *, gone: JobGone | None = None) -> Staged:
        account = self._reconciler.close(errors, head)
        error, limit = head.get("error"), self._intent.page_limit
        receipt = Receipt(
            load_id=self._intent.load_id,
            kind=self._job.kind,
            job_id=self._job.job_id,
            status=str(head.get("status")).lower()[:40],
            complete=account.complete and str(head.get("status")).lower() == "completed",
            fresh=self._intent.fresh or 0,
            **{name: getattr(account, name) for name in COUNTS},
            limit_reached=limit is not None and account.submitted - account.robots_blocked >= limit,
            credits_used=amount_of(head.get("creditsUsed")),
        )
        written = self.file.close(json.dumps(receipt.to_dict(files=False)).encode())
        pages = "1 page has" if self._unrendered == 1 else f"{self._unrendered:,} pages have"
        text = f"{pages} landed without the text that scripts put in (column `warning`). {self._warning}"
        message = one_line(error) if isinstance(error, str) else ""
        return Staged(written, account, receipt, message, gone, text if self._unrendered else "")


def _credits_of(raw: bytes) -> object:
    """Return the `creditsUsed` of a document's metadata, or None."""
    with suppress(MalformedReply, KeyError):
        return response_json.loads(
            response_json.split_object(response_json.split_object(raw)["metadata"])["creditsUsed"]
        )
    return None
