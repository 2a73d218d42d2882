"""Small loads, landed without a service."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

from weblake.api.models import JobError, JobErrors
from weblake.arrow import schemas
from weblake.arrow.document_rows import DocumentBatches
from weblake.arrow.parquet import ParquetFile
from weblake.dataset.records import Intent, Job
from weblake.dataset.root import Dataset
from weblake.loads import publishing
from weblake.loads.accounting import Reconciler
from weblake.loads.staging import Staged
from weblake.receipt import Receipt

BEGAN = datetime(2026, 11, 21, 6, tzinfo=timezone.utc)


def load_id(n: int) -> str:
    """Return a load id; the order of the ids differs from the order of time."""
    return f"{(n * 0x9E3779B97F4A7C15) % 2**64:016x}"


def intent(n: int, **more: object) -> Intent:
    fields: dict[str, object] = {
        "load_id": load_id(n),
        "kind": "batch_scrape",
        "endpoint": "batch_scrape",
        "created_at": (BEGAN + timedelta(hours=n)).isoformat(),
        "request_sha256": "",
        "writer": f"{n:016x}",
    }
    return Intent(**(fields | more))  # type: ignore[arg-type]


def land(dataset: Dataset, what: Intent, documents: int = 3, failed: int = 1, text: int = 200) -> Receipt:
    """Land a load as a job with this many documents and failed pages does."""
    dataset.ledger.record_intent(what)
    dataset.layout.claim("documents", tuple(what.partition) if what.partition else ("load_date",))
    job = f"00000000-0000-4000-8000-{what.load_id[:12]}"
    dataset.ledger.record_job(Job(load_id=what.load_id, job_id=job, kind=what.kind, at=what.created_at))
    pages = [f"https://a.test/{what.load_id}/{n}" for n in range(documents + failed)]
    rows = DocumentBatches(what.load_id, job, what.kind, what.created())
    reconciler = Reconciler(pages)
    receipt = Receipt(
        what.load_id, what.kind, job, "completed", True, len(pages), documents, failed, credits_used=1.0 * documents
    )
    with dataset.storage.scratch() as scratch:
        with ParquetFile(scratch / "documents.parquet", schemas.DOCUMENTS) as file:
            for n, url in enumerate(pages[:documents]):
                body = f"{url} ä\ud83d\ude00 ".encode("utf-16", "surrogatepass").decode("utf-16") * (text // 10)
                found = {"sourceURL": url, "url": url, "statusCode": 200 + n, "scrapeId": f"{job[:-1]}{n % 10}", "k": n}
                raw = {"markdown": body, "links": [url] * n, "odd": {"n": n}, "metadata": found}
                parsed = rows.parse(json.dumps(raw).encode())
                assert parsed is not None
                reconciler.document(parsed.scrape_id, parsed.source_url, parsed.url, b"")
                rows.append(parsed)
            if documents:
                file.write(rows.flush())
            written = file.close(json.dumps(receipt.to_dict(files=False)).encode())
        errors = JobErrors(errors=[JobError(url=url, code="GONE", error="gone") for url in pages[documents:]])
        staged = Staged(written, reconciler.close(errors, {}), receipt)
        return publishing.publish(dataset, what, staged).receipt
