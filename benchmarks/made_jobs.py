"""Jobs to land, made from a seed: the same bytes on every machine.

    python benchmarks/made_jobs.py DIRECTORY medium

A job is a directory: `chunk-N.json` holds the `data` array of one chunk (at most 100 documents and 10 MB, as the
service cuts them), `job.json` the counts and the failed pages. A document of the larger jobs is about 80 KB: markdown,
HTML that is non-ASCII in every second document, 67 links, 10 to 40 metadata keys beside the usual ones, and in one of
thirty a field that no contract knows.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK_DOCUMENTS, CHUNK_BYTES = 100, 10 << 20
#: Words of paragraphs, in ASCII and beyond.
SYLLABLES = "ka lo mi ren tas vor el un dia ster qua pel or is an tur mon ce ba fi gro hen".split()  # noqa: SIM905
BEYOND = "ä ö ü ß é è ñ ø 日本 語 の データ мир вода время 中文 字 ελλ ιδα ş ğ".split()  # noqa: SIM905
PARAGRAPHS = 20_000


@dataclass(frozen=True)
class Shape:
    """How many documents there are, and the paragraphs of each of their bodies."""

    documents: int
    markdown: int
    html: int
    links: int
    failed: int


SHAPES = {
    "small": Shape(100, 25, 90, 67, 2),
    "medium": Shape(2_000, 25, 90, 67, 20),
    "large": Shape(10_500, 25, 90, 67, 100),
    "tiny": Shape(100_000, 2, 0, 5, 0),
}


def paragraphs(rng: random.Random) -> list[str]:
    """A pool large enough that documents that lie close together do not repeat each other."""
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(4_000)]
    odd = [rng.choice(BEYOND) + word for word in words[:1_000]]
    made = []
    for number in range(PARAGRAPHS):
        pool = [*words, *odd, *odd, *odd] if number % 2 else words
        made.append(" ".join(rng.choices(pool, k=rng.randint(60, 120))))
    return made


def document(number: int, shape: Shape, pool: list[str], rng: random.Random) -> dict[str, Any]:
    """One page as the service returns it."""
    url = f"https://site-{number % 97}.example/path/{number}?page={number % 7}"
    odd = number % 2  # paragraphs with an odd number go beyond ASCII
    texts = [pool[2 * rng.randrange(PARAGRAPHS // 2) + odd] for _ in range(max(shape.markdown, shape.html))]
    metadata: dict[str, Any] = {
        "title": texts[0][:60],
        "description": texts[0][60:200],
        "language": ("en", "de", "ja")[number % 3],
        "url": url,
        "sourceURL": url,
        "scrapeId": str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        "statusCode": 404 if number % 50 == 49 else 200,
        "contentType": "text/html; charset=utf-8",
        "creditsUsed": 1,
        "proxyUsed": "basic",
        "cacheState": "miss",
    }
    if shape.html:
        for key in range(rng.randint(10, 40)):
            metadata[f"og:extra:{key}"] = [texts[1][:20], "b"] if key % 9 == 8 else texts[1][key : key + 40]
    found: dict[str, Any] = {"markdown": "\n\n".join(f"## {text[:30]}\n\n{text}" for text in texts[: shape.markdown])}
    if shape.html:
        found["html"] = "".join(f'<p class="text-{n % 5}">{text}</p>\n' for n, text in enumerate(texts[: shape.html]))
    found["links"] = [f"{url}&link={n}" for n in range(shape.links)]
    if number % 30 == 29:
        found["engineVersion"] = {"name": "made", "build": number}
    found["metadata"] = metadata
    return found


def make(directory: Path, name: str, seed: int = 7) -> Path:
    """The job of this name below a directory; one that is whole is used again."""
    job = directory / name
    if (job / "job.json").exists():
        return job
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir(parents=True)
    shape, rng = SHAPES[name], random.Random(seed)
    pool = paragraphs(rng)
    chunks, pending, size = 0, list[bytes](), 0

    def flush() -> None:
        nonlocal chunks, size
        if pending:
            (job / f"chunk-{chunks}.json").write_bytes(b"[" + b",".join(pending) + b"]")
            chunks, size = chunks + 1, 0
            pending.clear()

    for number in range(shape.documents):
        raw = json.dumps(document(number, shape, pool, rng), ensure_ascii=False, separators=(",", ":")).encode()
        if pending and size + len(raw) > CHUNK_BYTES:
            flush()
        pending.append(raw)
        size += len(raw) + 1
        if len(pending) == CHUNK_DOCUMENTS:
            flush()
    flush()
    errors = [
        {
            "id": str(uuid.UUID(int=n)),
            "url": f"https://down.example/{n}",
            "code": "SCRAPE_TIMEOUT",
            "error": "Timed out.",
        }
        for n in range(shape.failed)
    ]
    told = {"documents": shape.documents, "chunks": chunks, "errors": errors}
    (job / "job.json").write_text(json.dumps(told))
    return job


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("directory", type=Path)
    asked.add_argument("name", choices=SHAPES)
    given = asked.parse_args()
    print(make(given.directory, given.name))
