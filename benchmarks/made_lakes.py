"""Lakes to read, made from a seed without a service: valid ones, quickly.

    uv run --group bench python benchmarks/made_lakes.py DIRECTORY loads

`loads` has 10,000 loads of ten small documents over a hundred days, `documents` 1,000,000 documents in a hundred loads
of as many days, `nights` 1,000,000 documents in a thousand loads. Every load is a file of its own with its receipt, and
has its records in the ledger: whatever weblake does with a lake it does with these. A document is about 700 bytes of
markdown, eight metadata keys and three links.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pyarrow as pa
from made_jobs import SYLLABLES

from weblake.arrow import arrays, pages, schemas
from weblake.arrow.parquet import ParquetFile
from weblake.dataset import layout
from weblake.dataset.records import Done, Intent, Job
from weblake.receipt import LandedFile, Receipt

BEGAN = datetime(2026, 1, 1, 6, tzinfo=timezone.utc)
BATCH = 1000


@dataclass(frozen=True)
class Shape:
    loads: int
    documents: int
    days: int


SHAPES = {"loads": Shape(10_000, 10, 100), "documents": Shape(100, 10_000, 100), "tiny": Shape(200, 10, 10)}
SHAPES |= {"nights": Shape(1_000, 1_000, 100)}


def texts(rng: random.Random) -> list[str]:
    """Paragraphs of about 700 bytes; a document has one of them with its own address before it."""
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(4_000)]
    return [" ".join(rng.choices(words, k=90)) for _ in range(20_000)]


def document(
    number: int, load: Intent, job: str, position: int, pool: list[str], rng: random.Random
) -> dict[str, object]:
    url = f"https://site-{number % 97}.example/path/{number}"
    body = pool[rng.randrange(len(pool))]
    metadata = {"title": body[:50], "url": url, "sourceURL": url, "statusCode": "200", "proxyUsed": "basic"}
    metadata |= {"og:type": "article", "viewport": "width=device-width", "creditsUsed": "1"}
    return {
        "load_id": load.load_id,
        "job_id": job,
        "job_kind": load.kind,
        "position": position,
        "url": url,
        "source_url": url,
        "scrape_id": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "status_code": 404 if number % 50 == 49 else 200,
        "title": body[:50],
        "language": ("en", "de", "ja")[number % 3],
        "content_type": "text/html",
        "markdown": f"# {url}\n\n{body}",
        "links": [f"{url}/{n}" for n in range(3)],
        "metadata": metadata,
        "repaired": False,
        "loaded_at": load.created(),
    }


def make(directory: Path, name: str, seed: int = 7) -> Path:
    """The lake of this name below a directory; one that is whole is used again."""
    lake = directory / f"lake-{name}"
    if (lake / "made").exists():
        return lake
    shutil.rmtree(lake, ignore_errors=True)
    ledger = lake / layout.LEDGER
    ledger.mkdir(parents=True)
    shape, rng = SHAPES[name], random.Random(seed)
    pool = texts(rng)
    keys = dict.fromkeys(layout.LOAD_TABLES, layout.DEFAULT_KEYS) | layout.FIXED_KEYS
    (lake / layout.LAYOUT).write_bytes(msgspec.json.encode({"version": 1, "tables": keys}))
    for n in range(shape.loads):
        created = BEGAN + timedelta(days=n * shape.days // shape.loads, seconds=n)
        load = batch_intent(rng, created, shape.documents)
        land(lake, load, str(uuid.UUID(int=rng.getrandbits(128), version=4)), n * shape.documents, shape, pool, rng)
    (lake / "made").write_text("whole")
    return lake


def batch_intent(rng: random.Random, created: datetime, documents: int) -> Intent:
    """The intent of a batch of so many documents."""
    return Intent(
        load_id=f"{rng.getrandbits(64):016x}",
        kind="batch_scrape",
        endpoint="batch_scrape",
        created_at=created.isoformat(),
        request_sha256="ab" * 16,
        submitted=documents,
    )


def land(lake: Path, load: Intent, job: str, first: int, shape: Shape, pool: list[str], rng: random.Random) -> None:
    """One load: its file and its records, as a landing leaves them, but not synced one by one."""
    name = layout.load_path("documents", None, load.created(), load.load_id)
    path = lake / name
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = {"submitted": shape.documents, "stored": shape.documents}
    receipt = Receipt(load.load_id, load.kind, job, "completed", complete=True, **counts)
    with ParquetFile(path, schemas.DOCUMENTS) as file:
        for start in range(0, shape.documents, BATCH):
            numbers = range(start, min(start + BATCH, shape.documents))
            file.write(rows([document(first + n, load, job, n, pool, rng) for n in numbers]))
        written = file.close(json.dumps(receipt.to_dict(files=False)).encode())
    at = (load.created() + timedelta(minutes=5)).isoformat()
    done = replace(receipt, files=(LandedFile(name, written.rows, written.bytes),))
    records = {
        "": load,
        ".job": Job(load_id=load.load_id, job_id=job, kind=load.kind, at=at),
        ".done": Done(load_id=load.load_id, at=at, receipt=done.to_dict()),
    }
    for step, record in records.items():
        (lake / layout.LEDGER / f"{load.load_id}{step}.json").write_bytes(msgspec.json.encode(record))


def rows(documents: list[dict[str, object]]) -> pa.RecordBatch:
    return pages.with_computed(arrays.record_batch(schemas.DOCUMENTS, documents), pages.COMPUTED)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("directory", type=Path)
    asked.add_argument("name", choices=SHAPES)
    given = asked.parse_args()
    print(make(given.directory, given.name))
