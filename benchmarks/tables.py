"""What a sync of loads to a Delta Lake or Iceberg table costs, against the format's own write of the same rows.

    uv run --group bench python benchmarks/tables.py                  1 and 100 loads: two minutes
    uv run --group bench python benchmarks/tables.py --loads 10000    one size
    uv run --group bench python benchmarks/tables.py --write          1, 100 and 10,000, and its page: an hour

Loads of ten documents are made without a service. The first sync commits all of them (a backlog), the second one a
single load that has landed since. Own write: `write_deltalake(mode="append")` or pyiceberg's `Table.append`, with the
rows in memory, and remembers nothing. On S3 (moto in a
process of its own, which searches all keys of a bucket for each listing) the requests are counted, by kind.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import made_lakes
from benchmark_report import DOCS, machine
from ledger_growth import s3_server
from made_lakes import BEGAN, Shape

from weblake import read, tables
from weblake.dataset.root import open_dataset

SIZES = (1, 100, 10_000)
DOCUMENTS = 10
PAGE = DOCS / "benchmarks.md"
BEGIN, END = "<!-- table figures -->", "<!-- end of table figures -->"


@dataclass
class Place:
    """Where a lake is: its root, the options of the catalog, and the counter of requests."""

    root: str
    beside: str
    catalog: str
    region: dict[str, str]
    count: Callable[[], Counter[str]]

    def options(self, format: str) -> dict[str, str] | None:
        if format == "delta":
            return None
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.catalog}",
            "warehouse": f"{self.beside}/warehouse",
        } | self.region


@contextmanager
def on_disk(lake: Path) -> Iterator[Place]:
    """A copy of a lake on local disk; no requests are counted."""
    with tempfile.TemporaryDirectory(prefix="weblake-tables-") as folder:
        shutil.copytree(lake, f"{folder}/lake")
        yield Place(f"{folder}/lake", f"file://{folder}", f"{folder}/catalog.db", {}, Counter)


@contextmanager
def on_s3(lake: Path) -> Iterator[Place]:
    """A copy of a lake on an S3 server."""
    files = ((str(path.relative_to(lake)), path.read_bytes()) for path in sorted(lake.rglob("*")) if path.is_file())
    with tempfile.TemporaryDirectory() as folder, s3_server(files) as (address, count):
        region = {"s3.endpoint": address, "s3.region": "us-east-1"}
        yield Place("s3://lake/root", "s3://lake", f"{folder}/catalog.db", region, count)


def timed(place: Place, do: Callable[[], object]) -> tuple[float, Counter[str]]:
    before, begun = place.count(), time.perf_counter()
    do()
    return time.perf_counter() - begun, place.count() - before


def one_more(place: Place, number: int) -> None:
    """Land one more load, as a landing leaves it: its file and its records."""
    rng = random.Random(number)
    created = BEGAN + timedelta(days=1, seconds=number)
    load = made_lakes.batch_intent(rng, created, DOCUMENTS)
    dataset = open_dataset(place.root)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "_weblake/ledger").mkdir(parents=True)
        job = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        made_lakes.land(Path(folder), load, job, number, Shape(1, DOCUMENTS, 1), made_lakes.texts(rng), rng)
        for path in (path for path in Path(folder).rglob("*") if path.is_file()):
            dataset.storage.create(str(path.relative_to(folder)), path.read_bytes())


def open_views(place: Place, format: str) -> dict[str, Callable[[], object]]:
    """What opens the table and counts its rows, by library."""
    import polars

    if format == "delta":
        from deltalake import DeltaTable

        location = f"{place.root}/delta/documents"
        return {
            "deltalake": lambda: DeltaTable(location).count(),
            "Polars": lambda: polars.scan_delta(location).select(polars.len()).collect(),
        }
    from pyiceberg.catalog import load_catalog

    def table() -> Any:
        return load_catalog("lake", **(place.options(format) or {})).load_table("web.documents")

    return {
        "pyiceberg": lambda: table().scan().count(),
        "Polars": lambda: polars.scan_iceberg(table()).select(polars.len()).collect(),
    }


def own_write(place: Place, format: str) -> tuple[float, Counter[str]]:
    """Write the rows of the lake with the format's library, into a table of its own."""
    rows = read(place.root).to_table()
    if format == "delta":
        from deltalake import write_deltalake

        return timed(place, lambda: write_deltalake(f"{place.root}-own", rows, mode="append"))
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **(place.options(format) or {}))
    table = catalog.create_table("web.own", schema=rows.schema)
    return timed(place, lambda: table.append(rows))


def measured(place: Place, format: str, loads: int) -> dict[str, tuple[float, Counter[str]]]:
    """Time and requests of each step, by its name."""
    options = place.options(format)
    named = {"catalog": "lake", "identifier": "web.documents"} if format == "iceberg" else {}
    tables.add(place.root, format, table_options=options, **named)  # type: ignore[arg-type]
    found = {"backlog": timed(place, lambda: tables.sync(place.root, table_options=options))}
    one_more(place, 1)  # what is imported and opened once
    tables.sync(place.root, table_options=options)
    one_more(place, 2)
    found["one load"] = timed(place, lambda: tables.sync(place.root, table_options=options))
    found["nothing"] = timed(place, lambda: tables.sync(place.root, table_options=options))
    found["status"] = timed(place, lambda: tables.status(place.root, table_options=options))
    (status,) = tables.status(place.root, table_options=options)
    assert status.in_step, status
    assert status.loads == loads + 2
    for library, view in open_views(place, format).items():
        view()
        found[f"open: {library}"] = timed(place, view)
    found["own write"] = own_write(place, format)
    return found


def lines_of(format: str, storage: str, loads: int, found: dict[str, tuple[float, Counter[str]]]) -> list[str]:
    own = found["own write"][0]
    lines = []
    for step, (seconds, requests) in found.items():
        ratio = f"{seconds / own:.2f}" if step == "backlog" else ""
        kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(requests.items()))
        each = f"{requests.total()} ({kinds})" if requests else ""
        lines.append(f"| {format} | {storage} | {loads:,} | {step} | {seconds:.3f} | {ratio} | {each} |")
    return lines


def main() -> None:
    """Measure and print; with --write, also into docs/development/benchmarks.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, nargs="*", help="numbers of loads")
    parser.add_argument("--storage", choices=("disk", "s3"), help="only on this storage")
    parser.add_argument("--write", action="store_true", help=f"all sizes, and {PAGE.name}")
    given = parser.parse_args()
    lines = ["| format | storage | loads | step | s | over the own write | requests |", "|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    with tempfile.TemporaryDirectory(prefix="weblake-lakes-") as folder:
        for loads in given.loads or (SIZES if given.write else SIZES[:2]):
            made_lakes.SHAPES[f"tables-{loads}"] = Shape(loads, DOCUMENTS, min(loads, 100))
            lake = made_lakes.make(Path(folder), f"tables-{loads}")
            (lake / "made").unlink()
            for name, storage in (("disk", on_disk), ("s3", on_s3)):
                if given.storage in (None, name):
                    for format in ("delta", "iceberg"):
                        with storage(lake) as place:
                            found = lines_of(format, name, loads, measured(place, format, loads))
                        print("\n".join(found), flush=True)
                        lines += found
    if given.write:
        text = PAGE.read_text()
        before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        PAGE.write_text("\n".join([before, "", machine(1), "", *lines, "", after]))


if __name__ == "__main__":
    main()
