"""Tests of compaction: every row, id and record is in the new root, which is complete or not a dataset."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from catalogue import proves
from command_in_process import run_command
from compaction_lab import histories, intent, lake, land, load_id, rows, same_rows, tree
from live_files import find_files
from polling import until

import weblake
import weblake.dataset.compaction
from weblake.api.models import parse_time
from weblake.arrow import parquet
from weblake.cli.compaction import parse_size
from weblake.dataset import compaction, history, landed_loads, layout, ledger_listing, merging
from weblake.dataset.ledger import LEDGER
from weblake.dataset.root import open_dataset
from weblake.errors import InvalidOption, StorageRefused
from weblake.jobs.usage_reports import Report
from weblake.loads import orphans
from weblake.loads.usage import land_activity, land_report
from weblake.receipt import Receipt
from weblake.storage import open_storage
from weblake.storage.local import LocalStorage
from weblake.storage.objects import ObjectStorage

SIZE = 60_000


def files(root: Path | str, table: str = "documents") -> list[str]:
    return open_storage(str(root)).list(table)


@pytest.fixture(scope="module")
def both_roots(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return a root and its compacted copy, which tests only read."""
    folder = tmp_path_factory.mktemp("both")
    old, new = str(folder / "lake"), str(folder / "new")
    lake(old)
    weblake.compact(old, to=new, file_size=SIZE)
    return old, new


@proves(
    "2.7",
    at="src/weblake/dataset/merging.py",
    line="if output is not None and not output.has_room(each, self._size):",
    becomes="if False:",
)
def test_compaction_keeps_every_row_and_record_in_fewer_files(both_roots: tuple[str, str], tmp_path: Path) -> None:
    old, new = Path(both_roots[0]), tmp_path / "new"
    before = {str(path): path.stat().st_mtime_ns for path in old.rglob("*")}
    done = weblake.compact(old, to=new, file_size=SIZE)
    assert {str(path): path.stat().st_mtime_ns for path in old.rglob("*")} == before, "the old root is only read"
    same_rows(old, new)
    assert histories(open_dataset(new)) == histories(open_dataset(old))
    assert (done.loads, done.open) == (40, ())
    told = done.tables["documents"]
    assert (told.files_before, told.files) == (40, len(files(new)))
    assert (told.rows, told.bytes) == (len(rows(old, "documents")), sum(os.path.getsize(new / f) for f in files(new)))
    assert 2 < told.files < 15, "two days, and a few files of each"
    assert all(os.path.getsize(new / name) <= SIZE for name in files(new))
    for name in [*files(new), *files(new, "page_errors")]:
        held = parquet.read_loads(pq.read_metadata(new / name)) or {}
        found = pq.read_table(new / name, partitioning=None)["load_id"].to_pylist()
        assert found == [each for each, count in held.items() for _ in range(count)], "rows lie load by load"
        assert sorted(held) == list(held)
    assert {name.split("/")[1] for name in files(new)} == {name.split("/")[1] for name in files(old)}
    with duckdb.connect() as db:
        counts = [db.execute(f"select count(*) from '{root}/documents/**/*.parquet'").fetchall() for root in (old, new)]
    assert counts[0] == counts[1]


@proves(
    "2.7",
    at="src/weblake/dataset/compacted_ledger.py",
    line='if name.endswith(".done.json") or (name.startswith(layout.SLOTS) and name != layout.SLOT_INDEX):',
    becomes="if False:",
)
def test_a_receipt_names_the_file_that_holds_the_rows(both_roots: tuple[str, str]) -> None:
    root = Path(both_roots[1])
    old, new = map(open_dataset, both_roots)
    for n in range(40):
        was, landing = landed_loads.find(old, load_id(n)), landed_loads.find(new, load_id(n))
        assert was is not None
        assert landing is not None
        assert landing.landed_at == was.landed_at
        assert [file.rows for file in landing.receipt.files] == [file.rows for file in was.receipt.files]
        for file in landing.receipt.files:
            table = file.path.partition("/")[0]
            found = pq.read_table(root / file.path, partitioning=None)
            assert found["load_id"].to_pylist().count(load_id(n)) == file.rows
            assert os.path.getsize(root / file.path) == file.bytes
            assert weblake.read(root, table, loads=load_id(n)).files() == [file.path]


FORMS: dict[str, Callable[[weblake.Reading], Any]] = {
    "table": lambda reading: reading.to_table(),
    "batches": lambda reading: reading.to_reader().read_all(),
    "dataset": lambda reading: reading.to_dataset().to_table(),
    "polars": lambda reading: reading.to_polars().to_arrow(),
    "lazy": lambda reading: reading.to_polars_lazy().collect().to_arrow(),
}


@pytest.mark.parametrize("form", FORMS)
def test_reading_gives_the_same_rows_from_both_roots(both_roots: tuple[str, str], form: str) -> None:
    old, new = both_roots
    some = [load_id(n) for n in (0, 3, 17, 39)]
    for more in (
        {},
        {"loads": some},
        {"loads": some, "columns": ["url", "load_date"]},
        {"loads": some, "columns": ["load_date"]},
        {"loads": some[:1], "columns": ["job_kind", "load_id"], "keys": {"load_date": "2026-11-21"}},
        {"loads": some[:1], "keys": {"load_date": "2026-11-22"}},
        {"loads": ["0" * 16]},
        {"loads": []},
        {"columns": ["url"], "keys": {"load_date": "2026-11-22"}},
    ):
        for table in ("documents", "page_errors"):
            found = [FORMS[form](weblake.read(root, table, **more)) for root in (old, new)]  # type: ignore[arg-type]
            assert found[0].column_names == found[1].column_names
            counts = [weblake.read(root, table, **more).count_rows() for root in (old, new)]  # type: ignore[arg-type]
            assert counts == [found[0].num_rows] * 2
            one, other = (sorted(map(str, each.to_pylist())) for each in found)
            assert one == other, (more, table)


def test_a_lazy_filter_gives_the_same_rows_from_both_roots(both_roots: tuple[str, str]) -> None:
    old, new = both_roots
    some = [load_id(n) for n in (0, 3, 17, 39)]
    lazy = [weblake.read(root, loads=some).to_polars_lazy() for root in (old, new)]
    for wanted in (pl.col("position") == 0, pl.col("load_date") == "2026-11-22", pl.col("load_id") == some[1]):
        found = [each.filter(wanted).select("url").collect()["url"].sort() for each in lazy]
        assert found[0].equals(found[1])
    assert lazy[0].head(3).collect().height == lazy[1].head(3).collect().height == 3
    assert lazy[1].select(pl.len()).collect().item() == len(rows(old, "documents", loads=some))


def test_path_keys_are_kept_and_files_merge_within_them_only(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path / "lake")
    for n in range(12):
        land(dataset, intent(n, partition={"shop": "007 /ü"[: 3 + n % 3], "day": f"2026-11-2{n % 2}"}))
    weblake.compact(tmp_path / "lake", to=tmp_path / "new", file_size=10**9)
    same_rows(tmp_path / "lake", tmp_path / "new")
    assert len(files(tmp_path / "new")) == 6
    again = open_dataset(tmp_path / "new")
    with pytest.raises(StorageRefused, match="partitioned by shop, day"):
        again.preflight(None)


@pytest.mark.parametrize("size", [1, 20_000, 10**9])
def test_a_large_file_is_copied_and_no_load_is_split(tmp_path: Path, size: int) -> None:
    dataset = lake(tmp_path / "lake", 6)
    large = land(dataset, intent(6), documents=300, text=4000).files[0]
    assert large.bytes > 20_000
    weblake.compact(tmp_path / "lake", to=tmp_path / "new", file_size=size)
    same_rows(tmp_path / "lake", tmp_path / "new")
    if size < 10**9:
        assert (tmp_path / "new" / large.path).read_bytes() == (tmp_path / "lake" / large.path).read_bytes()
    if size == 1:
        assert tree(tmp_path / "new" / "documents") == tree(tmp_path / "lake" / "documents")
    if size == 10**9:
        assert len(files(tmp_path / "new")) == 1


def usage_of(storage: Any) -> None:
    from weblake.api.models import ActivityEntry, UsagePeriod

    period = UsagePeriod(start_date="2026-11-01T00:00:00Z", total_credits=5)
    when = parse_time("2026-11-21T00:00:00Z")
    assert when is not None
    land_report(Report("credits", (period,), when), storage)
    land_activity([ActivityEntry(id="a", endpoint="scrape", created_at="2026-11-21T10:00:00Z")], storage)


def test_usage_and_activity_are_copied_and_can_be_landed_again(tmp_path: Path) -> None:
    dataset = lake(tmp_path / "lake", 4)
    usage_of(dataset.storage)
    weblake.compact(tmp_path / "lake", to=tmp_path / "new")
    same_rows(tmp_path / "lake", tmp_path / "new")
    usage_of(open_storage(tmp_path / "new"))
    assert len(rows(tmp_path / "new", "activity")) == 1


def test_a_compacted_root_can_be_compacted_again(both_roots: tuple[str, str], tmp_path: Path) -> None:
    shutil.copytree(both_roots[1], tmp_path / "new")
    dataset = open_dataset(tmp_path / "new")
    for n in range(40, 50):
        land(dataset, intent(n))
    weblake.compact(tmp_path / "new", to=tmp_path / "newer", file_size=10**9)
    same_rows(tmp_path / "new", tmp_path / "newer")
    assert histories(open_dataset(tmp_path / "newer")) == histories(dataset)
    assert len(files(tmp_path / "newer")) == 3
    assert len(rows(tmp_path / "newer", "documents", loads=load_id(3))) == 1


class Died(BaseException):
    pass


def dies_at(monkeypatch: pytest.MonkeyPatch, nth: int, root: Path) -> list[str]:
    """From here on the n-th change of this root kills the run."""
    changes: list[str] = []
    for name in ("create", "publish"):
        method = getattr(LocalStorage, name)

        def call(self: LocalStorage, *args: Any, method: Any = method) -> Any:
            if self.url == str(root):
                changes.append(str(args))
                if len(changes) == nth:
                    raise Died
            return method(self, *args)

        monkeypatch.setattr(LocalStorage, name, call)
    return changes


def refuses_to_be_used(root: Path) -> None:
    """Nothing is read from half a root, told of it or begun in it, if anything is there at all."""
    if not (root / layout.COMPACTION).exists():
        assert not tree(root)
        return
    dataset = open_dataset(root)
    for use in (
        lambda: weblake.read(root).to_table(),
        lambda: weblake.read(root).to_polars_lazy(),
        lambda: dataset.preflight(None),
        lambda: list(history.history(dataset)),
        lambda: ledger_listing.steps(dataset.ledger),
        lambda: orphans.open_loads(dataset),
        lambda: usage_of(dataset.storage),
        lambda: weblake.compact(root, to=root.parent / "newer"),
    ):
        with pytest.raises(StorageRefused, match="is not a complete dataset yet"):
            use()
    for name in (root / LEDGER).glob("*.json"):
        if name.name.count(".") == 1:
            steps = {each.name for each in (root / LEDGER).glob(f"{name.stem}.*")}
            assert {f"{name.stem}.job.json", f"{name.stem}.done.json"} <= steps, "an intent has all its records"


@proves(
    "2.7",
    at="src/weblake/dataset/compacted_ledger.py",
    line="for folder, intents in ((layout.LEDGER, False), (layout.SLOTS, None), (layout.LEDGER, True)):",
    becomes="for folder, intents in ((layout.LEDGER, True), (layout.SLOTS, None), (layout.LEDGER, False)):",
    case="some",
)
@pytest.mark.parametrize("step", [pytest.param(9, id="some"), pytest.param(3, id="many", marks=pytest.mark.system)])
def test_a_compaction_killed_at_any_step_continues_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    old, whole = tmp_path / "lake", tmp_path / "whole"
    dataset = lake(old, 12)
    usage_of(dataset.storage)
    land(dataset, intent(12), documents=300, text=4000)
    with monkeypatch.context() as patch:
        changes = dies_at(patch, 0, whole)
        weblake.compact(old, to=whole, file_size=20_000)
    expected = tree(whole)
    del expected[layout.COMPACTED]  # it says when
    points = [*range(1, len(changes), step), len(changes) - 1, len(changes)]
    for nth in points:
        new = tmp_path / f"new-{nth}"
        with monkeypatch.context() as patch:
            dies_at(patch, nth, new)
            with pytest.raises(Died):
                weblake.compact(old, to=new, file_size=20_000)
        refuses_to_be_used(new)
        weblake.compact(old, to=new, file_size=20_000)
        found = tree(new)
        assert found.pop(layout.COMPACTED)
        assert found.keys() == expected.keys(), nth
        assert found == expected, nth
        shutil.rmtree(new)


@pytest.mark.system
def test_a_killed_process_leaves_no_dataset_and_the_command_finishes_it(tmp_path: Path) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    lake(old, 150)
    command = ["compact", str(old), "--to", str(new), "--file-size", "30KB", "--json"]
    process = subprocess.Popen([sys.executable, "-m", "weblake", *command], stdout=subprocess.PIPE)
    until(lambda: find_files(new, "documents/*/*.parquet"))
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    refuses_to_be_used(new)

    outputs = []
    for _ in range(3):
        code, out, err = run_command(command, {})
        assert code == 0, err
        outputs.append(out)
    same_rows(old, new)
    assert outputs[0].count("\n") == 1
    assert outputs[1] == outputs[2], "it is done once"


def test_invalid_roots_and_arguments_are_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 3)
    new.mkdir()
    (new / "notes.txt").write_text("mine")
    with pytest.raises(StorageRefused, match=r"new is not empty: it contains notes\.txt"):
        weblake.compact(old, to=new)
    lake(tmp_path / "other", 3)
    with pytest.raises(StorageRefused, match="is not empty"):
        weblake.compact(old, to=tmp_path / "other")
    for within in (old, old / "new", old / "documents", tmp_path):
        with pytest.raises(StorageRefused, match="is inside the other"):
            weblake.compact(old, to=within)
    link = tmp_path / "link"
    link.symlink_to(old)
    with pytest.raises(StorageRefused, match="is inside the other"):
        weblake.compact(old, to=link / "new")
    with pytest.raises(StorageRefused, match="holds no dataset"):
        weblake.compact(tmp_path / "nothing", to=tmp_path / "made")
    assert not (tmp_path / "made").exists()
    for size in (0, -1, True, 1.5):
        with pytest.raises(InvalidOption):
            weblake.compact(old, to=tmp_path / "made", file_size=size)  # type: ignore[arg-type]
    weblake.compact(old, to=tmp_path / "made")
    with pytest.raises(StorageRefused, match="files of 256,000,000 bytes, not 5"):
        weblake.compact(old, to=tmp_path / "made", file_size=5)
    land(dataset, intent(7))
    with pytest.raises(StorageRefused, match="that one is complete"):
        weblake.compact(old, to=tmp_path / "made")


def test_the_command_reports_an_error_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake(tmp_path / "lake", 2)
    monkeypatch.chdir(tmp_path)
    code, out, err = run_command(["compact", "lake", "--to", "new", "--file-size", "huge"], {})
    assert (code, len(err.splitlines())) == (2, 1)
    code, out, err = run_command(["compact", "lake", "--to", "lake/new", "--json"], {})
    assert (code, len(err.splitlines())) == (1, 1)
    assert json.loads(out)["error"]["type"] == "StorageRefused"
    code, out, err = run_command(["compact", "lake", "--to", "new"], {})
    assert (code, err) == (0, "")
    assert "documents" in out


def test_a_file_removed_during_a_compaction_is_reported_as_a_change_of_the_root(tmp_path: Path) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    lake(old, 3)
    last = max(old.glob("documents/**/*.parquet"))
    with pytest.raises(StorageRefused, match="has changed since its compaction"):
        weblake.compact(old, to=new, file_size=1, progress=lambda done, of: last.unlink(missing_ok=True))
    refuses_to_be_used(new)


def test_a_root_that_changes_during_its_compaction_gives_no_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 3)
    create = LocalStorage.create

    def meanwhile(self: LocalStorage, name: str, data: bytes) -> bool:
        if name == layout.LAYOUT and self.url == str(new):
            land(dataset, intent(9))
        return create(self, name, data)

    monkeypatch.setattr(LocalStorage, "create", meanwhile)
    with pytest.raises(StorageRefused, match=f"has changed since its compaction.*{load_id(9)}"):
        weblake.compact(old, to=new)
    refuses_to_be_used(new)
    with pytest.raises(StorageRefused, match="has changed since"):
        weblake.compact(old, to=new)


def test_a_refused_compaction_leaves_no_file_open(tmp_path: Path) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    lake(old, 6)
    (old / files(old)[-1]).write_bytes(b"no Parquet")  # the rows of the files before it are in the new file already
    with pytest.raises(StorageRefused, match="cannot be compacted") as caught:
        weblake.compact(old, to=new)
    opened = [Path(os.path.realpath(each)) for each in Path("/proc/self/fd").iterdir()]
    assert [path for path in opened if tmp_path in path.parents] == []
    assert caught.tb is not None, "the traceback holds the frames, so that nothing was closed by garbage collection"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    old = tmp_path / "lake"
    dataset = lake(old, 3)
    name = files(old)[0]
    good = (old / name).read_bytes()
    (old / name).write_bytes(good[:100])
    with pytest.raises(StorageRefused, match=f"{name} cannot be compacted: it is no readable Parquet file"):
        weblake.compact(old, to=tmp_path / "new")
    other = files(old)[1]
    (old / name).write_bytes((old / other).read_bytes())
    with pytest.raises(StorageRefused, match=r"its receipt|are not those of the loads"):
        weblake.compact(old, to=tmp_path / "new")
    (old / name).write_bytes(good)
    weblake.compact(old, to=tmp_path / "new")
    same_rows(old, tmp_path / "new")
    assert dataset.storage.list("documents")


REFUSED = layout.refused_path("documents", load_id(9))


@pytest.mark.parametrize("table", ["documents", "_weblake/refused", layout.LAYOUT, layout.LEDGER, layout.RETIRED])
def test_a_file_of_another_size_in_the_new_root_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 1)
    dataset.storage.create(REFUSED, b"refused")
    for n in (2, 3):  # the first of them goes to the archive of retired loads
        land(dataset, intent(n, slot="a" * 16, slot_has_partition=True, run="run-1"))
    create = LocalStorage.create

    def cut_off(self: LocalStorage, name: str, data: bytes) -> bool:
        if name == layout.COMPACTED:
            raise Died
        return create(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", cut_off)
        with pytest.raises(Died):
            weblake.compact(old, to=new, file_size=1)
    name = next(each for each in open_storage(new).list("") if each.startswith(table))
    with (new / name).open("ab") as file:
        file.write(b" ")
    with pytest.raises(StorageRefused, match=f"{name} in .* differs"):
        weblake.compact(old, to=new, file_size=1)
    assert not (new / layout.COMPACTED).exists()


def test_a_file_that_grows_while_it_is_copied_gives_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    lake(old, 1)
    (name,) = files(old)
    copy_file = merging.copy_file

    def grown(*args: Any) -> int:
        with (old / name).open("ab") as file:
            file.write(b" ")
        return copy_file(*args)

    monkeypatch.setattr(merging, "copy_file", grown)
    with pytest.raises(StorageRefused, match=f"{name} of .*lake changed while it was copied"):
        weblake.compact(old, to=new, file_size=1)
    refuses_to_be_used(new)


def test_two_compactions_of_one_root_return_the_result_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    lake(old, 1)
    create, first = LocalStorage.create, list[Any]()

    def second(self: LocalStorage, name: str, data: bytes) -> bool:
        if name == layout.COMPACTED and not first:
            monkeypatch.setattr(LocalStorage, "create", create)
            first.append(weblake.compact(old, to=new))
        return create(self, name, data)

    monkeypatch.setattr(LocalStorage, "create", second)
    assert [weblake.compact(old, to=new)] == first


def test_unrecorded_files_are_copied_unchanged(tmp_path: Path) -> None:
    """A run that died before its record, somebody's own file, and one that was retired and not removed."""
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 5)
    died = load_id(2)
    dataset.storage.delete(f"{LEDGER}/{died}.done.json")
    shutil.copy(old / files(old)[0], old / "documents" / "load_date=2026-11-21" / "mine.parquet")
    dataset.ledger.record_retired(load_id(3), load_id(4))
    done = weblake.compact(old, to=new)
    gone = rows(old, "documents", loads=load_id(3))
    assert len(gone) == 1
    assert sorted([*rows(new, "documents"), *gone]) == rows(old, "documents")
    assert done.open == (died,)
    landing = landed_loads.find(open_dataset(new), died)
    assert landing is not None
    assert landing.receipt == landed_loads.find(dataset, died).receipt  # type: ignore[union-attr]


def test_a_load_that_a_killed_run_has_replaced_is_left_out(tmp_path: Path) -> None:
    """The run was killed after its own record, which names the load, and before the record of the retirement."""
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 5)
    done = dataset.ledger.done(load_id(4))
    assert done is not None
    dataset.storage.delete(f"{LEDGER}/{load_id(4)}.done.json")
    dataset.ledger.record_done(load_id(4), done.receipt, retired=[load_id(3)], at=done.at)
    assert weblake.compact(old, to=new).loads == 5
    gone = rows(old, "documents", loads=load_id(3))
    assert len(gone) == 1
    assert sorted([*rows(new, "documents"), *gone]) == rows(old, "documents")


@proves(
    "2.7",
    at="src/weblake/dataset/merging.py",
    line="if not kept:  # also if its columns are those of an older version",
    becomes="if len(kept) < len(loads):",
)
def test_a_compacted_file_keeps_its_other_loads_without_the_one_that_it_is_named_after(tmp_path: Path) -> None:
    new, newer = tmp_path / "new", tmp_path / "newer"
    lake(tmp_path / "lake", 3)
    weblake.compact(tmp_path / "lake", to=new)
    (name,) = files(new)
    first = layout.load_id_in(name)
    open_dataset(new).ledger.record_retired(first, load_id(4))
    weblake.compact(new, to=newer)
    gone = rows(new, "documents", loads=first)
    assert gone
    assert sorted([*rows(newer, "documents"), *gone]) == rows(new, "documents")


def test_a_retired_load_with_other_columns_is_left_out(tmp_path: Path) -> None:
    """A file with columns of another version is otherwise copied unchanged."""
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 2)
    (file,) = (old / name for name in files(old) if load_id(0) in name)
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns(["audio"]), file)
    dataset.ledger.record_retired(load_id(0), load_id(1))
    weblake.compact(old, to=new)
    assert rows(new, "documents") == rows(old, "documents", loads=load_id(1))


@pytest.mark.parametrize("storage", ["memory", pytest.param("s3", marks=pytest.mark.system)], indirect=True)
def test_on_other_storages(storage: Any, tmp_path: Path) -> None:
    old = tmp_path / "first"
    lake(old, 6)
    there, back = storage.url, tmp_path / "back"
    weblake.compact(old, to=there, file_size=20_000)
    same_rows(old, there)
    some = [load_id(2), load_id(5)]
    assert rows(there, "documents", loads=some) == rows(old, "documents", loads=some)
    assert weblake.compact(old, to=there, file_size=20_000).loads == 6
    weblake.compact(there, to=back, file_size=10**9)
    same_rows(there, back)
    assert histories(open_dataset(back)) == histories(open_dataset(old))


@pytest.mark.parametrize(
    ("root", "to", "is_within"),
    [
        ("s3://lake/web", "s3a://lake/web/new", True),
        ("gs://lake/web", "gcs://lake", True),
        ("gs://lake/web", "gs://lake/website", False),
        ("abfs://lake@one.dfs.core.windows.net/web", "az://lake/web/new", True),
        ("abfs://lake@one.dfs.core.windows.net/web", "abfss://lake@two.dfs.core.windows.net/web", False),
        ("s3://lake/web", "gs://lake/web", False),
    ],
)
def test_a_root_within_the_other_is_recognised_in_each_spelling(root: str, to: str, is_within: bool) -> None:
    source, target = (ObjectStorage("gcs", SimpleNamespace(), "", url) for url in (root, to))  # type: ignore[arg-type]
    with pytest.raises(StorageRefused, match="inside the other") if is_within else nullcontext():
        compaction._check_separate(source, target)


@pytest.mark.parametrize(
    ("text", "size"), [("256MB", 256_000_000), ("1GiB", 2**30), ("64kb", 64_000), ("1.5 MiB", 3 << 19), ("77", 77)]
)
def test_sizes_with_units_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "0", "-1MB", "1PB", "0.1", "ten", "1e9", "9" * 400])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="not a size"):
        parse_size(text)


def test_a_load_without_a_document_is_on_record(tmp_path: Path) -> None:
    dataset = lake(tmp_path / "lake", 2)
    receipt = land(dataset, intent(5), documents=0, failed=2)
    weblake.compact(tmp_path / "lake", to=tmp_path / "new")
    landing = landed_loads.find(open_dataset(tmp_path / "new"), load_id(5))
    assert isinstance(receipt, Receipt)
    assert landing is not None
    assert landing.receipt.failed == 2
    same_rows(tmp_path / "lake", tmp_path / "new")


@pytest.mark.parametrize("name", [layout.COMPACTION, layout.COMPACTED])
def test_a_record_of_a_compaction_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    lake(old, 1)
    done = weblake.compact(old, to=new)
    assert weblake.compact(old, to=new) == done
    good = (new / name).read_bytes()
    for bad in (b"{", b"[]", good.replace(b'"version":1', b'"version":2')):
        assert bad != good
        (new / name).write_bytes(bad)
        with pytest.raises(StorageRefused, match=f"The record {name} of .* cannot be read"):
            weblake.compact(old, to=new)
