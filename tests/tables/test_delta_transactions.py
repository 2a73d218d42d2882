"""Application transactions of a log on an object store are looked up in a copy of the log, and found all the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from catalogue import proves
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.transaction import Transaction

from weblake.storage.local import LocalStorage
from weblake.tables.delta_transactions import versions_of


class RemoteStorage(LocalStorage):
    """A directory that is read as an object store is."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[str] = []
        self.lost = ""

    def local_path(self, name: str) -> Path | None:
        return None

    def read(self, name: str) -> bytes | None:
        self.asked.append(name.rpartition("/")[2])
        return None if self.lost and self.lost in name else super().read(name)


@pytest.fixture
def storage(tmp_path: Path) -> RemoteStorage:
    return RemoteStorage(tmp_path)


@pytest.fixture
def looked_up_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of the tables in which transactions are looked up."""
    found: list[str] = []
    real = DeltaTable.transaction_version

    def told(self: DeltaTable, name: str) -> int | None:
        found.append(self.table_uri)
        return real(self, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", told)
    return found


def commit(storage: RemoteStorage, name: str, version: int = 1) -> DeltaTable:
    """Commit a row with an application transaction, and return the table."""
    uri = f"{storage.url}/documents"
    transactions = CommitProperties(app_transactions=[Transaction(name, version)])
    write_deltalake(uri, pa.table({"row": [1]}), mode="append", commit_properties=transactions)
    return DeltaTable(uri)


def test_the_log_is_read_once_for_all_transactions(storage: RemoteStorage, looked_up_in: list[str]) -> None:
    names = [f"load-{n}" for n in range(6)]
    for name in names[:3]:
        table = commit(storage, name)
    table.create_checkpoint()
    for name in (*names[3:5], names[0]):
        table = commit(storage, name, 2)
    found = versions_of(storage, "documents", table, names)
    assert list(found.values()) == [2, 1, 1, 2, 2, 0]
    assert sorted(storage.asked) == [
        *("00000000000000000002.checkpoint.parquet", "00000000000000000002.json"),
        *(f"{version:020}.json" for version in (3, 4, 5)),
    ]
    assert table.table_uri not in looked_up_in


def test_a_later_commit_of_another_program_is_not_seen(storage: RemoteStorage, looked_up_in: list[str]) -> None:
    """The table is committed to on the version that was read: deltalake looks for conflicts with later ones."""
    commit(storage, "first")
    table = commit(storage, "second")
    commit(storage, "third").create_checkpoint()
    assert versions_of(storage, "documents", table, ["first", "third"]) == {"first": 1, "third": 0}
    assert table.table_uri not in looked_up_in


@proves(
    "2.10",
    at="src/weblake/tables/delta_transactions.py",
    line="raise FileNotFoundError(name)",
    becomes='data = b""',
)
def test_a_commit_that_cannot_be_copied_is_looked_up_in_the_table(
    storage: RemoteStorage, looked_up_in: list[str]
) -> None:
    for name in ("first", "second", "third"):
        table = commit(storage, name)
    storage.lost = "00000000000000000001.json"
    assert versions_of(storage, "documents", table, ["first", "second"]) == {"first": 1, "second": 1}
    assert set(looked_up_in) == {table.table_uri}


def test_one_transaction_is_looked_up_in_the_table(storage: RemoteStorage, looked_up_in: list[str]) -> None:
    table = commit(storage, "first")
    assert versions_of(storage, "documents", table, ["first"]) == {"first": 1}
    assert (storage.asked, looked_up_in) == ([], [table.table_uri])
