"""Delta Lake and Iceberg tables of a TaskLab's dataset; the catalog is in SQLite beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from task_lab import RETRY, TaskLab

from weblake import tables
from weblake.tables import delta, iceberg

FORMATS = ("delta", "iceberg")


def options_of(lab: TaskLab, format: str) -> Mapping[str, str] | None:
    if format == "delta":
        return None
    beside = lab.root.parent
    return {"type": "sql", "uri": f"sqlite:///{beside}/catalog.db", "warehouse": f"file://{beside}/warehouse"}


def kind_of(format: str) -> Any:
    return delta.DeltaLakeTable if format == "delta" else iceberg.IcebergTable


def add(lab: TaskLab, format: str, **more: Any) -> None:
    named = {"catalog": "lake", "identifier": "web.documents"} if format == "iceberg" else {}
    tables.add(lab.root, format, table_options=options_of(lab, format), **named, **more)


def sync(lab: TaskLab, format: str, **more: Any) -> tables.SyncResult:
    return tables.sync(lab.root, table_options=options_of(lab, format), **more)[0]


def iceberg_table(lab: TaskLab) -> Table:
    return load_catalog("lake", **options_of(lab, "iceberg") or {}).load_table("web.documents")


def rows(lab: TaskLab, format: str) -> Mapping[str, int]:
    """The number of rows of each load, as the table has them."""
    if format == "delta":
        return delta.open_table(lab.dataset.storage, "documents").loads()
    options = options_of(lab, format)
    return iceberg.open_table(lab.dataset.storage, "documents", "lake", "web.documents", options).loads()


def land(lab: TaskLab, run: str, day: str) -> str:
    lab.run, lab.keys = run, {"day": day}
    return lab.land(RETRY).receipt.load_id
