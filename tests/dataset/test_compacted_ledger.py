"""Tests of the ledger of a compacted root: its size follows the live loads, and a retired load is not paid again."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest
from catalogue import proves
from compaction_lab import histories, intent, lake, land, load_id, rows
from msgspec.structs import replace
from task_lab import RETRY, TaskLab, task_lab

import weblake
from weblake.dataset import layout, ledger_archive, ledger_listing
from weblake.dataset.compaction_record import parquet_files
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import LEDGER, Ledger
from weblake.dataset.records import Start
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import StorageRefused
from weblake.loads import orphans
from weblake.loads.starts import MAX_STARTS
from weblake.receipt import Receipt
from weblake.storage import open_storage
from weblake.storage.local import LocalStorage

SLOT = {"slot": "a" * 16, "slot_has_partition": True, "run": "run-1"}


def records(root: Path | str) -> list[str]:
    """Return the names of all records except that of the compaction."""
    names = open_storage(str(root)).list("_weblake")
    return [name for name in names if name not in (layout.COMPACTION, layout.COMPACTED, layout.LAYOUT)]


def daily(root: Path, runs: int) -> Dataset:
    """A root with one slot that has landed so often, and with two loads that stand for themselves."""
    dataset = open_dataset(root)
    for n in range(runs):
        land(dataset, intent(n, **SLOT), documents=1, failed=0)
    for n in (1000, 1001):
        land(dataset, intent(n), documents=1, failed=0)
    return dataset


@proves(
    "2.7",
    at="src/weblake/dataset/compaction.py",
    line="                self._ledger.retires(load)",
    becomes="                pass",
)
def test_what_is_kept_beside_the_tables_follows_the_number_of_live_loads(tmp_path: Path) -> None:
    sizes = []
    for runs in (2, 30):
        old, new = tmp_path / f"lake-{runs}", tmp_path / f"new-{runs}"
        dataset = daily(old, runs)
        done = weblake.compact(old, to=new)
        assert done.loads == runs + 2
        assert histories(open_dataset(new)) == histories(dataset)
        sizes.append(len(records(new)))
        assert len(records(old)) > 4 * runs
    assert sizes[0] == sizes[1]


def test_a_root_that_is_compacted_again_and_again_keeps_what_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_archive, "SHARD_IDS", 4)
    root, told = tmp_path / "lake-0", 0
    for round_ in range(1, 5):
        dataset = open_dataset(root)
        for n in range(5):
            land(dataset, intent(10 * round_ + n, **SLOT), documents=1, failed=0)
        before = histories(dataset)
        new = tmp_path / f"lake-{round_}"
        weblake.compact(root, to=new)
        root = new
        assert histories(open_dataset(root)) == before
        assert len(before) == (told := told + 5)
        shards = open_storage(root).list(layout.RETIRED)
        assert len(shards) in (2, 4, 8, 16)
        assert len([name for name in records(root) if name.startswith(LEDGER)]) == 4, "one live load"
    ledger = open_dataset(root).ledger
    for n in (10, 14, 22, 43):
        job = f"00000000-0000-4000-8000-{load_id(n)[:12]}"
        assert ledger.landing_load("batch_scrape", job) == load_id(n)
        assert ledger.current_load(load_id(n)) == load_id(44)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        lab.urls, lab.keys = lab.urls[:1], {"day": "2026-11-21"}
        yield lab


def land_run(lab: TaskLab, run: str, occasion: str = RETRY) -> Receipt:
    lab.run = run
    return lab.land(occasion).receipt


def compact(lab: TaskLab) -> Path:
    """Go on in a new root; returns it."""
    new = lab.root.with_name("new")
    weblake.compact(lab.root, to=new)
    lab.dataset = open_dataset(new)
    return new


def test_a_retired_load_that_is_asked_for_again_is_not_bought_again(lab: TaskLab) -> None:
    bought = land_run(lab, "run-1")
    land_run(lab, "run-2")
    new = compact(lab)
    before = records(new)
    assert land_run(lab, "run-1").to_dict(files=False) == bought.to_dict(files=False)
    assert bought.job_id is not None
    by_id = weblake.land("batch", bought.job_id, to=new, client=lab.client)
    assert by_id.load_id == bought.load_id
    ledger = lab.dataset.ledger
    job = ledger.job(bought.load_id)
    assert job is not None
    assert ledger.record_job(replace(job, job_id="another")) == job, "an archived record is not created again"
    assert lab.started == 2
    assert records(new) == before
    assert orphans.open_loads(lab.dataset) == orphans.Unlanded(())


@pytest.mark.parametrize("day", ["2026-11-21", None], ids=["partition", "no partition"])
def test_a_cleared_task_goes_on_counting_its_generations(lab: TaskLab, day: str | None) -> None:
    lab.keys = {"day": day} if day else None
    for n in range(1, 4):
        land_run(lab, "run-1", f"max_tries={n}")
    compact(lab)
    assert lab.choose("max_tries=4") == 3
    last = land_run(lab, "run-1", "max_tries=4")
    assert lab.started == 4
    assert weblake.read(lab.root).to_table()["load_id"].to_pylist() == [last.load_id]


def test_the_slot_index_exists_after_compaction_so_a_landing_does_not_read_the_ledger(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_run(lab, "run-1")
    land_run(lab, "run-2")
    compact(lab)
    listed: list[str] = []
    pages = LocalStorage.pages

    def spied(storage: LocalStorage, prefix: str) -> Iterator[Sequence[str]]:
        listed.append(prefix)
        return pages(storage, prefix)

    monkeypatch.setattr(LocalStorage, "pages", spied)
    last = land_run(lab, "run-3")
    assert listed
    assert [prefix for prefix in listed if prefix == LEDGER] == []
    assert weblake.read(lab.root).to_table()["load_id"].to_pylist() == [last.load_id]


@pytest.mark.parametrize("step", ["", ".job", ".done", ".retired"])
@pytest.mark.parametrize("newer", [False, True], ids=["damaged", "newer version"])
def test_an_unreadable_record_does_not_stop_a_compaction(tmp_path: Path, step: str, newer: bool) -> None:
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = lake(old, 6)
    for n in (10, 11):
        land(dataset, intent(n, **SLOT))
    bad = load_id(10 if step == ".retired" else 2)
    name = f"{LEDGER}/{bad}{step}.json"
    whole = (old / name).read_bytes()
    (old / name).write_bytes(whole.replace(b'"version":1', b'"version":2') if newer else b"{")
    done = weblake.compact(old, to=new)
    assert rows(new, "documents") == rows(old, "documents")
    assert (new / name).read_bytes() == (old / name).read_bytes(), "it is kept for whoever can read or restore it"
    if step in (".done", ".retired"):
        assert list(done.unreadable) == [bad]
        assert name in done.unreadable[bad]
    (new / name).write_bytes(whole)
    healed = [row for row in histories(open_dataset(new)) if row["load_id"] == bad]
    (old / name).write_bytes(whole)
    assert healed == [row for row in histories(dataset) if row["load_id"] == bad]
    if step != ".retired":
        assert len(rows(new, "documents", loads=bad)) == len(rows(old, "documents", loads=bad)) > 0


@pytest.mark.parametrize("step", ["", ".job"])
def test_a_retired_load_with_a_damaged_record_stays_in_the_ledger(tmp_path: Path, step: str) -> None:
    """With its other records: a retry that finds none of them would start a job again."""
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = open_dataset(old)
    for n in (10, 11):
        land(dataset, intent(n, **SLOT))
    (old / f"{LEDGER}/{load_id(10)}{step}.json").write_bytes(b"{")
    weblake.compact(old, to=new)
    kept = [name for name in records(old) if name.startswith(f"{LEDGER}/{load_id(10)}")]
    assert len(kept) >= 4
    assert {name: (new / name).read_bytes() for name in kept if (new / name).exists()} == {
        name: (old / name).read_bytes() for name in kept
    }
    assert open_dataset(new).ledger.done(load_id(10)) == dataset.ledger.done(load_id(10))


def test_an_open_load_whose_job_cannot_be_read_is_listed_as_open(tmp_path: Path) -> None:
    old = tmp_path / "lake"
    dataset = lake(old, 2)
    dataset.ledger.record_intent(intent(7))
    (old / f"{LEDGER}/{load_id(7)}.job.json").write_bytes(b"{")
    done = weblake.compact(old, to=tmp_path / "new")
    assert done.open == (load_id(7),)
    assert f"{load_id(7)}.job.json" in done.unreadable[load_id(7)]


def test_a_load_by_job_id_stays_in_the_ledger_when_another_load_of_the_job_is_archived(tmp_path: Path) -> None:
    """A run that should land the job was killed, a task has landed it, and that load was replaced."""
    old, new = tmp_path / "lake", tmp_path / "new"
    dataset = open_dataset(old)
    receipt = land(dataset, intent(10, **SLOT))
    assert receipt.job_id is not None
    by_id = job_load_id(receipt.kind, receipt.job_id)
    dataset.ledger.record_intent(intent(12, load_id=by_id))
    land(dataset, intent(11, **SLOT))
    weblake.compact(old, to=new)
    assert int(by_id, 16) in ledger_listing.steps(open_dataset(new).ledger)
    assert orphans.open_loads(open_dataset(new)) == orphans.open_loads(dataset) != orphans.Unlanded(())


def test_a_damaged_archive_stops_the_loads_in_it_before_a_payment(lab: TaskLab) -> None:
    land_run(lab, "run-1")
    land_run(lab, "run-2")
    new = compact(lab)
    (shard,) = (new / layout.RETIRED).iterdir()
    whole = shard.read_bytes()
    for damaged in (b"", whole[:-5], whole[:20] + b"\0" * (len(whole) - 20), gzip.compress(b"[]")):
        shard.write_bytes(damaged)
        lab.dataset = open_dataset(new)
        with pytest.raises(StorageRefused, match=r"retired/00000\.json\.gz.*damaged"):
            land_run(lab, "run-1")
    assert lab.started == 2


def test_later_starts_voids_and_returns_are_archived_with_their_load(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path / "lake")
    what = intent(0, **SLOT)
    dataset.ledger.record_intent(what)
    for n in range(1, MAX_STARTS + 1):
        start = Start(load_id=what.load_id, n=n, key=f"key-{n}", at=datetime.now(timezone.utc).isoformat())
        assert dataset.ledger.record_start(start)
        if n < MAX_STARTS:
            dataset.ledger.void_start(start, "refused")
    land(dataset, what)
    dataset.ledger.record_returned(what.load_id, RETRY)
    dataset.ledger.record_stopped(what.load_id, used=2.0)
    land(dataset, intent(1, **SLOT))
    weblake.compact(tmp_path / "lake", to=tmp_path / "new")
    starts = open_dataset(tmp_path / "new").ledger.starts(what.load_id)
    assert [(start.n, start.void) for start in starts] == [(n, n < MAX_STARTS) for n in range(1, MAX_STARTS + 1)]
    assert starts == dataset.ledger.starts(what.load_id)
    returned = open_dataset(tmp_path / "new").ledger.returned(what.load_id)
    assert (returned, returned and returned.occasion) == (dataset.ledger.returned(what.load_id), RETRY)
    stopped = open_dataset(tmp_path / "new").ledger.stopped(what.load_id)
    assert (stopped, stopped and stopped.used) == (dataset.ledger.stopped(what.load_id), 2.0)
    known = ledger_listing.steps(Ledger(open_storage(tmp_path / "new")))
    assert int(what.load_id, 16) not in known


def test_a_shard_has_the_same_bytes_whenever_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction that goes on after a kill compares what it finds with what it would write."""
    records = {"b": b"1", "a": b"{}"}
    monkeypatch.setattr("time.time", lambda: 1.0)
    first = ledger_archive.encode_shard(records)
    monkeypatch.setattr("time.time", lambda: 1.8e9)
    assert ledger_archive.encode_shard(dict(sorted(records.items()))) == first


def test_the_files_of_a_folder_are_listed_together(tmp_path: Path) -> None:
    """Also where a folder between its files holds files of its own: each folder is merged once."""
    storage = open_storage(tmp_path)
    for folder, digit in (("a", "a"), ("a", "c"), ("a/b", "a")):
        storage.create(f"documents/{folder}/{digit * 16}-00000.parquet", b"")
    assert [name.rpartition("/")[0] for name in parquet_files(storage, "documents")] == [
        "documents/a",
        "documents/a",
        "documents/a/b",
    ]
