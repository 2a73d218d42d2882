"""Tests of publishing a staged load beside another writer, of refused loads, and of the history of a root."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from catalogue import proves
from crash_steps import crash

from weblake.dataset import history
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Done, Intent
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.jobs.polling import JobRef
from weblake.loads import publishing, recovery
from weblake.loads.accounting import Reconciler
from weblake.loads.publishing import JobClaimed
from weblake.loads.staging import Staged, stage_document
from weblake.receipt import Receipt
from weblake.storage.local import LocalStorage

BEGAN = datetime(2026, 11, 21, 6, tzinfo=timezone.utc)
JOB = "4d8b6c1e-0000-4000-8000-000000000001"


class Root:
    """A dataset root, and loads staged for it; a load's counts tell which writer staged it."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path, self._stack = path, stack
        self.dataset = Dataset.at(LocalStorage(path))

    def intent(self, n: int = 1, kind: str = "scrape", slot: str | None = None) -> Intent:
        return self.dataset.ledger.record_intent(
            Intent(
                load_id=f"{n:016x}",
                kind=kind,
                endpoint=kind,
                created_at=(BEGAN + timedelta(minutes=n)).isoformat(),
                request_sha256="",
                slot=slot,
                slot_has_partition=slot is not None,
            )
        )

    def staged(self, intent: Intent, missing: int = 0, *, malformed: bool = False) -> Staged:
        """Stage one document, which may be malformed, and pages of which the service said nothing."""
        url = f"http://a.test/{intent.load_id}"
        scratch = self._stack.enter_context(self.dataset.storage.scratch())
        raw = b"[]" if malformed else f'{{"markdown": "x", "metadata": {{"sourceURL": "{url}"}}}}'.encode()
        reconciler = Reconciler([url, *(f"http://a.test/missing/{n}" for n in range(missing))])
        return stage_document(intent, JobRef(intent.kind, JOB), reconciler, scratch, raw)

    def land(self, n: int) -> str:
        intent = self.intent(n)
        return publishing.publish(self.dataset, intent, self.staged(intent)).receipt.load_id

    def file(self, table: str, intent: Intent) -> Path:
        return self.path / self.dataset.path(table, intent)

    def rows(self, table: str) -> int:
        return sum(pq.read_metadata(path).num_rows for path in self.path.glob(f"{table}/**/*.parquet"))

    def landed(self) -> list[str]:
        return [name for table in ("documents", "page_errors") for name in self.dataset.storage.list(table)]

    def kept(self) -> list[str]:
        return [name for name in self.dataset.storage.list("_weblake") if "refused" in name]


@pytest.fixture
def make_root(tmp_path: Path) -> Iterator[Callable[[str], Root]]:
    with ExitStack() as stack:
        yield lambda name: Root(tmp_path / name, stack)


@pytest.fixture
def root(make_root: Callable[[str], Root]) -> Root:
    return make_root("lake")


def publish_cut_off_at(
    owner: object, step: str, root: Root, monkeypatch: pytest.MonkeyPatch, *, missing: int = 0
) -> Intent:
    """Return the intent of a load whose publication ended with its process at this step."""
    intent = root.intent()
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crash)
        with pytest.raises(KeyboardInterrupt):
            publishing.publish(root.dataset, intent, root.staged(intent, missing=missing))
    return intent


def test_a_second_writer_returns_the_receipt_of_the_first_which_died(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = publish_cut_off_at(publishing, "finish", root, monkeypatch, missing=1)
    receipt = publishing.publish(root.dataset, intent, root.staged(intent)).receipt
    assert (receipt.missing, receipt.submitted, len(receipt.files)) == (1, 2, 2)
    assert (root.rows("documents"), root.rows("page_errors")) == (1, 1)
    done = root.dataset.ledger.done(intent.load_id)
    assert done is not None
    assert done.receipt["missing"] == 1


@pytest.mark.parametrize("second", ["publish", "promote"])
def test_a_second_writer_syncs_the_name_of_the_file_before_it_records_the_load(
    root: Root, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    """The first one may have died between the name and its sync: after a power failure the file would be gone."""
    intent = publish_cut_off_at(publishing, "finish", root, monkeypatch)
    if second == "promote":
        publishing.refuse(root.dataset, intent, root.staged(intent))
    folder, fsync, record_done = root.file("documents", intent).resolve().parent, os.fsync, Ledger.record_done
    calls: list[str] = []

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(folder):
            calls.append("sync")

    def recorded(*args: Any, **options: Any) -> Done:
        calls.append("done")
        return record_done(*args, **options)

    staged = root.staged(intent)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Ledger, "record_done", recorded)
    if second == "promote":
        publishing.promote(root.dataset, intent.load_id)
    else:
        publishing.publish(root.dataset, intent, staged)
    assert calls == ["sync", "done"]


@pytest.mark.parametrize(
    ("before", "winner", "left"),
    [
        (1, 1, 1),  # the errors of the winner, which this writer has replaced, are restored
        (None, 0, 0),  # the winner has none, so those of this writer are removed
        (3, 0, 0),  # those of a run that died are not the winner's
    ],
)
def test_a_writer_that_comes_second_leaves_the_page_errors_of_the_first(
    make_root: Callable[[str], Root], monkeypatch: pytest.MonkeyPatch, before: int | None, winner: int, left: int
) -> None:
    """The first one commits between this writer's page errors and its documents."""
    root, other, third = make_root("lake"), make_root("other"), make_root("third")
    intent = root.intent()
    first = publishing.publish(other.dataset, other.intent(), other.staged(intent, missing=winner)).receipt
    if before is not None:
        publishing.publish(third.dataset, third.intent(), third.staged(intent, missing=before))
        root.dataset.storage.create(
            root.dataset.path("page_errors", intent), third.file("page_errors", intent).read_bytes()
        )
    publish = LocalStorage.publish

    def second(storage: LocalStorage, local_file: Path, name: str) -> bool:
        storage.create(name, other.file("documents", intent).read_bytes())
        return publish(storage, local_file, name)

    monkeypatch.setattr(LocalStorage, "publish", second)
    receipt = publishing.publish(root.dataset, intent, root.staged(intent, missing=2)).receipt
    assert (receipt.missing, receipt.submitted) == (first.missing, first.submitted) == (winner, 1 + winner)
    assert (root.rows("documents"), root.rows("page_errors")) == (1, left)


@pytest.mark.parametrize("counts", ["failed", "robots_blocked", "rejected", "missing", "failed missing", ""])
def test_page_errors_are_removed_only_if_the_first_writer_has_none(root: Root, counts: str) -> None:
    intent = root.intent()
    staged = root.staged(intent, missing=1)
    publishing.publish(root.dataset, intent, staged)
    first = replace(staged.receipt, **{"submitted": 3, "missing": 0} | dict.fromkeys(counts.split(), 1))
    name = root.dataset.path("page_errors", intent)
    publishing._settle_errors(root.dataset.storage, name, first, None, staged.written.path.parent)
    assert root.rows("page_errors") == (1 if counts else 0)


def test_the_first_writer_repairs_page_errors_that_another_has_replaced(
    make_root: Callable[[str], Root], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = make_root("lake"), make_root("other")
    intent = root.intent()
    publishing.publish(other.dataset, other.intent(), other.staged(intent, missing=3))
    publish = LocalStorage.publish

    def first(storage: LocalStorage, local_file: Path, name: str) -> bool:
        won = publish(storage, local_file, name)
        root.file("page_errors", intent).write_bytes(other.file("page_errors", intent).read_bytes())
        return won

    monkeypatch.setattr(LocalStorage, "publish", first)
    assert publishing.publish(root.dataset, intent, root.staged(intent, missing=1)).receipt.missing == 1
    assert root.rows("page_errors") == 1


def test_page_errors_of_a_run_that_died_go_with_the_next_run(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    intent = publish_cut_off_at(LocalStorage, "publish", root, monkeypatch, missing=2)
    assert root.rows("page_errors") == 2
    receipt = publishing.publish(root.dataset, intent, root.staged(intent)).receipt
    assert (root.rows("page_errors"), receipt.missing, len(receipt.files)) == (0, 0, 1)


def test_documents_of_another_job_under_the_same_load_id_are_refused(root: Root) -> None:
    intent = root.intent()
    publishing.publish(root.dataset, intent, root.staged(intent))
    other = root.staged(intent)
    object.__setattr__(other.receipt, "job_id", JOB[:-1] + "2")
    with pytest.raises(StorageRefused, match=r"holds job .*1 and not .*2"):
        publishing.publish(root.dataset, intent, other)
    assert root.rows("documents") == 1
    assert root.dataset.ledger.landing_load("batch_scrape", JOB[:-1] + "2") is None, "it can be landed by its id"


def test_a_file_of_somebody_else_under_the_name_of_a_load_is_not_overwritten(root: Root) -> None:
    intent = root.intent()
    foreign = root.staged(intent).written.path.with_name("foreign.parquet")
    pq.write_table(pa.table({"a": [1, 2, 3]}), foreign)
    data = foreign.read_bytes()
    assert root.dataset.storage.publish(foreign, root.dataset.path("documents", intent))
    with pytest.raises(StorageRefused, match="no file of weblake"):
        publishing.publish(root.dataset, intent, root.staged(intent))
    assert root.file("documents", intent).read_bytes() == data


def test_a_job_that_another_load_has_claimed_is_not_published(root: Root) -> None:
    intent, other = root.intent(1, "batch_scrape"), root.intent(2, "batch_scrape")
    assert root.dataset.ledger.claim_landing("batch_scrape", JOB, other.load_id) == other.load_id
    publishing.refuse(root.dataset, intent, root.staged(intent))
    for land in (
        lambda: publishing.publish(root.dataset, intent, root.staged(intent)),
        lambda: publishing.promote(root.dataset, intent.load_id),
    ):
        with pytest.raises(JobClaimed) as caught:
            land()
        assert caught.value.load_id == other.load_id
    assert root.rows("documents") == 0
    assert root.dataset.ledger.done(intent.load_id) is None


def test_a_refused_load_is_kept_and_published_later_without_the_service(root: Root) -> None:
    intent = root.intent()
    assert publishing.refuse(root.dataset, intent, root.staged(intent, missing=2)) is True
    assert publishing.refuse(root.dataset, intent, root.staged(intent, missing=1)) is False
    assert (root.rows("documents"), root.rows("page_errors"), len(root.kept())) == (0, 0, 2)
    receipt = publishing.promote(root.dataset, intent.load_id)
    assert receipt is not None
    assert (receipt.missing, receipt.stored, len(receipt.files)) == (1, 1, 2)
    assert (root.rows("documents"), root.rows("page_errors"), root.kept()) == (1, 1, [])
    assert publishing.promote(root.dataset, intent.load_id) is None


def test_a_refused_load_that_another_run_publishes_has_the_receipt_of_that_file(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent, move = root.intent(), LocalStorage.move
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=2))

    def is_late(storage: LocalStorage, name: str, new_name: str) -> bool:
        if new_name.startswith("documents"):
            assert storage.publish(root.staged(intent).written.path, new_name)
        return move(storage, name, new_name)

    monkeypatch.setattr(LocalStorage, "move", is_late)
    receipt = publishing.promote(root.dataset, intent.load_id)
    assert receipt is not None
    assert (receipt.missing, receipt.complete, len(receipt.files)) == (0, True, 1)
    assert (root.rows("documents"), root.rows("page_errors"), root.kept()) == (1, 0, [])


@proves(
    "2.1",
    at="src/weblake/loads/publishing.py",
    line="if receipt.has_page_errors and not _belongs_to(errors, receipt):",
    becomes="if False:",
)
def test_a_load_whose_second_refusal_was_cut_off_is_not_published_with_the_page_errors_of_it(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent, replace = root.intent(), LocalStorage.replace
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=2))

    def dies_at_documents(storage: LocalStorage, name: str, local_file: Path) -> None:
        if "documents" in name:
            raise KeyboardInterrupt
        replace(storage, name, local_file)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "replace", dies_at_documents)
        with pytest.raises(KeyboardInterrupt):
            publishing.refuse(root.dataset, intent, root.staged(intent, missing=1))
    assert publishing.promote(root.dataset, intent.load_id) is None
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=1))
    receipt = publishing.promote(root.dataset, intent.load_id)
    assert receipt is not None
    assert (receipt.missing, root.rows("page_errors")) == (1, 1)


@proves(
    "2.1",
    at="src/weblake/loads/publishing.py",
    line="            _replace(storage, errors_name, errors, scratch)",
    becomes="            storage.create(errors_name, errors)",
)
def test_a_refused_load_replaces_the_page_errors_of_a_run_that_died(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    intent = publish_cut_off_at(LocalStorage, "publish", root, monkeypatch, missing=2)
    assert (root.rows("documents"), root.rows("page_errors")) == (0, 2)
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=1))
    move, before_documents = LocalStorage.move, list[int]()

    def watched(self: LocalStorage, name: str, new_name: str) -> bool:
        before_documents.append(root.rows("page_errors"))
        return move(self, name, new_name)

    monkeypatch.setattr(LocalStorage, "move", watched)
    receipt = publishing.promote(root.dataset, intent.load_id)
    assert receipt is not None
    assert before_documents == [1]
    assert (receipt.missing, root.rows("page_errors"), root.kept()) == (1, 1, [])


@pytest.mark.parametrize(
    ("step", "again"),
    [
        ("replace page_errors", "promote"),
        ("move documents", "promote"),
        ("move documents", "recover"),
        ("finish", "recover"),
    ],
)
def test_an_interrupted_promotion_is_finished_and_leaves_nothing_behind(
    root: Root, monkeypatch: pytest.MonkeyPatch, step: str, again: str
) -> None:
    intent, move, replace = root.intent(), LocalStorage.move, LocalStorage.replace
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=1))

    def replaces_and_dies(storage: LocalStorage, name: str, local_file: Path) -> None:
        replace(storage, name, local_file)
        raise KeyboardInterrupt

    def leaves_the_source(storage: LocalStorage, name: str, new_name: str) -> bool:
        data = storage.read(name)
        move(storage, name, new_name)
        storage.create(name, data or b"")  # killed between the new name and the removal of the old one
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        match step:
            case "finish":
                patch.setattr(publishing, "finish", crash)
            case "replace page_errors":
                patch.setattr(LocalStorage, "replace", replaces_and_dies)
            case _:
                patch.setattr(LocalStorage, "move", leaves_the_source)
        with pytest.raises(KeyboardInterrupt):
            publishing.promote(root.dataset, intent.load_id)
    if again == "promote":
        assert publishing.promote(root.dataset, intent.load_id) is not None
    else:
        landed = recovery.recover(root.dataset, intent.load_id)
        assert landed is not None
        done = root.dataset.ledger.done(intent.load_id)
        assert done is not None
        assert landed.landed_at == done.at, "not when the load was begun"
    assert (root.rows("documents"), root.rows("page_errors"), root.kept()) == (1, 1, [])


@pytest.mark.parametrize("malformed", [False, True], ids=["a document", "no document"])
@pytest.mark.parametrize("death", ["before the record", "after it"])
def test_a_promotion_that_died_around_its_done_record_keeps_all_and_leaves_nothing_behind(
    root: Root, monkeypatch: pytest.MonkeyPatch, malformed: bool, death: str
) -> None:
    intent, finish = root.intent(), publishing.finish
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=1, malformed=malformed))

    def dies(*args: Any) -> None:
        if death == "after it":
            finish(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            publishing.promote(root.dataset, intent.load_id)
    landed = recovery.recover(root.dataset, intent.load_id)
    receipt = publishing.promote(root.dataset, intent.load_id) if landed is None else landed.receipt
    assert receipt is not None
    assert (receipt.stored, root.rows("documents")) == ((0, 0) if malformed else (1, 1))
    assert root.rows("page_errors") == 1 + malformed
    assert root.kept() == []


def test_a_refused_load_that_another_run_has_landed_and_a_later_one_replaced_stays_replaced(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run looked for the load before the other one landed it."""
    first, second = (root.intent(n, slot="a slot") for n in (1, 2))
    publishing.refuse(root.dataset, first, root.staged(first, missing=1))
    whole = publishing.publish(root.dataset, first, root.staged(first)).receipt
    publishing.publish(root.dataset, second, root.staged(second))
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "finish", Mock(side_effect=AssertionError("a run that dies here leaves its files")))
        assert publishing.promote(root.dataset, first.load_id) == whole
    assert (root.file("documents", first).exists(), root.file("documents", second).exists()) == (False, True)
    assert (root.rows("page_errors"), root.kept()) == (0, [])


@pytest.mark.parametrize("faster", ["the whole load", "the refused part"])
def test_a_refused_part_that_is_published_while_another_run_publishes_the_whole_load(
    root: Root, monkeypatch: pytest.MonkeyPatch, faster: str
) -> None:
    """Each of both has written or removed the page errors before the first one publishes its documents."""
    intent, move, publish = root.intent(), LocalStorage.move, LocalStorage.publish
    publishing.refuse(root.dataset, intent, root.staged(intent, missing=2))
    prepared, go_on = threading.Event(), threading.Event()

    def waits(storage: LocalStorage, name: str, new_name: str) -> bool:
        prepared.set()
        assert go_on.wait(60)
        return move(storage, name, new_name)

    def comes_between(storage: LocalStorage, local_file: Path, name: str) -> bool:
        other.start()
        assert prepared.wait(60)
        if faster == "the refused part":
            storage.delete(root.dataset.path("page_errors", intent))  # as this writer would have done a moment later
            go_on.set()
            other.join()
        return publish(storage, local_file, name)

    other = threading.Thread(target=publishing.promote, args=(root.dataset, intent.load_id))
    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "move", waits)
        patch.setattr(LocalStorage, "publish", comes_between)
        publishing.publish(root.dataset, intent, root.staged(intent))
        go_on.set()
        other.join()
    done = root.dataset.ledger.done(intent.load_id)
    assert done is not None
    receipt = Receipt.from_dict(done.receipt)
    assert receipt.missing == root.rows("page_errors") == (0 if faster == "the whole load" else 2)
    assert {file.path for file in receipt.files} == set(root.landed())


def test_the_history_since_a_load_has_the_later_ones_only(root: Root) -> None:
    first, second, third = (root.land(n) for n in (1, 2, 3))
    assert [each.receipt.load_id for each in history.history(root.dataset)] == [first, second, third]
    assert [each.receipt.load_id for each in history.history(root.dataset, first)] == [second, third]
    assert [each.receipt.load_id for each in history.history(root.dataset, third)] == []
    with pytest.raises(StorageRefused, match="has not landed here"):
        list(history.history(root.dataset, "f" * 16))
