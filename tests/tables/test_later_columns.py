"""Columns of a later weblake appear in a table by its format's own means, and an older weblake leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from catalogue import proves
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from task_lab import CLEAR, RETRY, TaskLab

from weblake import tables
from weblake.api.models import UsagePeriod
from weblake.arrow import arrays, schemas
from weblake.jobs.usage_reports import Report
from weblake.loads.usage import land_report
from weblake.tables import delta, iceberg

FORMATS = ("delta", "iceberg")
#: One format in the default tier; the other takes a second more.
BY_TIER = ("delta", pytest.param("iceberg", marks=pytest.mark.system))
Later = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """A block in which weblake is a later one: each table has the column `later`, in the middle, with the text new."""
    real = arrays.column_batch

    def column_batch(schema: pa.Schema, rows: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
        return real(schema, rows, {**columns, "later": ["new"] * rows})

    @contextmanager
    def block() -> Iterator[None]:
        with monkeypatch.context() as patch:
            grown = {name: schema.insert(2, pa.field("later", pa.string())) for name, schema in schemas.TABLES.items()}
            patch.setattr(schemas, "TABLES", grown)
            for name, schema in grown.items():
                patch.setattr(schemas, name.upper(), schema)
            patch.setattr(arrays, "column_batch", column_batch)
            yield

    return block


class Tables:
    """The tables of a lab in one format."""

    def __init__(self, lab: TaskLab, format: str) -> None:
        self.lab, self.format, beside = lab, format, lab.root.parent
        self.options = None
        if format == "iceberg":
            warehouse = f"file://{beside}/warehouse"
            self.options = {"type": "sql", "uri": f"sqlite:///{beside}/catalog.db", "warehouse": warehouse}

    def land(self, run: str, day: str | None, task: Any = RETRY) -> str:
        self.lab.run, self.lab.keys = run, None if day is None else {"day": day}
        return self.lab.land(task).receipt.load_id

    def usage(self, credits: float) -> None:
        period = UsagePeriod(start_date="2026-11-01T00:00:00Z", end_date=None, api_key=None, total_credits=credits)
        land_report(Report("credits", (period,), datetime.now(timezone.utc)), self.lab.dataset)

    def add(self, table: str = "documents") -> None:
        named = {"catalog": "lake", "identifier": f"web.{table}"} if self.format == "iceberg" else {}
        tables.add(self.lab.root, self.format, table=table, table_options=self.options, keep_days=0, **named)

    def sync(self) -> list[tables.SyncResult]:
        return tables.sync(self.lab.root, table_options=self.options)

    def rows(self, table: str = "documents") -> pa.Table:
        if self.format == "delta":
            folder = f"delta/{table}" if table == "usage_periods" else table
            return DeltaTable(self.lab.root / folder).to_pyarrow_table()
        return load_catalog("lake", **dict(self.options or {})).load_table(f"web.{table}").scan().to_arrow()

    def later(self) -> dict[str, list[str | None]]:
        """The values of the column `later`, by load."""
        found: dict[str, list[str | None]] = {}
        for row in self.rows().select(["load_id", "later"]).to_pylist():
            found.setdefault(row["load_id"], []).append(row["later"])
        return found

    def in_step(self) -> bool:
        return all(each.in_step for each in tables.status(self.lab.root, table_options=self.options))


@pytest.mark.parametrize("format", BY_TIER)
def test_a_later_column_appears_and_is_null_in_old_rows(lab: TaskLab, format: str, later: Later) -> None:
    lake = Tables(lab, format)
    old = lake.land("run-1", "a")
    lake.add()
    lake.sync()
    with later():
        new = lake.land("run-2", "b")
        lake.sync()
        assert lake.later() == {old: [None] * 3, new: ["new"] * 3}
        assert lake.in_step()


@pytest.mark.parametrize("format", BY_TIER)
def test_an_older_weblake_commits_to_the_table_of_a_later_one(lab: TaskLab, format: str, later: Later) -> None:
    """The unknown column stands among the known ones and stays; also a commit without a file and a removal work."""
    lake = Tables(lab, format)
    with later():
        first, stays = lake.land("run-1", "a"), lake.land("run-0", "b")
        lake.add()
        lake.add("page_errors")
        lake.sync()
        columns = lake.rows().column_names
        assert 0 < columns.index("later") < len(columns) - 1
    columns = lake.rows().column_names
    last = lake.land("run-2", "a")
    assert [(each.added, each.removed) for each in lake.sync()] == [((last,), (first,)), ((), (first,))]
    assert lake.rows().column_names == columns
    assert lake.later() == {stays: ["new"] * 3, last: [None] * 3}
    assert lake.in_step()


@pytest.mark.system
@proves(
    "2.12",
    at="src/weblake/tables/iceberg.py",
    line="            if self._add_columns(landed.values()):",
    becomes="            if False:",
    case="iceberg",
)
@pytest.mark.parametrize("format", FORMATS)
def test_an_older_weblake_commits_a_load_of_a_later_one(lab: TaskLab, format: str, later: Later) -> None:
    lake = Tables(lab, format)
    old = lake.land("run-1", "a")
    lake.add()
    lake.sync()
    with later():
        new = lake.land("run-2", "b")
    (done,) = lake.sync()
    assert done.added == (new,)
    assert lake.in_step()
    with later():
        lake.land("run-3", "c")
        lake.sync()
        found = lake.later()
        assert (found[old], found[new]) == ([None] * 3, ["new"] * 3)


def test_an_older_weblake_commits_loads_of_both_at_once(lab: TaskLab, later: Later) -> None:
    """Whichever file of the commit has the column that the table lacks."""
    lake = Tables(lab, "iceberg")
    older = {lake.land("run-1", "a")}
    lake.add()
    with later():
        new = lake.land("run-2", "b")
    older |= {lake.land(f"run-{number}", f"{number}") for number in (3, 4)}
    assert min(older) < new < max(older), "the order of the files"
    (done,) = lake.sync()
    assert set(done.added) == {new, *older}
    assert lake.later() == {new: ["new"] * 3, **dict.fromkeys(older, [None] * 3)}


@pytest.mark.system
@proves(
    "2.12",
    at="src/weblake/tables/delta.py",
    line="        if self._add_columns(whole.schema):",
    becomes="        if False:",
    case="a later one lands",
)
@pytest.mark.parametrize("who", ["an older one lands", "a later one lands"])
def test_an_older_weblake_replaces_rows_in_a_merged_file(lab: TaskLab, who: str, later: Later) -> None:
    """The rows of the replacement are written by deltalake, with the columns of the file and of the table."""
    lake = Tables(lab, "delta")

    def two() -> tuple[str, str]:
        found = lake.land("run-1", None), lake.land("run-2", None)
        lake.add()
        lake.sync()
        return found

    if who == "an older one lands":
        with later():
            stays, _ = two()
        values = ["new"] * 3, [None] * 3
    else:
        stays, _ = two()
        values = [None] * 3, ["new"] * 3
    assert DeltaTable(lab.root / "documents").optimize.compact()["numFilesAdded"] == 1
    if who == "an older one lands":
        third = lake.land("run-2", None, CLEAR)
    else:
        with later():
            third = lake.land("run-2", None, CLEAR)
    lake.sync()
    assert lake.later() == {stays: values[0], third: values[1]}
    assert lake.in_step()


@pytest.mark.system
@pytest.mark.parametrize("format", FORMATS)
def test_an_older_and_a_later_weblake_sync_usage(lab: TaskLab, format: str, later: Later) -> None:
    lake = Tables(lab, format)
    lake.usage(1)
    lake.add("usage_periods")
    lake.sync()
    with later():
        lake.usage(2)
    lake.sync()  # by the older one, what the later one has landed
    assert lake.in_step()
    with later():
        lake.usage(3)
        lake.sync()
        assert lake.rows("usage_periods").select(["total_credits", "later"]).to_pylist() == [
            {"total_credits": 3, "later": "new"}
        ]
    lake.usage(4)
    lake.sync()
    assert lake.rows("usage_periods").select(["total_credits", "later"]).to_pylist() == [
        {"total_credits": 4, "later": None}
    ]
    assert lake.in_step()


@pytest.mark.system
@pytest.mark.parametrize("format", FORMATS)
def test_two_syncs_add_a_later_column_at_once(
    lab: TaskLab, format: str, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Tables(lab, format)
    lake.land("run-1", "a")
    lake.add()
    lake.sync()
    kind: Any = delta.DeltaLakeTable if format == "delta" else iceberg.IcebergTable
    real = kind._add_columns

    def is_late(self: Any, wanted: Any) -> Any:
        monkeypatch.setattr(kind, "_add_columns", real)
        lake.sync()
        return real(self, wanted)

    with later():
        new = lake.land("run-2", "b")
        monkeypatch.setattr(kind, "_add_columns", is_late)
        lake.sync()
        assert lake.rows().column_names.count("later") == 1
        assert lake.later()[new] == ["new"] * 3
