"""Delta Lake and Iceberg tables of a TaskLab's dataset; the catalog is in SQLite beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from task_lab import RETRY, TaskLab

from weblake import tables
from weblake.tables import delta, iceberg
from weblake.tables.formats import CommitConflict
from weblake.tables.registration import open_lake_table

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


def lake(lab: TaskLab, format: str) -> Any:
    """The table, opened as a sync opens it."""
    (table,) = [each for each in tables.list_tables(lab.root) if each.format == format]
    return open_lake_table(lab.dataset, table, options_of(lab, format))


def rows(lab: TaskLab, format: str) -> Mapping[str, int]:
    """The number of rows of each load, as the table has them."""
    found: Mapping[str, int] = lake(lab, format).loads()
    return found


def land(lab: TaskLab, run: str, day: str) -> str:
    lab.run, lab.keys = run, {"day": day}
    return lab.land(RETRY).receipt.load_id


def row_counts(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets the number of rows of the table after each commit."""
    kind, counts = kind_of(format), list[int]()
    real = kind.commit

    def commit(self: Any, *args: Any) -> None:
        real(self, *args)
        counts.append(sum(rows(lab, format).values()))

    monkeypatch.setattr(kind, "commit", commit)
    return counts


def lose_replies(kind: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> list[int | str]:
    """Have each commit succeed without a reply, and return a list that gets its version."""
    real, versions = getattr(kind, method), list[int | str]()

    def loses_its_reply(self: Any, *args: Any) -> None:
        real(self, *args)
        versions.append(self.version)
        raise CommitConflict("the connection was closed")

    monkeypatch.setattr(kind, method, loses_its_reply)
    return versions
