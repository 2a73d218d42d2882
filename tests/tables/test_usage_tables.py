"""Tables of usage_periods and activity: of each file that the dataset replaces, the newest content is there once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from catalogue import proves
from command_in_process import run_command
from crash_steps import Crash, CrashSteps
from deletion_vectors import delete_first_row
from deltalake import DeltaTable, write_deltalake
from killed_syncs import sync_and_kill
from pyiceberg.catalog import load_catalog
from table_lab import lose_replies

import weblake
from weblake import tables
from weblake.api.models import ActivityEntry, UsagePeriod
from weblake.dataset import layout, registered_tables
from weblake.dataset.identity import content_digest
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import StorageRefused
from weblake.jobs.usage_reports import Report
from weblake.loads.usage import land_activity, land_report
from weblake.storage.local import LocalStorage
from weblake.tables import delta, formats, iceberg, replacing
from weblake.tables.formats import CommitConflict

FORMATS = ("delta", "iceberg")
#: One format in the default tier; the other takes a second more.
BY_TIER = ("delta", pytest.param("iceberg", marks=pytest.mark.system))
#: Of the tests marked system.
BY_HIGHER_TIER = ("delta", pytest.param("iceberg", marks=pytest.mark.nightly))
IDENTIFIER = "web.usage"


@dataclass
class UsageLab:
    """A dataset with usage, and a table of it."""

    root: str
    format: str
    options: Mapping[str, str] | None = None
    table: str = "usage_periods"

    @property
    def dataset(self) -> Dataset:
        return open_dataset(self.root)

    @property
    def kind(self) -> Any:
        return delta.DeltaLakeTable if self.format == "delta" else iceberg.IcebergTable

    def land(self, credits: float, *months: str) -> None:
        """Land a report in which each month has these credits."""
        periods = tuple(
            UsagePeriod(start_date=f"{month}-01T00:00:00Z", end_date=None, api_key=None, total_credits=credits)
            for month in months or ("2026-11",)
        )
        land_report(Report("credits", periods, datetime.now(timezone.utc)), self.dataset)

    def add(self) -> tables.RegisteredTable:
        named = {"catalog": "lake", "identifier": IDENTIFIER} if self.format == "iceberg" else {}
        return tables.add(self.root, self.format, table=self.table, table_options=self.options, **named)

    def sync(self, **more: Any) -> tables.SyncResult:
        (done,) = tables.sync(self.root, format=self.format, table_options=self.options, **more)
        return done

    def status(self) -> tables.TableStatus:
        (found,) = tables.status(self.root, format=self.format, table_options=self.options)
        return found

    def rows(self) -> pa.Table:
        """The table's rows, read by a library of its format."""
        if self.format == "delta":
            return DeltaTable(f"{self.root}/delta/{self.table}").to_pyarrow_table()
        return load_catalog("lake", **dict(self.options or {})).load_table(IDENTIFIER).scan().to_arrow()

    def credits(self) -> list[tuple[str, float]]:
        found = self.rows().select(["period", "total_credits"]).to_pylist()
        return sorted((row["period"], row["total_credits"]) for row in found)


def lab_of(root: str, format: str, beside: Path) -> UsageLab:
    if format == "delta":
        return UsageLab(root, format)
    return UsageLab(
        root,
        format,
        {"type": "sql", "uri": f"sqlite:///{beside}/catalog.db", "warehouse": f"file://{beside}/warehouse"},
    )


@pytest.fixture
def lab(local_root: str, format: str, tmp_path: Path) -> UsageLab:
    return lab_of(local_root, format, tmp_path)


def path_of(month: str) -> str:
    return layout.usage_path("credits", month)


@proves(
    "2.11",
    at="src/weblake/tables/replacing.py",
    line="if there.get(file_id) == (digest,):",
    becomes="if False:",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_a_replaced_period_is_one_commit(lab: UsageLab) -> None:
    lab.land(1, "2026-10", "2026-11")
    lab.add()
    done = lab.sync()
    assert (done.added, done.removed) == ((path_of("2026-10"), path_of("2026-11")), ())
    assert (done.rows, done.table_rows) == (2, 2)
    lab.land(5, "2026-11", "2026-12")
    status = lab.status()
    assert (status.different, status.missing) == ((path_of("2026-11"),), (path_of("2026-12"),))
    replaced = lab.sync()
    assert sorted(replaced.added) == [path_of("2026-11"), path_of("2026-12")]
    assert replaced.removed == (path_of("2026-11"),)
    assert lab.credits() == [("2026-10", 1), ("2026-11", 5), ("2026-12", 5)]
    again = lab.sync(everything=True)
    assert (again.added, again.version, again.table_rows) == ((), replaced.version, 3)
    status = lab.status()
    assert (status.in_step, status.loads, status.rows) == (True, 3, 3)
    assert lab.dataset.storage.list("_weblake/uncommitted") == []
    if lab.format == "delta":
        assert replaced.version == done.version + 1


@pytest.mark.parametrize("format", BY_TIER)
def test_readers_find_the_rows_of_the_dataset(lab: UsageLab) -> None:
    """Each reader gets the same rows and columns from the table and from the dataset, which does not have its files."""
    lab.table = "activity"
    for ids in ("ab", "bc"):
        entries = [ActivityEntry(id=one, endpoint="scrape", created_at="2026-11-20T10:00:00Z") for one in ids]
        land_activity(entries, lab.dataset)
        if ids == "ab":
            lab.add()
        lab.sync()
    read = weblake.read(lab.root, "activity")
    assert read.to_table().column("id").to_pylist() == ["a", "b", "c"]
    found = lab.rows()
    assert found.select(read.schema().names).sort_by("id").to_pylist() == read.to_table().to_pylist()
    expected = read.to_polars()
    if lab.format == "delta":
        frame = polars.scan_delta(f"{lab.root}/delta/activity").collect()
        pandas = DeltaTable(f"{lab.root}/delta/activity").to_pandas()
    else:
        table = load_catalog("lake", **dict(lab.options or {})).load_table(IDENTIFIER)
        frame = polars.scan_iceberg(table).collect()
        pandas = table.scan().to_pandas()
    assert frame.select(expected.columns).sort("id").equals(expected)
    assert sorted(pandas["id"]) == ["a", "b", "c"]
    plain = polars.scan_parquet(f"{lab.root}/activity/*=*/**/*.parquet").collect()
    assert plain.height == 3
    assert len(weblake.read(lab.root, "activity").files()) == 1


@proves(
    "2.11",
    at="src/weblake/dataset/registered_tables.py",
    line='return announced == digest or when < f"{now - REPLACEMENT:{_TIME_FORMAT}}"',
    becomes="return True",
)
@pytest.mark.parametrize("format", ["delta"])
def test_a_sync_between_a_replacement_and_its_entry_leaves_the_entry(
    lab: UsageLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.land(1)
    complete(lab)
    real = LocalStorage.replace

    def replace(self: LocalStorage, *args: Any) -> None:
        monkeypatch.setattr(LocalStorage, "replace", real)
        assert lab.sync().added == ()
        real(self, *args)

    monkeypatch.setattr(LocalStorage, "replace", replace)
    lab.land(2)
    assert lab.sync().added == (path_of("2026-11"),)
    assert lab.credits() == [("2026-11", 2)]
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@proves(
    "2.11",
    at="src/weblake/loads/usage.py",
    line="registered_tables.mark_replaced(storage, name, content_digest(written.path.read_bytes()))",
    becomes="pass",
)
@pytest.mark.parametrize("format", ["delta"])
def test_after_its_first_day_a_sync_reads_the_replaced_files_only(
    lab: UsageLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.land(1, "2026-10", "2026-11")
    complete(lab)
    real, read = LocalStorage.read, []

    def counted(self: LocalStorage, name: str) -> bytes | None:
        read.append(name)
        return real(self, name)

    monkeypatch.setattr(LocalStorage, "read", counted)
    lab.sync()
    assert not [name for name in read if name.endswith(".parquet")]
    lab.land(2, "2026-11")
    lab.land(3, "2026-11")
    read.clear()  # a landing reads the file that it replaces
    lab.sync()
    assert [name for name in read if name.endswith(".parquet")] == [path_of("2026-11")]
    entries = lab.dataset.storage.list("_weblake/uncommitted")
    assert len(entries) == 1, "of a content that was replaced before a sync: it may still have to come, for a day"
    monkeypatch.setattr(registered_tables, "REPLACEMENT", timedelta(seconds=-2))
    lab.sync()
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@pytest.mark.parametrize("format", ["delta"])
def test_in_its_first_day_a_sync_finds_a_replacement_that_left_no_entry(
    lab: UsageLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.land(1)
    lab.add()
    lab.sync()

    def replaced_without_an_entry(credits: int) -> tuple[str, ...]:
        lab.land(credits)
        for name in lab.dataset.storage.list("_weblake/uncommitted"):
            lab.dataset.storage.delete(name)
        return lab.sync().added

    assert replaced_without_an_entry(2) == (path_of("2026-11"),)
    monkeypatch.setattr(replacing, "REPLACEMENT", timedelta(0))
    lab.sync()  # its first day is over
    assert replaced_without_an_entry(3) == ()
    assert lab.sync(everything=True).added == (path_of("2026-11"),)
    assert lab.credits() == [("2026-11", 3)]


@pytest.mark.parametrize("format", ["delta"])
def test_a_file_that_the_table_holds_twice_is_replaced(lab: UsageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.land(1)
    lab.add()
    lab.sync()
    real = delta.DeltaLakeTable.contents
    twice = {file_id: digests * 2 for file_id, digests in real(lake_of(lab)).items()}
    with monkeypatch.context() as patched:
        patched.setattr(delta.DeltaLakeTable, "contents", lambda table: twice)
        assert lab.sync(everything=True).added == (path_of("2026-11"),)
        assert lab.status().different == (path_of("2026-11"),)
    assert lab.sync(everything=True).added == ()


@pytest.mark.parametrize("format", ["delta"])
def test_a_copy_with_a_deletion_vector_is_not_replaced(lab: UsageLab) -> None:
    """deltalake would remove the file and leave its vector: the table would have the rows of both copies."""
    lab.land(1, "2026-10", "2026-11")
    lab.add()
    lab.sync()
    delete_first_row(Path(lab.root) / "delta" / lab.table)
    lab.land(5, "2026-10", "2026-11")
    with pytest.raises(StorageRefused, match="has deletion vectors: only rows of a copy were deleted"):
        lab.sync()


def test_each_copy_of_a_file_is_among_the_contents_of_a_table() -> None:
    """A program that has copied files of the table has doubled their rows."""
    data = [b"one", b"two"]
    copies = [f"folder/{formats.copy_name(path_of('2026-11'), each)}" for each in (*data, data[0])]
    one, two = map(content_digest, data)
    assert formats.contents_of([*copies, "folder/part-0.parquet"]) == {
        registered_tables.file_id_of(path_of("2026-11")): (one, two, one)
    }


@pytest.mark.parametrize("format", ["delta"])
def test_files_of_other_programs_in_the_folder_are_left_out(lab: UsageLab) -> None:
    lab.land(1)
    lab.dataset.storage.create(f"{path_of('2026-11').rpartition('/')[0]}/notes.txt", b"no Parquet")
    lab.add()
    assert lab.sync().added == (path_of("2026-11"),)
    status = lab.status()
    assert (status.in_step, status.loads) == (True, 1)


def test_an_entry_of_a_content_that_was_never_seen_is_kept_for_a_day() -> None:
    """The replacement that it announces may be still to come."""
    now = datetime(2026, 11, 26, tzinfo=timezone.utc)
    for age, done in ((timedelta(hours=24), False), (timedelta(hours=24, microseconds=1), True)):
        entry = f"{now - age:%Y%m%dT%H%M%S%f}-digest"
        assert registered_tables.is_replacement_done(entry, None, now) is done
        assert registered_tables.is_replacement_done(entry, "another", now) is done
        assert registered_tables.is_replacement_done(entry, "digest", now)


def lake_of(lab: UsageLab) -> delta.DeltaLakeTable:
    return delta.open_table(lab.dataset.storage, lab.table)


def complete(lab: UsageLab) -> None:
    """Add a table, sync it, and put its first day behind it."""
    table = lab.add()
    lab.sync()
    registered_tables.TableRecords(lab.dataset.ledger).record_complete(table)


@pytest.mark.parametrize("format", BY_TIER)
def test_a_crash_between_any_two_steps(lab: UsageLab, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are the changes of the root and the commit, of a landing and of a sync; each is the last one once."""
    lab.land(0)
    complete(lab)
    crash, steps = CrashSteps(), 0
    for name in ("create", "delete", "publish", "replace"):
        monkeypatch.setattr(LocalStorage, name, crash.before(getattr(LocalStorage, name)))
    monkeypatch.setattr(lab.kind, "replace", crash.around(lab.kind.replace))
    for crash_at in range(1, 30):
        crash.left = crash_at
        try:
            lab.land(crash_at)
            lab.sync()
        except Crash:
            steps += 1
        else:
            break
        crash.left = 0
        lab.sync()
        expected = weblake.read(lab.root, "usage_periods").to_table().select(["period", "total_credits"]).to_pylist()
        assert lab.credits() == [(row["period"], row["total_credits"]) for row in expected], f"crash at {crash_at}"
        assert lab.status().in_step
    assert steps >= (6 if format == "delta" else 5), "entry, replacement, copy, before and after the commit, entry"
    assert lab.credits() == [("2026-11", crash_at)]


@pytest.mark.parametrize("format", BY_TIER)
def test_a_commit_whose_reply_is_lost(lab: UsageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.land(1)
    lab.add()
    lab.sync()
    lab.land(2)
    lost = lose_replies(lab.kind, "replace", monkeypatch)
    lab.sync()
    assert len(lost) == 1
    assert lab.credits() == [("2026-11", 2)]


@pytest.mark.parametrize("first", [False, True], ids=["replaced", "new"])
@pytest.mark.parametrize("format", BY_TIER)
def test_another_sync_commits_newer_content_first(lab: UsageLab, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits between our look at the file and our commit: the older content must not win."""
    lab.land(1)
    lab.add()
    if not first:
        lab.sync()
        lab.land(2)
    real = lab.kind.replace

    def is_late(self: Any, *args: Any) -> None:
        monkeypatch.setattr(lab.kind, "replace", real)
        lab.land(3)
        lab.sync()
        real(self, *args)

    monkeypatch.setattr(lab.kind, "replace", is_late)
    lab.sync()
    assert lab.credits() == [("2026-11", 3)]
    assert lab.status().in_step


@pytest.mark.parametrize("format", ["delta"])
def test_content_that_is_replaced_between_two_attempts(lab: UsageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt has copied the older content, and no other sync commits the newer one."""
    lab.land(1)
    complete(lab)
    lab.land(2)
    real = lab.kind.replace

    def is_overtaken(self: Any, *args: Any) -> None:
        monkeypatch.setattr(lab.kind, "replace", real)
        lab.land(3)
        raise CommitConflict("another program has committed first")

    monkeypatch.setattr(lab.kind, "replace", is_overtaken)
    lab.sync()
    assert lab.credits() == [("2026-11", 3)]


@pytest.mark.parametrize("format", ["delta"])
def test_a_file_that_is_gone_does_not_keep_the_others_from_the_table(
    lab: UsageLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program has deleted it after the sync has listed the files."""
    lab.land(1, "2026-10", "2026-11")
    lab.add()
    real = lab.kind.contents

    def meanwhile(self: Any) -> Any:
        (Path(lab.root) / path_of("2026-10")).unlink()
        return real(self)

    monkeypatch.setattr(lab.kind, "contents", meanwhile)
    assert lab.sync().added == (path_of("2026-11"),)


@pytest.mark.parametrize("format", ["delta"])
def test_rows_of_another_program_are_replaced_with_the_month(lab: UsageLab) -> None:
    """It has appended the same rows once more: two files of the table have the path keys of the file."""
    lab.land(1)
    lab.add()
    lab.sync()
    write_deltalake(f"{lab.root}/delta/usage_periods", lab.rows(), mode="append")
    assert len(lab.credits()) == 2
    lab.land(2)
    lab.sync()
    assert lab.credits() == [("2026-11", 2)]


@pytest.mark.parametrize("format", ["delta"])
def test_a_backlog_of_several_commits(lab: UsageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "LOADS_PER_COMMIT", 1)
    lab.land(1, "2026-10", "2026-11", "2026-12")
    complete(lab)
    assert lab.credits() == [("2026-10", 1), ("2026-11", 1), ("2026-12", 1)]
    lab.land(2, "2026-10", "2026-11", "2026-12")
    lab.sync()
    assert lab.credits() == [("2026-10", 2), ("2026-11", 2), ("2026-12", 2)]
    assert lab.dataset.storage.list("_weblake/uncommitted") == []


@pytest.mark.parametrize("entry", [True, False], ids=["old entry", "no entry"])
@pytest.mark.parametrize("format", ["delta"])
def test_an_append_only_table_is_looked_at_again_after_a_day(
    lab: UsageLab, entry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it could not take in a sync after its first day, or with an entry of the day before, still waits."""
    lab.land(1)
    lab.add()
    lab.sync()
    table = DeltaTable(f"{lab.root}/delta/usage_periods")
    table.alter.set_table_properties({"delta.appendOnly": "true"})
    if entry:
        complete(lab)
    lab.land(2)
    if not entry:
        for name in lab.dataset.storage.list("_weblake/uncommitted"):
            lab.dataset.storage.delete(name)
    for module in (registered_tables, replacing):
        monkeypatch.setattr(module, "REPLACEMENT", timedelta(seconds=-2))
    with pytest.raises(StorageRefused, match="is append-only"):
        lab.sync()
    table.update_incremental()
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    lab.sync()
    assert lab.credits() == [("2026-11", 2)]


@pytest.mark.system
@proves(
    "2.11",
    at="src/weblake/tables/delta.py",
    line="app_transactions=transactions, max_commit_retries=0)",
    becomes="app_transactions=transactions)",
    case="delta",
)
@pytest.mark.parametrize("format", FORMATS)
def test_maintenance_of_the_table_neither_doubles_nor_loses(lab: UsageLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that maintenance has rewritten, before a sync and between its look at the table and its commit."""
    lab.land(1, "2026-10", "2026-11")
    lab.add()
    lab.sync()
    rewrite(lab)
    assert len(lab.status().missing) == 2, "the content of rewritten files is not known"
    lab.land(2, "2026-11")
    real = lab.kind.replace

    def is_late(self: Any, *args: Any) -> None:
        monkeypatch.setattr(lab.kind, "replace", real)
        rewrite(lab)
        real(self, *args)

    monkeypatch.setattr(lab.kind, "replace", is_late)
    lab.sync(everything=True)
    assert lab.credits() == [("2026-10", 1), ("2026-11", 2)]
    assert lab.status().in_step


def rewrite(lab: UsageLab) -> None:
    if lab.format == "delta":
        table = DeltaTable(f"{lab.root}/delta/usage_periods")
        assert table.optimize.z_order(["period_start"])["numFilesAdded"] == 2
        table.create_checkpoint()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        return
    rewritten = load_catalog("lake", **dict(lab.options or {})).load_table(IDENTIFIER)
    rewritten.overwrite(rewritten.scan().to_arrow())
    rewritten.maintenance.expire_snapshots().older_than(datetime.now()).commit()


@pytest.mark.parametrize("format", ["delta"])
def test_tables_of_loads_and_of_usage_do_not_meet(lab: UsageLab) -> None:
    """Neither kind has entries or kept files of the other."""
    lab.land(1)
    lab.add()
    assert registered_tables.table_ids(lab.dataset.storage) == []
    tables.add(lab.root, "delta")
    assert len(registered_tables.table_ids(lab.dataset.storage)) == 1
    lab.land(2)
    assert len(lab.dataset.storage.list("_weblake/uncommitted")) == 1
    assert [each.table for each in tables.sync(lab.root)] == ["usage_periods", "documents"]
    tables.remove(lab.root, "delta", "usage_periods")
    lab.land(3)
    assert [each.table for each in tables.list_tables(lab.root)] == ["documents"]
    assert lab.dataset.storage.list("_weblake/uncommitted") == []
    lab.add()
    assert lab.sync(name="usage_periods").added == (path_of("2026-11"),)


@pytest.mark.parametrize("format", ["delta"])
def test_the_command_line(lab: UsageLab) -> None:
    def table(command: str, *more: str) -> tuple[int, str, str]:
        return run_command(["table", command, lab.root, *more], {})

    lab.land(1)
    assert table("add", "delta", "--table", "usage_periods")[0] == 0
    assert "usage_periods" in table("list")[1]
    code, out, _ = table("status")
    assert (code, f"1 files not added yet: {path_of('2026-11')}" in out) == (1, True)
    assert "1 files added (1 rows), 0 taken out" in table("sync")[1]
    lab.land(2)
    code, out, _ = table("status")
    assert (code, f"1 files in the table with another content: {path_of('2026-11')}" in out) == (1, True)
    assert "1 files added (1 rows), 1 taken out" in table("sync")[1]
    assert "1 files, 1 rows, version 2: up to date" in table("status")[1]
    assert table("remove", "delta", "--name", "usage_periods")[0] == 0


@pytest.mark.system
@pytest.mark.parametrize("format", BY_HIGHER_TIER)
def test_on_object_storage(s3_root: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    lab = lab_of(s3_root, format, tmp_path)
    if lab.options is not None:
        lab.options = {**lab.options, "warehouse": f"{s3_root}-warehouse"}
    lab.land(1)
    lab.add()
    lab.sync()
    lab.land(2)
    done = lab.sync()
    assert (done.added, done.removed, done.table_rows) == ((path_of("2026-11"),), (path_of("2026-11"),), 1)
    assert lab.status().in_step


@pytest.mark.system
@pytest.mark.parametrize("format", BY_HIGHER_TIER)
def test_three_processes_that_are_killed(lab: UsageLab, tmp_path: Path) -> None:
    """Processes sync without end, and one after the other is killed and replaced, while periods are replaced."""
    lab.land(0, "2026-10", "2026-11", "2026-12")
    complete(lab)
    sync_and_kill(
        lab.root,
        lab.options,
        errors=tmp_path / "errors",
        land=lambda number: lab.land(number, f"2026-{10 + number % 3}"),
        done=lambda: lab.status().in_step,
    )
    lab.sync(everything=True)
    assert lab.credits() == [("2026-10", 18), ("2026-11", 19), ("2026-12", 20)]
    assert lab.status().in_step
