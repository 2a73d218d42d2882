"""Ways to land one job as Parquet: weblake, what people write by hand or with a library, and the limits of the machine.

    python benchmarks/peers.py NAME URL DIRECTORY

Runs one of them and prints one JSON object: seconds of wall and CPU (all threads and children), MB of memory before it
began and at its highest, rows and bytes written. Imports are made before the clock starts.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

JOB_ID = "0199d0c2-7f1e-4abc-8def-000000000001"
KEY = "of-a-benchmark"
HEADERS = {"Authorization": f"Bearer {KEY}"}

#: What each imports before its clock starts, and the function that runs.
IMPORTS = {
    "weblake": (
        "weblake",
        "weblake.loads.landing",
        "weblake.loads.load",
        "weblake.client",
        "pyarrow.parquet",
        "weblake.loads.staging",
    ),
    "orjson_pyarrow": ("httpx", "orjson", "pyarrow.parquet"),
    "orjson_pyarrow_zstd": ("httpx", "orjson", "pyarrow.parquet"),
    "httpx_pandas": ("httpx", "pandas", "pyarrow.parquet"),
    "firecrawl_pandas": ("firecrawl", "pandas", "pyarrow.parquet"),
    "firecrawl_pages": ("firecrawl", "pandas", "pyarrow.parquet"),
    "polars": ("httpx", "msgspec", "polars"),
    "duckdb": ("httpx", "duckdb"),
    "dlt": ("dlt", "dlt.sources.rest_api", "pyarrow.parquet"),
    "limit_download": ("http.client",),
    "limit_decode": ("msgspec",),
    "limit_write": ("pyarrow.parquet", "msgspec"),
}
TEXTS = ("title", "description", "language", "url", "sourceURL", "scrapeId", "contentType")


def weblake(url: str, out: Path) -> int:
    import weblake

    with weblake.Client(url, KEY) as client:
        receipt = weblake.land("batch", JOB_ID, to=out, client=client)
    return receipt.stored


def _pages(url: str) -> Iterator[bytes]:
    import httpx

    with httpx.Client(headers=HEADERS, timeout=60) as client:
        following = f"{url}/v2/batch/scrape/{JOB_ID}"
        while following:
            body = client.get(following).raise_for_status().content
            yield body
            head = body[: body.index(b'"data"')]
            following = json.loads(head.rstrip(b", ") + b"}").get("next")


def _by_hand(url: str, out: Path, **options: Any) -> int:
    """httpx, orjson and pyarrow, a chunk at a time: what a careful engineer writes in an afternoon."""
    import orjson
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [(name, pa.string()) for name in ("markdown", "html", *TEXTS, "metadata")]
    schema = pa.schema([*fields, ("statusCode", pa.int32()), ("links", pa.list_(pa.string()))])
    rows = 0
    with pq.ParquetWriter(out / "documents.parquet", schema, **options) as writer:
        for body in _pages(url):
            made = []
            for document in orjson.loads(body)["data"]:
                metadata = document.pop("metadata")
                row = {name: metadata.get(name) for name in (*TEXTS, "statusCode")}
                row |= {name: document.get(name) for name in ("markdown", "html", "links")}
                made.append(row | {"metadata": orjson.dumps(metadata).decode()})
            writer.write_table(pa.Table.from_pylist(made, schema=schema))
            rows += len(made)
    return rows


def orjson_pyarrow(url: str, out: Path) -> int:
    return _by_hand(url, out)


def orjson_pyarrow_zstd(url: str, out: Path) -> int:
    return _by_hand(url, out, compression="zstd", compression_level=1, use_dictionary=["language", "contentType"])


def _frame(documents: list[dict[str, Any]], out: Path, name: str = "documents") -> int:
    import pandas as pd

    frame = pd.DataFrame(documents)
    frame["metadata"] = [json.dumps(each) for each in frame["metadata"]]
    if "engineVersion" in frame:
        frame = frame.drop(columns="engineVersion")
    frame.to_parquet(out / f"{name}.parquet")
    return len(frame)


def httpx_pandas(url: str, out: Path) -> int:
    documents: list[dict[str, Any]] = []
    for body in _pages(url):
        documents += json.loads(body)["data"]
    return _frame(documents, out)


def _firecrawl(url: str) -> Any:
    from firecrawl import Firecrawl

    return Firecrawl(api_key=KEY, api_url=url)


def firecrawl_pandas(url: str, out: Path) -> int:
    """The SDK's own pagination, everything in memory: the usual way."""
    job = _firecrawl(url).get_batch_scrape_status(JOB_ID)
    return _frame([each.model_dump(exclude_none=True, by_alias=True) for each in job.data], out)


def firecrawl_pages(url: str, out: Path) -> int:
    from firecrawl.v2.types import PaginationConfig

    app, rows, page = _firecrawl(url), 0, 0
    one = PaginationConfig(auto_paginate=False)
    job = app.get_batch_scrape_status(JOB_ID, pagination_config=one)
    while True:
        rows += _frame([each.model_dump(exclude_none=True) for each in job.data], out, f"part-{page}")
        if not job.next:
            return rows
        job, page = app.get_batch_scrape_status_page(job.next), page + 1


def polars(url: str, out: Path) -> int:
    """Its reader takes an open object as text from lines only, so the array is cut into lines first."""
    import msgspec
    import polars as pl

    schema = dict.fromkeys(("markdown", "html", "metadata"), pl.String) | {"links": pl.List(pl.String)}
    cut = msgspec.json.Decoder(list[msgspec.Raw]).decode
    rows = 0
    for number, body in enumerate(_pages(url)):
        lines = b"\n".join(bytes(raw) for raw in cut(body[body.index(b'"data"') + 7 : -1]))
        frame = pl.read_ndjson(lines, schema=schema)
        frame.write_parquet(out / f"part-{number}.parquet", compression="zstd", compression_level=1)
        rows += frame.height
    return rows


def duckdb(url: str, out: Path) -> int:
    import duckdb

    rows = 0
    database = duckdb.connect()
    kinds = "{markdown: 'VARCHAR', html: 'VARCHAR', links: 'VARCHAR[]', metadata: 'JSON'}"
    for number, body in enumerate(_pages(url)):
        scratch = out / "chunk.json"
        scratch.write_bytes(body[body.index(b'"data"') + 7 : -1].lstrip())
        read = f"SELECT * FROM read_json('{scratch}', columns={kinds}, maximum_object_size=300000000)"
        database.execute(f"COPY ({read}) TO '{out}/part-{number}.parquet' (COMPRESSION zstd, COMPRESSION_LEVEL 1)")
        found = database.execute(f"SELECT count(*) FROM '{out}/part-{number}.parquet'").fetchone()
        rows += found[0] if found else 0
        scratch.unlink()
    return rows


def dlt(url: str, out: Path) -> int:
    """dlt's REST source into Parquet files, metadata as one JSON column."""
    import dlt
    import pyarrow.parquet as pq
    from dlt.sources.rest_api import rest_api_source

    source = rest_api_source(
        {
            "client": {
                "base_url": f"{url}/v2/",
                "auth": {"type": "bearer", "token": KEY},
                "paginator": {"type": "json_link", "next_url_path": "next"},
            },
            "resources": [
                {
                    "name": "documents",
                    "endpoint": {"path": f"batch/scrape/{JOB_ID}", "data_selector": "data"},
                    "columns": {name: {"data_type": "json"} for name in ("metadata", "links", "engine_version")},
                }
            ],
        }
    )
    pipeline = dlt.pipeline(
        "benchmark",
        pipelines_dir=str(out / "work"),
        destination=dlt.destinations.filesystem(bucket_url=(out / "lake").as_uri()),
        dataset_name="pages",
    )
    pipeline.run(source, loader_file_format="parquet")
    return sum(pq.read_metadata(file).num_rows for file in (out / "lake").rglob("documents/*.parquet"))


def limit_download(url: str, out: Path) -> int:
    """The bytes alone, into one buffer."""
    import http.client

    host = url.removeprefix("http://")
    connection, following, pages = http.client.HTTPConnection(host), f"/v2/batch/scrape/{JOB_ID}", 0
    buffer = bytearray(32 << 20)
    while following:
        connection.request("GET", following, headers=HEADERS)
        reply = connection.getresponse()
        length, at, view = int(reply.headers["Content-Length"]), 0, memoryview(buffer)
        while at < length:
            at += reply.readinto(view[at:length])
        pages += 1
        head = bytes(buffer[: buffer.index(b'"data"')])
        told = json.loads(head.rstrip(b", ") + b"}")
        following = told.get("next", "").removeprefix(url)
    return pages


def _bodies(directory: Path) -> Iterator[bytes]:
    told = json.loads((directory / "job.json").read_text())
    for number in range(told["chunks"]):
        yield (directory / f"chunk-{number}.json").read_bytes()


def limit_decode(job: str, out: Path) -> int:
    """JSON to Python values, of bodies on disk."""
    import msgspec

    return sum(len(msgspec.json.decode(body)) for body in _bodies(Path(job)))


def prepare_limit_write(job: str) -> Any:
    """The Arrow tables, in memory before the clock starts."""
    import msgspec
    import pyarrow as pa

    tables = []
    for body in _bodies(Path(job)):
        made = []
        for document in msgspec.json.decode(body):
            metadata = document["metadata"]
            row = {name: metadata.get(name) for name in TEXTS}
            row |= {"markdown": document.get("markdown"), "html": document.get("html"), "links": document.get("links")}
            made.append(row | {"metadata": json.dumps(metadata)})
        kinds = [(name, pa.large_string()) for name in (*TEXTS, "markdown", "html", "metadata")]
        tables.append(pa.Table.from_pylist(made, schema=pa.schema([*kinds, ("links", pa.list_(pa.string()))])))
    return tables


def limit_write(tables: Any, out: Path) -> int:
    """Arrow tables that are there already, into zstd-1 Parquet."""
    import pyarrow.parquet as pq

    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["language"], "write_statistics": False}
    with pq.ParquetWriter(out / "documents.parquet", tables[0].schema, **options) as writer:
        for table in tables:
            writer.write_table(table)
    return sum(table.num_rows for table in tables)


def _memory(name: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) / 1024


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main() -> None:
    name, source, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    for module in IMPORTS[name]:
        importlib.import_module(module)
    out.mkdir(parents=True, exist_ok=True)
    run: Callable[[Any, Path], int] = globals()[name]
    given: Any = globals()[f"prepare_{name}"](source) if f"prepare_{name}" in globals() else source
    before = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the highest memory is counted from here on
    cpu, began = _cpu(), time.perf_counter()
    rows = run(given, out)
    told = {"wall": time.perf_counter() - began, "cpu": _cpu() - cpu, "base_mb": before, "peak_mb": _memory("VmHWM")}
    written = sum(file.stat().st_size for file in out.rglob("*.parquet"))
    print(json.dumps(told | {"rows": rows, "bytes": written}))


if __name__ == "__main__":
    main()
