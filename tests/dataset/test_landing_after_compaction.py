"""Tests of landing into a compacted root: nothing is paid twice, and retired loads leave their merged file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from catalogue import proves
from compaction_lab import histories, intent, lake, land, load_id, rows, same_rows
from crash_steps import crash
from landing_lab import LandingLab, landing_lab
from polling import until

import weblake
from weblake import Terms, errors
from weblake.arrow.parquet import VERSION_KEY
from weblake.dataset import compacted_files, ledger_listing
from weblake.dataset.compacted_ledger import LedgerCopy
from weblake.dataset.layout import LEDGER
from weblake.dataset.ledger_listing import RETIRED
from weblake.dataset.root import Dataset, open_dataset
from weblake.jobs import cancelling
from weblake.jobs.polling import JobRef, get_status
from weblake.loads import detached, generations, load, load_request, recovery
from weblake.loads.load_request import LoadRequest, Naming, Task
from weblake.receipt import Receipt
from weblake.storage import Storage
from weblake_service.page_failure import PageFailure

URLS = [f"http://pages.test/{n}" for n in range(3)]
FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)
RETRY, CLEAR = "max_tries=1", "max_tries=2"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LandingLab]:
    with landing_lab(LandingLab, tmp_path / "lake") as made:
        yield made


def batch(key: str, *urls: str) -> LoadRequest:
    return load_request.batch(urls or URLS, Naming(key=key))


def compacted(lab: LandingLab) -> Dataset:
    """The lab's root compacted; from here on it lands in the new one."""
    old = str(lab.root)
    lab.root = Path(old).parent / "new"
    done = weblake.compact(old, to=lab.root)
    same_rows(old, lab.root)
    assert done.tables["documents"].files <= 1
    return lab.dataset


def started(lab: LandingLab) -> int:
    return sum(count for name, count in lab.service.counts().items() if name.endswith("_started"))


def test_a_landed_load_is_found_after_compaction_without_a_request(lab: LandingLab) -> None:
    lab.web.failures[URLS[1]] = PageFailure("SCRAPE_TIMEOUT", "too slow")
    lab.web.failures["http://down.test/"] = PageFailure("SCRAPE_TIMEOUT", "too slow")
    made = [
        batch("a"),
        batch("b"),
        load_request.scrape(URLS[0], Naming()),
        load_request.crawl(URLS[2], Naming(), limit=2),
    ]
    receipts = [load.land(lab.client, lab.dataset, request, FAST_POLLS).receipt for request in made]
    with pytest.raises(errors.LoadIncomplete):
        load.land(lab.client, lab.dataset, batch("down", "http://down.test/"), FAST_POLLS)
    told = histories(lab.dataset)
    dataset = compacted(lab)
    asked = len(lab.service.requests())
    assert histories(dataset) == told
    for request, receipt in zip(made, receipts, strict=True):
        again = load.land(lab.client, dataset, request, FAST_POLLS)
        assert again.landed_at is not None
        assert again.receipt.to_dict(files=False) == receipt.to_dict(files=False)
        assert [file.rows for file in again.receipt.files] == [file.rows for file in receipt.files]
    with pytest.raises(errors.LoadIncomplete, match="None of the 1 pages"):
        load.land(lab.client, dataset, batch("down", "http://down.test/"), FAST_POLLS)
    assert receipts[0].job_id is not None
    by_id = load.land(lab.client, dataset, load_request.existing_job("batch", receipts[0].job_id), FAST_POLLS)
    assert by_id.receipt.load_id == receipts[0].load_id
    assert weblake.orphans(lab.root, client=lab.client).orphans == ()
    assert len(lab.service.requests()) == asked
    assert load.land(lab.client, dataset, batch("c"), FAST_POLLS).receipt.stored == 2, "and a new one lands"


def test_an_open_load_continues_after_compaction_without_payment(lab: LandingLab) -> None:
    load.land(lab.client, lab.dataset, batch("landed"), FAST_POLLS)
    refused, running, sent = batch("refused", URLS[0], "http://pages.test/slow"), batch("running"), batch("detached")
    lab.web.held.add("*")
    _, job, _ = load.start_load(lab.client, lab.dataset, refused)
    ref = JobRef("batch_scrape", job.job_id)
    until(lambda: lab.client.run(get_status(ref, lab.client.retry)).get("completed"))
    lab.client.run(cancelling.cancel(JobRef("batch_scrape", job.job_id), lab.client.retry))
    lab.web.held.clear()
    with pytest.raises(errors.WeblakeError):
        load.land(lab.client, lab.dataset, refused, FAST_POLLS)
    _, job, _ = load.start_load(lab.client, lab.dataset, running)
    load.start_load(lab.client, lab.dataset, sent)
    lab.service.faults({"match": {"method": "POST"}, "effect": {"status": 402}})
    with pytest.raises(errors.CreditsExhausted):
        load.start_load(lab.client, lab.dataset, batch("not bought"))
    old, new = str(lab.root), Path(str(lab.root)).parent / "new"
    done = weblake.compact(old, to=new)
    assert set(done.open) == {each.load_id for each in (refused, running, sent, batch("not bought"))}
    was, now = (weblake.orphans(root, client=lab.client) for root in (old, new))
    assert was.refused == now.refused == (refused.load_id,)
    assert [each.to_dict() for each in was.orphans] == [each.to_dict() for each in now.orphans]
    count, dataset = started(lab), open_dataset(new)
    assert load.land(lab.client, dataset, running, FAST_POLLS).receipt.job_id == job.job_id
    assert detached.collect(lab.client, dataset, sent.load_id, FAST_POLLS).receipt.stored == 3
    partial = load.land(lab.client, dataset, refused, Terms(allow_partial=True))
    assert partial.receipt.status == "cancelled"
    assert started(lab) == count
    assert load.land(lab.client, dataset, batch("not bought"), FAST_POLLS).receipt.stored == 3


def test_a_cleared_task_removes_its_older_load_from_the_merged_file(lab: LandingLab) -> None:
    def placed(occasion: str) -> LoadRequest:
        task = Task(("airflow", "dag", "task", -1), "run-1", occasion)
        return generations.place_generation(
            batch("task"), task, generations.choose(lab.client, lab.dataset, task, FAST_POLLS)
        )

    load.land(lab.client, lab.dataset, batch("other"), FAST_POLLS)
    first = load.land(lab.client, lab.dataset, placed(RETRY), FAST_POLLS).receipt
    dataset = compacted(lab)
    (merged,) = dataset.storage.list("documents")
    assert load.land(lab.client, dataset, placed(RETRY), FAST_POLLS).receipt.load_id == first.load_id
    second = load.land(lab.client, dataset, placed(CLEAR), FAST_POLLS).receipt
    assert second.load_id != first.load_id
    found = weblake.read(lab.root).to_table()["load_id"].to_pylist()
    assert sorted(found) == sorted([batch("other").load_id] * 3 + [second.load_id] * 3)
    assert merged in dataset.storage.list("documents")
    assert [row["replaced_by"] for row in histories(dataset)] == [None, second.load_id, None]


def slots(root: Path) -> Dataset:
    """Six loads of six slots, compacted to one file of documents and one of page errors."""
    dataset = open_dataset(root / "lake")
    for n in range(6):
        land(dataset, slotted(n))
    weblake.compact(root / "lake", to=root / "new")
    return open_dataset(root / "new")


def slotted(n: int, later: int = 0) -> Any:
    return intent(n + later, partition={"ds": "x"}, slot=f"slot {n}", slot_has_partition=True)


def visible(root: Path) -> list[str]:
    return sorted(weblake.read(root / "new").to_table()["load_id"].to_pylist())


def test_retired_loads_leave_their_file_one_by_one(tmp_path: Path) -> None:
    dataset = slots(tmp_path)
    before = set(dataset.storage.list("documents"))
    assert len(before) == 1
    for n in range(6):
        land(dataset, slotted(n, 100))
        standing = [load_id(each + 100 * (each <= n)) for each in range(6)]
        assert visible(tmp_path) == sorted(standing * 3)
        for each in standing:
            assert len(rows(tmp_path / "new", "documents", loads=each)) == 3
            assert len(rows(tmp_path / "new", "page_errors", loads=each)) == 1
        assert (before <= set(dataset.storage.list("documents"))) == (n < 5), "the last one takes the file along"


def test_a_retirement_that_was_cut_off_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = slots(tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(compacted_files, "remove_loads", crash)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, slotted(0, 100))
    assert load_id(0) in visible(tmp_path)
    assert recovery.recover(dataset, load_id(100)) is not None
    assert load_id(0) not in visible(tmp_path)
    again = weblake.compact(tmp_path / "new", to=tmp_path / "newer")
    assert again.tables["documents"].rows == 18


def test_a_compaction_finishes_a_retirement_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = slots(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(compacted_files, "remove_loads", lambda *_: None)
        land(dataset, slotted(0, 100))
    assert len(visible(tmp_path)) == 21
    weblake.compact(tmp_path / "new", to=tmp_path / "newer")
    found = weblake.read(tmp_path / "newer").to_table()["load_id"].to_pylist()
    assert len(found) == 18
    assert load_id(0) not in found


@pytest.mark.parametrize("why", ["columns of another version", "a damaged record"])
@pytest.mark.parametrize("killed", [False, True], ids=["at once", "after a kill"])
def test_a_compaction_finishes_a_retirement_in_a_file_that_it_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, killed: bool
) -> None:
    """The file cannot be merged with others; the new root has no record of the slot of the retired load."""
    dataset, newer = slots(tmp_path), tmp_path / "newer"
    (name,) = dataset.storage.list("documents")
    if why == "a damaged record":
        done = f"{LEDGER}/{load_id(2)}.done.json"
        dataset.storage.delete(done)
        dataset.storage.create(done, b"{")
    else:
        file = tmp_path / "new" / name
        footer = pq.read_metadata(file).metadata | {VERSION_KEY: b"0"}
        older = pq.ParquetFile(file).read().drop_columns(["audio"]).replace_schema_metadata(footer)
        pq.write_table(older, file)
    with monkeypatch.context() as patch:
        patch.setattr(compacted_files, "remove_loads", crash)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, slotted(0, 100))
    if killed:
        with monkeypatch.context() as patch:
            patch.setattr(LedgerCopy, "archive", crash)
            with pytest.raises(KeyboardInterrupt):
                weblake.compact(tmp_path / "new", to=newer)
    weblake.compact(tmp_path / "new", to=newer)
    standing = [load_id(each) for each in (100, 1, 2, 3, 4, 5)]
    found = weblake.read(newer).to_table()["load_id"].to_pylist()
    assert sorted(found) == sorted(standing * 3)
    for each in standing:
        if each != load_id(2):
            assert len(rows(newer, "documents", loads=each)) == 3
            assert receipt_matches(open_dataset(newer), each)


def receipt_matches(dataset: Dataset, load_id: str) -> bool:
    done = dataset.ledger.done(load_id)
    assert done is not None
    files = Receipt.from_dict(done.receipt).files
    return all(dataset.size(file.path) == file.bytes for file in files)


def test_a_writer_of_a_load_that_has_landed_and_was_merged_publishes_nothing(tmp_path: Path) -> None:
    lake(tmp_path / "lake", 3)
    weblake.compact(tmp_path / "lake", to=tmp_path / "new")
    before = rows(tmp_path / "new", "documents")
    land(open_dataset(tmp_path / "new"), intent(1))
    assert rows(tmp_path / "new", "documents") == before


class InterruptedStorage:
    """A storage in which something happens right before the n-th call, as another process would do it.

    The process ends right before call number `dies`.
    """

    def __init__(self, inner: Storage, nth: int, what: Callable[[], None], dies: int = 0) -> None:
        self._inner, self._nth, self._what, self._dies, self.calls = inner, nth, what, dies, 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self._nth:
                self._what()
            if self.calls == self._dies:
                crash()
            return method(*args, **kwargs)

        return call if callable(method) else method


@proves(
    "2.7",
    at="src/weblake/dataset/compacted_files.py",
    line="            if len(kept) == len(held):",
    becomes="            if _ or len(kept) == len(held):",
)
def test_two_retirements_in_one_file_interleaved_at_any_step_lose_nothing(tmp_path: Path) -> None:
    """Also if the run that is interrupted by the other one ends at a later step, and is repeated."""
    dataset = slots(tmp_path)
    (name,) = dataset.storage.list("documents")
    ledger, whole = dataset.ledger, (tmp_path / "new" / name).read_bytes()

    def retire(storage: Any, n: int) -> None:
        ledger.record_retired(load_id(n), load_id(99))
        compacted_files.remove_loads(storage, name, retired)

    def retired() -> set[str]:
        return {ledger_listing.id_of(n) for n, has in ledger_listing.steps(ledger).items() if has & RETIRED}

    def again() -> None:
        (tmp_path / "new" / name).write_bytes(whole)
        for each in dataset.storage.list("_weblake/ledger"):
            if each.endswith(".retired.json"):
                dataset.storage.delete(each)

    counted = InterruptedStorage(dataset.storage, 0, lambda: None)
    retire(counted, 1)
    assert counted.calls > 4
    for nth in range(1, counted.calls + 1):
        again()
        retire(InterruptedStorage(dataset.storage, nth, lambda: retire(dataset.storage, 2)), 1)
        assert set(visible(tmp_path)) == {load_id(n) for n in (0, 3, 4, 5)}, nth
        for last in range(nth, nth + counted.calls):
            again()
            with suppress(KeyboardInterrupt):
                retire(InterruptedStorage(dataset.storage, nth, lambda: retire(dataset.storage, 2), last), 1)
            retire(dataset.storage, 1)
            assert set(visible(tmp_path)) == {load_id(n) for n in (0, 3, 4, 5)}, (nth, last)
    again()
    threads = [threading.Thread(target=retire, args=(dataset.storage, n)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(visible(tmp_path)) == {load_id(5)}


def test_generated_loads_equal_loads_landed_from_a_service(tmp_path: Path) -> None:
    """The other tests rely on this: loads made without a service equal those landed from a service."""
    dataset = lake(tmp_path / "lake", 3)
    assert len(histories(dataset)) == 3
    assert len(rows(tmp_path / "lake", "documents")) == 13 - 1
