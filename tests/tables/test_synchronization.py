"""Each load is in the table once: after a crash between any two steps, a lost reply, and with several syncs at once."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from catalogue import proves
from crash_steps import Crash, CrashSteps
from killed_syncs import sync_and_kill
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    ServiceUnavailableError,
    ValidationException,
)
from sqlalchemy.exc import OperationalError
from table_lab import FORMATS, add, kind_of, lake, land, lose_replies, options_of, row_counts, rows, sync
from task_lab import URLS, TaskLab

from weblake import tables
from weblake.arrow import arrays, schemas
from weblake.dataset.root import open_dataset
from weblake.errors import FeatureMissing, StorageRefused
from weblake.loads import recovery
from weblake.receipt import LandedFile, Receipt
from weblake.storage.local import LocalStorage
from weblake.tables import delta, formats, synchronization
from weblake.tables.formats import Change, CommitConflict, LoadFile
from weblake_service.page_failure import PageFailure

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("short_pauses")]


@pytest.mark.parametrize("format", FORMATS)
def test_a_crash_between_any_two_steps(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a sync are its records and its commits; each is the last one of a process once."""
    land(lab, "run-1", "a")
    add(lab, format)
    sync(lab, format)
    crash, steps = CrashSteps(), 0
    monkeypatch.setattr(LocalStorage, "create", crash.before(LocalStorage.create))
    monkeypatch.setattr(kind_of(format), "commit", crash.around(kind_of(format).commit))
    for crash_at in range(1, 40):
        crash.left = 0  # landings are not what is to crash
        current = [land(lab, f"run-{crash_at}-{day}", day) for day in ("a", "b")]
        crash.left = crash_at
        try:
            sync(lab, format)
        except Crash:
            steps += 1
        else:
            break
        crash.left = 0
        sync(lab, format)
        assert rows(lab, format) == dict.fromkeys(current, 3), f"after a crash at step {crash_at}"
    assert steps >= 6, "a commit before and after, and the records of four loads"


@proves(
    "2.10",
    at="src/weblake/tables/synchronization.py",
    line="self._look_up(loads.keys() | gone)",
    becomes="pass",
    case="iceberg",
)
@pytest.mark.smoke
@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_whose_reply_is_lost(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """First one that adds a load, then one that replaces it."""
    first = land(lab, "run-1", "a")
    add(lab, format)
    lost = lose_replies(kind_of(format), "commit", monkeypatch)
    sync(lab, format)
    assert rows(lab, format) == {first: 3}
    second = land(lab, "run-2", "a")
    sync(lab, format)
    assert rows(lab, format) == {second: 3}
    assert len(lost) == 2


@proves("2.10", at="src/weblake/tables/iceberg.py", line="_keep_commits(found)", becomes="pass")
def test_a_commit_that_the_client_of_the_catalog_repeats_after_a_lost_reply(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repetition fails, as if another program were first: pyiceberg then deletes the files of the commit.

    So it is with Glue, whose client (botocore) repeats a request up to ten times.
    """
    land(lab, "run-1", "a")
    add(lab, "iceberg")
    sync(lab, "iceberg")
    new = land(lab, "run-2", "a")
    real, refused = SqlCatalog.commit_table, list[CommitFailedException]()

    def commit_table(self: SqlCatalog, *args: Any) -> Any:
        real(self, *args)
        try:
            return real(self, *args)
        except CommitFailedException as error:
            refused.append(error)
            raise

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    done = sync(lab, "iceberg")
    assert len(refused) == 1
    assert rows(lab, "iceberg") == {new: 3}
    assert (done.added, done.rows) == ((new,), 3)


@pytest.mark.smoke
@pytest.mark.parametrize("format", FORMATS)
def test_another_sync_commits_first(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits between our look at the table and our commit: the same load, and another one."""
    ours = land(lab, "run-1", "a")
    add(lab, format)
    table = kind_of(format)
    real, others = table.commit, []

    def is_late(self: Any, *args: Any) -> None:
        monkeypatch.setattr(table, "commit", real)
        others.append(land(lab, "run-2", "b"))
        sync(lab, format)
        real(self, *args)

    monkeypatch.setattr(table, "commit", is_late)
    sync(lab, format)
    assert rows(lab, format) == dict.fromkeys([ours, *others], 3)


@proves(
    "2.10",
    at="src/weblake/tables/delta.py",
    line="[(load_id, REMOVED) for load_id in change.remove]",
    becomes="[(load_id, REMOVED) for load_id in change.present]",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_load_that_is_replaced_while_it_is_added(lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log names it as taken out, so it is never there beside its replacement."""
    land(lab, "run-1", "a")
    add(lab, format)
    table = kind_of(format)
    real, read, newer = table.commit, Change.batches, []

    def meanwhile(self: Any, change: Change) -> None:
        monkeypatch.setattr(table, "commit", real)
        batches = list(change.batches())  # the file is read before it is deleted
        newer.append(land(lab, "run-2", "a"))
        sync(lab, format)
        monkeypatch.setattr(Change, "batches", lambda _: iter(batches))
        try:
            real(self, change)
        finally:
            monkeypatch.setattr(Change, "batches", read)

    monkeypatch.setattr(table, "commit", meanwhile)
    assert sync(lab, format).added == ()
    assert rows(lab, format) == {newer[0]: 3}


@pytest.mark.parametrize("format", FORMATS)
def test_a_load_that_is_replaced_before_its_file_is_read(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is gone: it is no load that cannot be read, and the sync ends well."""
    land(lab, "run-1", "a")
    add(lab, format)
    real, newer = synchronization._Sync._schema, []

    def meanwhile(self: Any, files: Any) -> Any:
        monkeypatch.setattr(synchronization._Sync, "_schema", real)
        newer.append(land(lab, "run-2", "a"))
        return real(self, files)

    monkeypatch.setattr(synchronization._Sync, "_schema", meanwhile)
    sync(lab, format)
    sync(lab, format)
    assert rows(lab, format) == {newer[0]: 3}


@proves(
    "2.10",
    at="src/weblake/tables/synchronization.py",
    line="                successor |= dict.fromkeys(load.replaces, load_id)",
    becomes="                pass",
    case="delta-synced",
)
@pytest.mark.parametrize("synced", [True, False], ids=["synced", "not synced"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_sync_before_the_retirement_of_a_load_is_on_record(
    lab: TaskLab, format: str, synced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The landing is killed between its own done record and that of the old load: readers never see both."""
    other = land(lab, "run-0", "b")
    add(lab, format)
    sync(lab, format)
    old = land(lab, "run-1", "a")
    if synced:
        sync(lab, format)
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "retire", Mock(side_effect=Crash))
        with pytest.raises(Crash):
            land(lab, "run-2", "a")
    (new,) = sync(lab, format).added
    assert rows(lab, format) == {new: 3, other: 3}
    assert sync(lab, format, everything=True).added == ()
    assert tables.status(lab.root, table_options=options_of(lab, format))[0].in_step
    last = land(lab, "run-3", "a")
    assert sync(lab, format).added == (last,)
    assert old not in rows(lab, format)
    assert rows(lab, format) == {last: 3, other: 3}


@pytest.mark.parametrize("format", FORMATS)
def test_a_replacement_is_one_commit_in_a_backlog_of_many(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load was replaced twice; batches of three loads, and commits of one."""
    slots = "abcd"
    for slot in slots:
        land(lab, f"run-1{slot}", slot)
    add(lab, format)
    sync(lab, format)
    for run in ("run-2", "run-3"):
        new = [land(lab, f"{run}{slot}", slot) for slot in slots]
    monkeypatch.setattr(synchronization, "LOADS_PER_COMMIT", 3)
    monkeypatch.setattr(synchronization, "BYTES_PER_COMMIT", 1)
    counts = row_counts(lab, format, monkeypatch)
    sync(lab, format)
    assert set(counts) == {3 * len(slots)}
    assert rows(lab, format) == dict.fromkeys(new, 3)


def test_a_load_that_was_replaced_before_its_sync_is_never_added(lab: TaskLab) -> None:
    for number in range(3):
        last = land(lab, f"run-{number}", "a")
    add(lab, "delta")
    done = sync(lab, "delta")
    assert (done.added, done.removed, done.rows, done.table_rows) == ((last,), (), 3, 3)


@proves(
    "2.13",
    at="src/weblake/tables/synchronization.py",
    line="if self.left_out.keys() & {new, load_id}:",
    becomes="if self.left_out.keys() & {load_id}:",
    case="missing-delta",
)
@pytest.mark.parametrize(
    ("damage", "format"), [("missing", "delta"), ("missing", "iceberg"), ("cut off", "delta"), ("damaged", "iceberg")]
)
def test_a_load_that_cannot_be_read_is_left_out_and_named(lab: TaskLab, format: str, damage: str) -> None:
    """The others are committed; a replaced load stays until the one in its place can be read."""
    old = land(lab, "run-1", "a")
    add(lab, format)
    sync(lab, format)
    bad, good = land(lab, "run-2", "a"), land(lab, "run-3", "b")
    (file,) = lab.root.glob(f"documents/*/{bad}*.parquet")
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(
            whole[:-9] if damage == "cut off" else b"PAR1" + b"\xff" * (len(whole) // 2) + whole[len(whole) // 2 + 4 :]
        )
    for _ in range(2):
        with pytest.raises(StorageRefused, match=f"lacks loads, and is up to date otherwise: {bad}") as caught:
            sync(lab, format)
        assert caught.value.hint
        assert rows(lab, format) == {old: 3, good: 3}
    file.write_bytes(whole)
    assert sync(lab, format).added == (bad,)
    assert rows(lab, format) == {bad: 3, good: 3}


@pytest.mark.parametrize("format", FORMATS)
def test_a_record_that_cannot_be_read_stops_its_own_load_only(lab: TaskLab, format: str) -> None:
    damaged, other = land(lab, "run-1", "a"), land(lab, "run-2", "b")
    add(lab, format)
    record = lab.root / "_weblake" / "ledger" / f"{damaged}.done.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:-1])
    with pytest.raises(StorageRefused, match=f"{damaged}.done.json of .+ cannot be read"):
        sync(lab, format)
    assert rows(lab, format) == {other: 3}
    with pytest.raises(StorageRefused, match=f"{damaged}.done.json of .+ cannot be read"):
        tables.status(lab.root, table_options=options_of(lab, format))
    record.write_bytes(whole)
    assert sync(lab, format).added == (damaged,)


class Refused(Exception):
    """An error of a catalog or a library that nothing else tells about."""


#: Errors of a commit, and how often it is tried.
ATTEMPTS: list[tuple[Exception, int]] = [
    (ForbiddenError("no right to commit"), 1),
    (Refused("unknown"), 1),
    (ServiceUnavailableError("come again"), 8),
    (OSError("no route to the catalog"), 8),
    (ServerError("the catalog failed"), 8),
    (CommitFailedException("another program was first"), 8),
    (CommitStateUnknownException("the connection was closed"), 8),
    (ValidationException("another program was first"), 8),
    (OperationalError("INSERT", None, OSError("the database is locked")), 8),
]


def test_a_commit_that_always_fails(lab: TaskLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be a conflict is told at once, and what may be one after few attempts: no program has committed."""
    land(lab, "run-1", "a")
    add(lab, "iceberg")
    for error, calls in ATTEMPTS:
        with monkeypatch.context() as patched:
            fails = Mock(side_effect=error)
            patched.setattr(SqlCatalog, "commit_table", fails)
            with pytest.raises(StorageRefused) as caught:
                sync(lab, "iceberg")
        assert str(error).splitlines()[0] in caught.value.message
        assert caught.value.hint
        assert fails.call_count == calls, error
    assert sync(lab, "iceberg").rows == 3


def test_attempts_at_a_table_that_others_change_all_the_time_come_to_an_end(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(lab, "run-1", "a")
    add(lab, "delta")
    versions = iter(range(100))
    monkeypatch.setattr(delta.DeltaLakeTable, "version", property(lambda _: next(versions)))
    monkeypatch.setattr(delta.DeltaLakeTable, "commit", Mock(side_effect=CommitConflict("another program was first")))
    with pytest.raises(StorageRefused, match="documents in 30 attempts: another program was first") as caught:
        sync(lab, "delta")
    assert "sync again later" in str(caught.value)


def test_each_table_that_fails_is_named_and_the_others_get_their_loads(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_id = land(lab, "run-1", "a")
    add(lab, "iceberg")
    add(lab, "delta")
    with pytest.raises(StorageRefused, match="The Iceberg catalog 'lake' cannot be used"):
        tables.sync(lab.root)
    assert rows(lab, "delta") == {load_id: 3}
    shutil.rmtree(lab.root / "delta" / "documents")
    with pytest.raises(StorageRefused, match=r"Another table is not up to date either: .+ has no Delta Lake log"):
        tables.sync(lab.root)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(FeatureMissing, match="needs pyiceberg"):
        tables.sync(lab.root)


@proves(
    "2.12",
    at="src/weblake/tables/synchronization.py",
    line="columns.setdefault(each.name, each)",
    becomes="pass",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_columns_of_a_later_version_appear_and_an_older_one_leaves_them_alone(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Null in older rows; also if the older one commits the load that the later one has landed."""
    old = land(lab, "run-1", "a")
    add(lab, format)
    sync(lab, format)
    real = arrays.column_batch
    grown = {name: schema.insert(2, pa.field("later", pa.string())) for name, schema in schemas.TABLES.items()}
    with monkeypatch.context() as later:
        later.setattr(schemas, "TABLES", grown)
        later.setattr(schemas, "DOCUMENTS", grown["documents"])
        later.setattr(arrays, "column_batch", lambda s, n, columns: real(s, n, {**columns, "later": ["new"] * n}))
        new = land(lab, "run-2", "b")
    for run, day in (("run-3", "c"), ("run-4", "a")):
        last = land(lab, run, day)
        sync(lab, format)
    table = lake(lab, format)._table
    found = table.to_pyarrow_table() if format == "delta" else table.scan().to_arrow()
    values: dict[str, set[Any]] = {}
    for row in found.select(["load_id", "later"]).to_pylist():
        values.setdefault(row["load_id"], set()).add(row["later"])
    assert values[new] == {"new"}
    assert (values[last], len(values)) == ({None}, 3)
    assert old not in values
    assert tables.status(lab.root, table_options=options_of(lab, format))[0].in_step


@pytest.mark.parametrize("format", FORMATS)
def test_a_table_of_an_older_version_gains_the_computed_columns(
    lab: TaskLab, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a load that the older version has landed; what it has added to the table stays null."""
    computed = ["page_key", "content_sha256"]
    older = pa.schema([field for field in schemas.DOCUMENTS if field.name not in computed])
    added, new = land(lab, "run-1", "a"), land(lab, "run-2", "b")
    first, second = (next(lab.root.glob(f"documents/**/{load_id}-00000.parquet")) for load_id in (added, new))
    for path in (first, second):
        pq.write_table(pq.ParquetFile(path).read().drop_columns(computed).replace_schema_metadata(None), path)
    done = lab.root / f"_weblake/ledger/{new}.done.json"
    with monkeypatch.context() as before:
        before.setattr(schemas, "TABLES", {**schemas.TABLES, "documents": older})
        done.rename(lab.root / "later")
        add(lab, format)
        sync(lab, format)
    (lab.root / "later").rename(done)
    sync(lab, format)
    table = lake(lab, format)._table
    found = table.to_pyarrow_table() if format == "delta" else table.scan().to_arrow()
    values = {row["load_id"]: [row[name] for name in computed] for row in found.to_pylist() if row["position"] == 0}
    assert values[added] == [None, None]
    assert [len(value) for value in values[new]] == [len("pages.test/0"), 64]


def test_a_table_of_page_errors(lab: TaskLab) -> None:
    """A load without page errors is in the log, and adds no rows."""
    lab.web.failures[URLS[0]] = PageFailure("SCRAPE_SITE_ERROR", "It is down.")
    failed = land(lab, "run-1", "a")
    lab.web.failures.clear()
    land(lab, "run-2", "b")
    add(lab, "delta", table="page_errors")
    assert sync(lab, "delta").added == (failed,)
    assert rows(lab, "delta") == {failed: 1}
    assert sync(lab, "delta").version == 1
    receipt = Receipt("1", "crawl", "j", files=(LandedFile("page_errors/load_date=2026-11-21/1.parquet", 3, 900),))
    assert formats.file_of("documents", "1", receipt) == LoadFile("1", None, 0, 0)


@pytest.mark.parametrize("format", FORMATS)
def test_on_object_storage(
    lab: TaskLab, s3_root: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings come from the environment, as those of the dataset do."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    named: dict[str, Any] = {}
    options = None
    if format == "iceberg":  # the endpoint is that of the environment
        named = {"catalog": "lake", "identifier": "web.documents"}
        options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{s3_root}-warehouse"}
        options |= {"s3.region": "us-east-1"}
    lab.dataset = open_dataset(s3_root)
    first = land(lab, "run-1", "a b/ü%")
    tables.add(s3_root, format, table_options=options, **named)
    (done,) = tables.sync(s3_root, table_options=options)
    assert done.added == (first,)
    second = land(lab, "run-2", "a b/ü%")
    (done,) = tables.sync(s3_root, table_options=options)
    assert (done.added, done.removed) == ((second,), (first,))
    (status,) = tables.status(s3_root, table_options=options)
    assert (status.in_step, status.rows) == (True, 3)


@pytest.mark.parametrize("format", FORMATS)
def test_three_processes_that_are_killed(lab: TaskLab, format: str) -> None:
    """Processes sync without end, and one after the other is killed and replaced, while 60 loads land.

    Each of five slots is replaced again and again; 40 loads replace nothing.
    """
    land(lab, "run-0", "day-0")
    add(lab, format)

    def round_of(number: int) -> None:
        land(lab, f"run-{number}", f"day-{number % 5}")
        for other in range(2):
            land(lab, f"other-{number}-{other}", f"alone-{number}-{other}")

    sync_and_kill(
        lab.root,
        options_of(lab, format),
        errors=lab.root.parent / "errors",
        land=round_of,
        done=lambda: tables.status(lab.root, table_options=options_of(lab, format))[0].in_step,
    )
    sync(lab, format, everything=True)
    assert Counter(rows(lab, format).values()) == {3: 45}
    (status,) = tables.status(lab.root, table_options=options_of(lab, format))
    assert status.in_step, json.dumps(status.to_dict())
