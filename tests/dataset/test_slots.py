"""Tests of which loads replace which, also if the run that published one died before the retirement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from catalogue import proves
from crash_steps import crash

import weblake
from weblake.api.models import JobError, JobErrors
from weblake.arrow import schemas
from weblake.arrow.parquet import ParquetFile
from weblake.dataset import history, landed_loads, layout
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent
from weblake.dataset.root import Dataset
from weblake.dataset.slots import Slots
from weblake.errors import InvalidOption
from weblake.jobs.polling import JobRef
from weblake.loads import publishing, recovery
from weblake.loads.accounting import Reconciler
from weblake.loads.staging import Staged, stage_document
from weblake.receipt import Receipt
from weblake.storage.local import LocalStorage

BEGAN = datetime(2026, 11, 21, 6, tzinfo=timezone.utc)


def intent(
    n: int, *, slot: str | None = "asset", partition: bool = False, generation: int = 0, run: str = "r"
) -> Intent:
    return Intent(
        load_id=f"{n:016x}",
        kind="scrape",
        endpoint="scrape",
        created_at=(BEGAN + timedelta(minutes=n)).isoformat(),
        request_sha256="",
        slot=slot,
        slot_has_partition=partition,
        generation=generation,
        run=run,
    )


def land(dataset: Dataset, what: Intent, missing: Sequence[str] = ()) -> publishing.Published:
    dataset.ledger.record_intent(what)
    with dataset.storage.scratch() as scratch:
        return publishing.publish(dataset, what, staged(what, scratch, missing))


def refuse(dataset: Dataset, what: Intent) -> None:
    dataset.ledger.record_intent(what)
    with dataset.storage.scratch() as scratch:
        publishing.refuse(dataset, what, staged(what, scratch))


def staged(what: Intent, scratch: Path, missing: Sequence[str] = ()) -> Staged:
    url = f"http://a.test/{what.load_id}"
    job = JobRef(what.kind, f"job-{what.load_id}")
    raw = f'{{"markdown": "x", "metadata": {{"sourceURL": "{url}"}}}}'.encode()
    return stage_document(what, job, Reconciler([url, *missing]), scratch, raw)


def visible(root: Path) -> list[str]:
    return sorted(path.name[:16] for path in root.glob("documents/**/*.parquet"))


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (intent(1, partition=True), intent(2, partition=True), [2]),
        (intent(1), intent(2, generation=1), [2]),
        (intent(1), intent(2), [1, 2]),
        (intent(1), intent(2, generation=1, run="other"), [1, 2]),
        (intent(1, partition=True, generation=1), intent(2, partition=True, run="other"), [2]),
        (intent(1, partition=True), intent(2, slot="another", partition=True), [1, 2]),
        (intent(1, slot=None), intent(2, slot=None), [1, 2]),
    ],
)
def test_a_load_retires_older_ones_of_its_own_slot_only(
    tmp_path: Path, first: Intent, second: Intent, left: list[int]
) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    land(dataset, first)
    land(dataset, second)
    assert visible(tmp_path) == [f"{n:016x}" for n in left]
    rows = [row.to_dict() for row in history.history(dataset)]
    gone = [f"{n:016x}" for n in (1, 2) if n not in left]
    assert [row["replaces"] for row in rows] == [[], gone]
    assert [row["replaced_by"] for row in rows] == [second.load_id if gone else None, None]
    indexed = {Path(name).name[:16] for name in dataset.storage.list(layout.SLOTS)}
    assert indexed == {each.load_id for each in (first, second) if each.slot is not None} - {*gone}


@pytest.mark.parametrize(
    ("started", "left"),
    [
        ((intent(1, partition=True), intent(2, partition=True)), [2]),
        ((intent(1), intent(2, generation=1)), [2]),
        ((intent(1, partition=True, generation=1), intent(2, partition=True, run="other")), [2]),
        ((intent(1), intent(2)), [1, 2]),
        ((intent(1, partition=True), intent(2, partition=True), intent(3, partition=True)), [3]),
    ],
)
def test_a_load_that_lands_after_a_newer_one_of_its_slot_is_retired_at_once(
    tmp_path: Path, started: tuple[Intent, ...], left: list[int]
) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    for late_first in reversed(started):
        land(dataset, late_first)
    assert visible(tmp_path) == [f"{n:016x}" for n in left]
    gone = {row.receipt.load_id: row.replaced_by for row in history.history(dataset) if row.replaced_by}
    assert gone.keys() == {each.load_id for each in started} - {f"{n:016x}" for n in left}


@pytest.mark.parametrize("step", ["record_retirement", "delete"])
def test_a_retirement_that_was_cut_off_is_finished_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    old, new = intent(1, partition=True), intent(2, partition=True)
    land(dataset, old)

    with monkeypatch.context() as patch:
        if step == "delete":
            patch.setattr(LocalStorage, "delete", crash)
        else:
            patch.setattr(Ledger, step, crash)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, new)
    assert visible(tmp_path) == [old.load_id, new.load_id]
    assert landed_loads.find(dataset, new.load_id) is not None
    assert visible(tmp_path) == [old.load_id, new.load_id], "finding a load changes nothing"
    assert recovery.recover(dataset, new.load_id) is not None
    assert visible(tmp_path) == [new.load_id]


@proves(
    "2.3",
    at="src/weblake/loads/publishing.py",
    line="        if dataset.ledger.done(load_id) is not None:",
    becomes="        if False:",
)
def test_a_second_writer_of_a_load_that_was_replaced_meanwhile_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has downloaded the job while another run landed the load and a third one replaced it; then it dies."""
    dataset = Dataset.at(LocalStorage(tmp_path))
    old, new = intent(1, partition=True), intent(2, partition=True)
    land(dataset, old)
    land(dataset, new)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "finish", lambda dataset, intent, receipt: receipt)  # it dies before
        receipt, is_first = land(dataset, old)
    assert visible(tmp_path) == [new.load_id]
    assert (receipt.load_id, is_first) == (old.load_id, False)


def test_a_load_that_is_retired_as_it_lands_is_retired_by_the_next_run_if_that_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    old, new = intent(1, partition=True), intent(2, partition=True)
    land(dataset, new)

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "retire", crash)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, old)
    assert visible(tmp_path) == [old.load_id, new.load_id]
    assert recovery.recover(dataset, old.load_id) is not None
    assert visible(tmp_path) == [new.load_id]


@proves(
    "2.3",
    at="src/weblake/dataset/slots.py",
    line='            self.storage.create(layout.publishing_path(group_of_intent(intent), intent.load_id), b"{}")',
    becomes="            pass",
)
@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["older", "newer"])
@pytest.mark.parametrize("refused", [False, True])
def test_a_load_whose_run_died_before_its_entry_is_finished_by_the_next_load_of_its_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[int, int], *, refused: bool
) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    first, second = (intent(n, partition=True) for n in order)
    if refused:
        refuse(dataset, first)
    with monkeypatch.context() as patch:
        patch.setattr(Slots, "add", crash)
        with pytest.raises(KeyboardInterrupt):
            publishing.promote(dataset, first.load_id) if refused else land(dataset, first)
    assert visible(tmp_path) == [first.load_id]
    land(dataset, second)
    assert visible(tmp_path) == [f"{2:016x}"]
    gone = {row.receipt.load_id: row.replaced_by for row in history.history(dataset)}
    assert gone == {f"{1:016x}": f"{2:016x}", f"{2:016x}": None}


def test_a_load_whose_run_died_after_its_entry_has_the_time_of_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next load of the slot copies that time into the records, so both have to be the same."""
    dataset, what = Dataset.at(LocalStorage(tmp_path)), intent(1, partition=True)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record_done", crash)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, what)
    entry, landed = dataset.slots.entry(what), recovery.recover(dataset, what.load_id)
    assert entry is not None
    assert landed is not None
    assert landed.landed_at == entry.at


def test_a_load_whose_run_died_before_its_documents_stops_no_other_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    old, new = intent(1, partition=True), intent(2, partition=True)
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, old)
    land(dataset, new)
    assert visible(tmp_path) == [new.load_id]
    assert dataset.ledger.done(old.load_id) is None
    land(dataset, old)
    assert visible(tmp_path) == [new.load_id]
    assert [row.receipt.load_id for row in history.history(dataset)] == [new.load_id, old.load_id]


def test_an_entry_with_an_impossible_date_is_made_again_from_the_records(tmp_path: Path) -> None:
    dataset = Dataset.at(LocalStorage(tmp_path))
    older = intent(1, partition=True)
    land(dataset, older)
    entry = dataset.slots.entry(older)
    assert entry is not None
    dataset.storage.delete(entry.name)
    damaged = msgspec.structs.replace(entry, created_at="2026-13-21T06:01:00+00:00")
    dataset.storage.create(entry.name, msgspec.json.encode(damaged))
    land(dataset, intent(2, partition=True))
    assert visible(tmp_path) == [f"{2:016x}"]


def test_a_load_that_cannot_be_indexed_is_in_no_other_group(tmp_path: Path) -> None:
    """A slot had a partition value in some loads only: those of one run without it are not replaced by date."""
    dataset = Dataset.at(LocalStorage(tmp_path))
    older = intent(1, run="r")
    land(dataset, older)
    done = f"{layout.LEDGER}/{older.load_id}.done.json"
    whole = dataset.storage.read(done)
    for name in (*dataset.storage.list(layout.SLOTS), done):
        dataset.storage.delete(name)
    dataset.storage.create(done, b"{")
    land(dataset, intent(2, partition=True, slot="another"))  # builds the index
    dataset.storage.delete(done)
    dataset.storage.create(done, whole or b"")
    land(dataset, intent(3, partition=True))
    assert visible(tmp_path) == [f"{n:016x}" for n in (1, 2, 3)]


@pytest.mark.parametrize("partition", [False, True])
def test_a_later_generation_replaces_the_earlier_one_of_a_machine_whose_clock_is_ahead(
    tmp_path: Path, partition: bool
) -> None:
    """Otherwise the rows of both would stay, or those of the newer and paid one would be gone."""
    dataset = Dataset.at(LocalStorage(tmp_path))
    land(dataset, intent(9, partition=partition))
    land(dataset, intent(2, partition=partition, generation=1))
    assert visible(tmp_path) == [f"{2:016x}"]


def test_of_two_loads_that_began_at_the_same_moment_neither_retires_the_other(tmp_path: Path) -> None:
    """Each would retire the other, and the rows of both would be gone."""
    dataset = Dataset.at(LocalStorage(tmp_path))
    for n in (1, 2):
        land(dataset, msgspec.structs.replace(intent(n, partition=True), created_at=BEGAN.isoformat()))
    assert len(visible(tmp_path)) == 2


@pytest.mark.parametrize("removed", [0, 1, 2])
@proves(
    "P1",
    at="src/weblake/loads/recovery.py",
    line='key=lambda name: (not name.startswith(f"{DOCUMENTS}/"), name))',
    becomes="key=lambda name: name, reverse=True)",
    case="1",
)
def test_p1_documents_are_not_visible_without_their_page_errors_wherever_a_retirement_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    dataset, delete, calls = Dataset.at(LocalStorage(tmp_path)), LocalStorage.delete, list[str]()
    old, new = intent(1, partition=True), intent(2, partition=True)
    land(dataset, old, missing=["http://a.test/gone"])

    def dies_after_some(storage: LocalStorage, name: str) -> None:
        calls.append(name)
        if len(calls) > removed:
            raise KeyboardInterrupt
        delete(storage, name)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "delete", dies_after_some)
        with pytest.raises(KeyboardInterrupt):
            land(dataset, new)
    assert [name.partition("/")[0] for name in calls] == ["documents", "page_errors", "_weblake"][: removed + 1]
    assert recovery.recover(dataset, new.load_id) is not None
    assert visible(tmp_path) == [new.load_id]
    assert dataset.storage.list("page_errors") == []


def test_an_older_load_without_a_document_is_not_retired_by_a_newer_one(tmp_path: Path) -> None:
    """Its rows of page_errors stay: these pages were not requested again."""
    dataset, older = Dataset.at(LocalStorage(tmp_path)), intent(1, partition=True)
    land(dataset, intent(2, partition=True))
    dataset.ledger.record_intent(older)
    failed = JobErrors(errors=[JobError(url="http://a.test/1", error="gone")])
    with dataset.storage.scratch() as scratch:
        with ParquetFile(scratch / "documents.parquet", schemas.DOCUMENTS) as rows:
            receipt = Receipt(load_id=older.load_id, kind="scrape", submitted=1, failed=1)
            staged = Staged(rows.close(b"{}"), Reconciler(["http://a.test/1"]).close(failed, {}), receipt)
        publishing.publish(dataset, older, staged)
    assert dataset.ledger.retired(older.load_id) is None
    assert len(dataset.storage.list("page_errors")) == 1


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_load_without_a_document_replaces_no_load(tmp_path: Path, order: tuple[int, int]) -> None:
    """All its pages failed, so the run failed: what stood before stands, whichever of the two lands first."""
    dataset = Dataset.at(LocalStorage(tmp_path))
    for n in order:
        if n == 1:
            land(dataset, intent(1, partition=True))
            continue
        dataset.ledger.record_intent(intent(2, partition=True))
        reconciler = Reconciler(["http://a.test/2"])
        failed = JobErrors(errors=[JobError(url="http://a.test/2", error="gone")])
        with dataset.storage.scratch() as scratch:
            rows = ParquetFile(scratch / "documents.parquet", schemas.DOCUMENTS)
            with rows:
                receipt = Receipt(load_id=f"{2:016x}", kind="scrape", submitted=1, failed=1)
                staged = Staged(rows.close(b"{}"), reconciler.close(failed, {}), receipt)
            publishing.publish(dataset, intent(2, partition=True), staged)
    assert visible(tmp_path) == [f"{1:016x}"]
    land(dataset, intent(3, partition=True))
    assert visible(tmp_path) == [f"{3:016x}"]


def test_an_empty_table_has_its_columns(tmp_path: Path) -> None:
    empty = {
        table: weblake.read(tmp_path / "lake", table).to_table().column_names
        for table in ("documents", "page_errors", "usage_periods", "activity")
    }
    assert empty["documents"][-1] == "load_date"
    assert empty["usage_periods"][-2:] == ["report", "period"]
    assert empty["activity"][-1] == "activity_date"
    assert weblake.read(tmp_path / "lake", columns=["load_date", "url"]).to_table().column_names == ["load_date", "url"]
    with pytest.raises(InvalidOption):
        weblake.read(tmp_path / "lake", columns=["nonsense"]).to_table()
    root = tmp_path / "lake"
    root.mkdir()
    dataset = Dataset.at(LocalStorage(root))
    dataset.preflight({"ds": "2026-11-21"})
    assert weblake.read(root).to_table().column_names[-1] == "ds"
    land(dataset, msgspec.structs.replace(intent(1), partition={"ds": "x"}))
    assert weblake.read(root).to_table().column_names == [*empty["documents"][:-1], "ds"]
