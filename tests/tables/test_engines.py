"""Engines that weblake does not use read the tables: the same loads, rows and values as the Parquet files have.

Nightly: the engines are installed into an environment of their own (engines.txt).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from own_environment import environment
from pyiceberg.catalog import load_catalog
from read_with_engines import plain
from task_lab import RETRY, TaskLab, task_lab

import weblake
from weblake import tables
from weblake.arrow import arrays, schemas
from weblake.arrow.parquet import ParquetFile
from weblake.dataset import layout
from weblake.dataset.records import Done, Intent, Job
from weblake.receipt import Receipt

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

HERE = Path(__file__).parent
LABS = HERE.parent / "labs"
ENGINES = {
    "delta": ["duckdb", "polars", "pandas", "chdb", "sail"],
    "iceberg": ["duckdb", "polars", "pyiceberg", "pandas", "chdb", "sail"],
}
READERS = [f"{engine}_{format}" for format, engines in ENGINES.items() for engine in engines]
STAGES = ("added", "replaced", "maintained")
COLUMNS = schemas.DOCUMENTS.names


@dataclass
class Lake:
    """A dataset with both tables, and what each engine has read of them at each stage."""

    #: The rows of each load, by stage: from the ledger, from the Parquet files, and as an engine read them.
    ledger: dict[str, dict[str, int]]
    files: dict[str, dict[str, int]]
    read: dict[str, dict[str, dict[str, Any]]]
    #: The values of each column at the first stage.
    values: dict[str, list[Any]]


def full_load(lab: TaskLab) -> None:
    """Write a load with a value in each column, and a row with none where that is possible."""
    created = datetime(2026, 11, 20, 6, tzinfo=timezone.utc)
    load = Intent(
        load_id="f" * 16,
        kind="batch_scrape",
        endpoint="batch_scrape",
        created_at=created.isoformat(),
        request_sha256="ab" * 16,
        submitted=2,
    )
    row: dict[str, Any] = {"load_id": load.load_id, "job_id": "job", "job_kind": load.kind, "loaded_at": created}
    row |= {"url": "http://pages.test/full", "source_url": "http://pages.test/full", "repaired": False}
    full = {name: f"{name} ü" for name in COLUMNS if schemas.DOCUMENTS.field(name).type in _TEXTS}
    full |= {"og_locale_alternate": ["de", "en"], "links": ["a", "b"], "images": [], "status_code": 200}
    full |= {"concurrency_limited": True, "concurrency_queue_duration_ms": 2**40, "metadata": {"k ü": "v", "l": "w"}}
    full |= {
        "actions": {
            "screenshots": ["s"],
            "scrapes": [{"url": "u", "html": "h"}],
            "javascript_returns": [{"type": "t", "value": "v"}],
            "pdfs": None,
        },
        "change_tracking": {
            "previous_scrape_at": created,
            "change_status": "changed",
            "visibility": "visible",
            "diff": "d",
            "json": None,
        },
    }
    rows = [{**full, **row, "position": 0}, {**row, "position": 1}]
    name = layout.load_path("documents", lab.keys, created, load.load_id)
    path = lab.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    receipt = Receipt(load.load_id, load.kind, "job", "completed", complete=True, submitted=2, stored=2)
    with ParquetFile(path, schemas.DOCUMENTS) as file:
        file.write(arrays.record_batch(schemas.DOCUMENTS, rows))
        written = file.close(json.dumps(receipt.to_dict(files=False)).encode())
    landed = Receipt.from_dict(
        {**receipt.to_dict(), "files": [{"path": name, "rows": written.rows, "bytes": written.bytes}]}
    )
    records = {
        "": load,
        ".job": Job(load_id=load.load_id, job_id="job", kind=load.kind, at=created.isoformat()),
        ".done": Done(load_id=load.load_id, at=created.isoformat(), receipt=landed.to_dict()),
    }
    for step, record in records.items():
        (lab.root / layout.LEDGER / f"{load.load_id}{step}.json").write_bytes(msgspec.json.encode(record))


_TEXTS = {schemas.DOCUMENTS.field("url").type, schemas.DOCUMENTS.field("markdown").type}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the engines."""
    return Path(environment(tmp_path_factory.mktemp("engines") / "env", ["-r", str(HERE / "engines.txt")]))


@pytest.fixture(scope="module")
def lake(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    options = {"delta": None, "iceberg": {"type": "sql", "uri": uri, "warehouse": warehouse}}
    lake = Lake({}, {}, {}, {})
    with task_lab(folder) as lab:

        def land(run: str, day: str) -> None:
            lab.run, lab.keys = run, {"day": day}
            lab.land(RETRY)

        def read(stage: str) -> None:
            for format, how in options.items():
                tables.sync(lab.root, format=format, table_options=how)
                (status,) = tables.status(lab.root, format=format, table_options=how)
                assert status.in_step, status
            command = [str(python), str(LABS / "read_with_engines.py")]
            columns = json.dumps(COLUMNS if stage == "added" else [])
            env = os.environ | {"TZ": "UTC", "DATASET": str(lab.root), "CATALOG_URI": uri, "WAREHOUSE": warehouse}
            env["LAKE_COLUMNS"] = columns
            lake.read[stage] = {}
            # One process cannot have a session of Spark and one of Spark Connect, which Sail is used with.
            for in_spark_connect in (False, True):
                readers = [name for name in READERS if name.startswith("sail_") is in_spark_connect]
                # ClickHouse reads files below its working directory only.
                done = subprocess.run(
                    [*command, *readers], env=env, cwd=folder, capture_output=True, text=True, timeout=900
                )
                assert done.returncode == 0, done.stderr[-5000:]
                lake.read[stage] |= json.loads(done.stdout.splitlines()[-1])
            lake.ledger[stage], lake.files[stage] = _of_ledger(lab), _of_files(lab)

        land("run-1", "2026-11-21")
        land("run-2", "2026-11-22")
        full_load(lab)
        tables.add(lab.root, "delta")
        tables.add(lab.root, "iceberg", catalog="lake", identifier="web.documents", table_options=options["iceberg"])
        read("added")
        whole = weblake.read(lab.root).to_table().sort_by([("load_id", "ascending"), ("position", "ascending")])
        lake.values = {name: [plain(value) for value in whole.column(name).to_pylist()] for name in COLUMNS}
        land("run-3", "2026-11-21")
        read("replaced")
        table = DeltaTable(lab.root / "delta" / "documents")
        table.optimize.compact()
        table.create_checkpoint()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        found = load_catalog("lake", **(options["iceberg"] or {})).load_table("web.documents")
        oldest = found.metadata.snapshots[0].snapshot_id
        found.maintenance.expire_snapshots().by_id(oldest).commit()
        land("run-4", "2026-11-22")
        read("maintained")
    return lake


def _of_ledger(lab: TaskLab) -> dict[str, int]:
    """The rows of each load that counts, as their receipts say."""
    from weblake.dataset import ledger_listing

    found = {}
    for load in ledger_listing.loads_of(lab.dataset.ledger, ledger_listing.steps(lab.dataset.ledger)):
        if load.retired is None and load.done is not None:
            found[load.load_id] = sum(file.rows for file in Receipt.from_dict(load.done.receipt).files)
    return found


def _of_files(lab: TaskLab) -> dict[str, int]:
    """The rows of each load in its own file."""
    rows: Counter[str] = Counter()
    for path in lab.root.glob("documents/**/*.parquet"):
        rows.update(pq.ParquetFile(path).read(columns=["load_id"]).column(0).to_pylist())
    return dict(rows)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("stage", STAGES)
def test_the_loads_are_those_of_the_ledger_and_the_files(lake: Lake, reader: str, stage: str) -> None:
    assert lake.read[stage][reader]["loads"] == lake.ledger[stage] == lake.files[stage]
    found, expected = lake.read[stage][reader]["of_url"]
    assert found == expected > 0


@pytest.mark.parametrize("reader", READERS)
def test_each_column_has_the_values_of_the_files(lake: Lake, reader: str) -> None:
    read: Mapping[str, Any] = lake.read["added"][reader]["columns"]
    expected: Mapping[str, Any] = lake.values
    if reader.startswith("chdb"):
        read, expected = _without_missing(read), _without_missing(expected)
    wrong = {name: (read[name], expected[name]) for name in COLUMNS if read[name] != expected[name]}
    assert not wrong


def _without_missing(value: Any) -> Any:
    """Return a value without the difference between missing and empty, which ClickHouse's lists and maps do not have.

    In a struct, a field that is missing is left out.
    """
    if isinstance(value, dict):
        found = {name: _without_missing(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each is not None} or None
    if isinstance(value, list):
        return [_without_missing(each) for each in value] or None
    return value
