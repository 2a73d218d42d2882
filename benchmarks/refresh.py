"""What it costs to find which URLs of a list are due: 10,000,000 rows in 1,000 files against a list of 1,000,000 URLs.

    uv run --group bench python benchmarks/refresh.py        local disk, then S3 (moto, in a process of its own)

Half of the list is in the dataset. Each figure is of a fresh process: seconds, and the peak in megabytes above the
imports and the list. The lake is made below /tmp/weblake-benchmarks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
from ledger_growth import s3_server
from made_lakes import BATCH, BEGAN, batch_intent, document, rows, texts

from weblake.arrow import schemas
from weblake.arrow.parquet import ParquetFile
from weblake.dataset import layout
from weblake.storage import open_storage

FILES, ROWS, LISTED = 1_000, 10_000, 1_000_000
RUN = """
import json, sys, time
from datetime import timedelta
from pathlib import Path
import pyarrow.compute, pyarrow.parquet
from weblake import Client
from weblake.dataset import freshness
from weblake.dataset.root import open_dataset
from weblake.loads import due_urls, load_request
def memory(name):
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) / 1024
root, first, listed, window = sys.argv[1], *map(int, sys.argv[2:4]), sys.argv[4]
dataset = open_dataset(root)
urls = [f"https://site-{n % 97}.example/path/{n}" for n in range(first, first + listed)]
request = load_request.batch(urls, load_request.Naming(refresh_after=window))
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
began, cpu = time.perf_counter(), time.process_time()
request = due_urls.with_due_urls(Client(base_url="http://127.0.0.1:9", api_key="x"), dataset, request)
took, used = time.perf_counter() - began, time.process_time() - cpu
print(json.dumps([request.fresh, round(took, 1), round(used, 1), round(memory("VmHWM") - before)]))
"""


def make(lake: Path) -> Path:
    """The lake; one that is whole is used again. The rows of a file differ from those of another in their URLs."""
    if (lake / "made").exists():
        return lake
    shutil.rmtree(lake, ignore_errors=True)
    rng = Random(7)
    pool, load = texts(rng), batch_intent(rng, BEGAN, ROWS)
    documents = [document(n, load, "", n, pool, rng) | {"metadata": {}, "links": []} for n in range(ROWS)]
    for each in documents:
        each["markdown"] = str(each["markdown"])[:100]
    some = [rows(documents[start : start + BATCH]) for start in range(0, ROWS, BATCH)]
    for file in range(FILES):
        began = BEGAN + timedelta(hours=file)
        load_id = f"{rng.getrandbits(64):016x}"
        path = lake / layout.load_path("documents", None, began, load_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        with ParquetFile(path, schemas.DOCUMENTS) as made:
            for number, batch in enumerate(some):
                first = file * ROWS + number * BATCH
                keys = pa.array([f"site-{n % 97}.example/path/{n}" for n in range(first, first + BATCH)])
                urls = pc.binary_join_element_wise("https://", keys, "")
                columns = {"url": urls, "source_url": urls, "page_key": keys}
                columns |= {"load_id": pa.repeat(load_id, BATCH), "loaded_at": pa.repeat(began, BATCH)}
                for name, values in columns.items():
                    field = schemas.DOCUMENTS.field(name)
                    batch = batch.set_column(schemas.DOCUMENTS.names.index(name), field, values.cast(field.type))
                made.write(batch)
            made.close(b"{}")
    (lake / "made").write_text("whole")
    return lake


def asked(root: str, window: str = "never") -> list[float]:
    """The URLs that are fresh, wall and CPU seconds, and megabytes."""
    first = FILES * ROWS - LISTED // 2
    command = [sys.executable, "-c", RUN, root, str(first), str(LISTED), window]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the table."""
    lake = make(Path(tempfile.gettempdir()) / "weblake-benchmarks" / "lake-refresh")
    print("| root | refresh_after | fresh | wall s | CPU s | peak MB | requests a file |")
    print("|---|---|---|---|---|---|---|")
    for window in ("never", "365d", "1h"):
        fresh, took, used, peak = asked(str(lake), window)
        print(f"| local | {window} | {fresh:,} | {took} | {used} | {peak:,} | |", flush=True)
    with s3_server([]) as (_, count):
        root = "s3://lake/root"
        storage = open_storage(root)
        names = sorted(path.relative_to(lake).as_posix() for path in lake.glob("documents/**/*.parquet"))
        with storage.scratch() as scratch:
            for name in names:
                shutil.copyfile(lake / name, scratch / "file")
                storage.publish(scratch / "file", name)
        for window in ("never", "1h"):
            before = count().total()
            fresh, took, used, peak = asked(root, window)
            requests = (count().total() - before) / FILES
            print(f"| S3 | {window} | {fresh:,} | {took} | {used} | {peak:,} | {requests:.2f} |", flush=True)


if __name__ == "__main__":
    main()
