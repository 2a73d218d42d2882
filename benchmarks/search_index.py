"""What being searchable costs: documents stored with the search index and without it, and how fast it answers.

    uv run python benchmarks/search_index.py [PAGES]

Each page is some 20 kB of generated prose, half of it HTML overhead, and goes the way of every scrape: fetched (from
memory), made a document, cached, stored and indexed in one transaction on disk. The ratio is what counts.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from uuid import uuid4

from weblake_service.components import ServiceComponents, open_store
from weblake_service.config import Access, ServiceConfig
from weblake_service.jobs import job_records
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_outcomes import Stored
from weblake_service.jobs.scraper import Scraped
from weblake_service.responses import encode
from weblake_service.store import search_index
from weblake_service.web.fetch import FetchedResponse
from weblake_service.web.http_web import HttpWeb

ACCESS = Access("local", "default")
WORDS = [f"{a}{b}{c}" for a in ("lake", "stream", "batch", "crawl", "page") for b in "aeiou" for c in range(160)]
ABREAST = 20
ROUND = 250


def page(number: int) -> bytes:
    """A page of its own words, the common ones often."""
    pick = random.Random(number)
    weights = [1 / (rank + 3) for rank in range(len(WORDS))]
    prose = [" ".join(pick.choices(WORDS, weights, k=60)) for _ in range(30)]
    items = "".join(f'<p class="body text">{text} <a href="/{number}/{n}">more</a></p>' for n, text in enumerate(prose))
    title = " ".join(pick.choices(WORDS, k=4))
    return f"<html><head><title>{title}</title></head><body><main>{items}</main></body></html>".encode()


async def store_all(parts: ServiceComponents, pages: list[tuple[int, bytes]], *, indexed: bool) -> None:
    """Stores pages, so many at a time."""
    waiting = iter(pages)

    async def worker() -> None:
        for number, body in waiting:
            url = f"http://site.test/{number}"
            fetched = FetchedResponse(url, 200, {"content-type": "text/html"}, body, "text/html; charset=utf-8")
            made = await parts.web.remake(url, {}, fetched)
            found = search_index.entry("local", made.document, url, {}, fresh=True) if indexed else None
            scraped = Scraped(Stored(str(uuid4()), encode(made.document), 1, url), [], None, found)

            def work(db: Connection, url: str = url, scraped: Scraped = scraped) -> None:
                scraped.keep(db, 1.0)
                job_records.store_single(db, NewJob(str(uuid4()), "scrape", ACCESS, url, 1.0), scraped.stored)

            await parts.store.write(work)

    await asyncio.gather(*(worker() for _ in range(ABREAST)))


async def main(count: int) -> None:
    config = ServiceConfig(allow_private=True)
    with tempfile.TemporaryDirectory() as directory:
        paths = {indexed: Path(directory) / f"{indexed}.db" for indexed in (False, True)}
        services = {
            indexed: ServiceComponents(open_store(path), HttpWeb(config), config) for indexed, path in paths.items()
        }
        wall, cpu = dict.fromkeys(paths, 0.0), dict.fromkeys(paths, 0.0)
        # In turns, so that whatever else the machine does falls on both.
        for first in range(0, count, ROUND):
            pages = [(number, page(number)) for number in range(first, min(first + ROUND, count))]
            for indexed, parts in services.items():
                began, worked = time.perf_counter(), time.process_time()
                await store_all(parts, pages, indexed=indexed)
                wall[indexed] += time.perf_counter() - began
                cpu[indexed] += time.process_time() - worked
        await ask(services[True])
        for parts in services.values():
            await parts.web.aclose()
            parts.store.close()
        sizes = {indexed: path.stat().st_size >> 20 for indexed, path in paths.items()}
    for name, spent in (("wall", wall), ("processor", cpu)):
        ratio = spent[True] / spent[False]
        print(f"{count} pages stored: {name} {spent[False]:.1f} s without, {spent[True]:.1f} s with, ratio {ratio:.2f}")
    print(f"database: {sizes[False]} MB without, {sizes[True]} MB with")


async def ask(parts: ServiceComponents) -> None:
    for text in ("lakea7", "lakea7 streame3 pageu9", '"lakea1 lakea2"', "lakea0", "site:site.test", "lakea7 -lakea0"):
        took = []
        for _ in range(5):
            began = time.perf_counter()
            found, _ = await parts.store.read(
                partial(search_index.search, team="local", query=search_index.read_query(text), limit=10)
            )
            took.append(time.perf_counter() - began)
        print(f"{text!r}: {len(found)} results in {statistics.median(took) * 1000:.1f} ms")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
