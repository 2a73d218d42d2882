"""The `Dataset` of one root (storage, ledger, layout and slot index) and the result of a landing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO

from weblake.dataset import layout
from weblake.dataset.layout import Layout
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent
from weblake.dataset.slots import Slots
from weblake.errors import StorageRefused
from weblake.receipt import Receipt
from weblake.storage import KINDS, RootPath, Storage, open_storage

DOCUMENTS, PAGE_ERRORS = layout.LOAD_TABLES


@dataclass(frozen=True, slots=True)
class LandedLoad:
    """A landed load: its receipt, and when it landed."""

    receipt: Receipt
    #: When it landed, if an earlier run landed it; None if this run did.
    landed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """One root: its storage, its ledger, its layout and its index of slots."""

    storage: Storage
    ledger: Ledger
    layout: Layout
    slots: Slots

    @classmethod
    def at(cls, storage: Storage) -> Dataset:
        """Return the dataset in this storage."""
        ledger = Ledger(storage)
        return cls(storage, ledger, Layout(storage), Slots(storage, ledger))

    def preflight(self, partition: Mapping[str, str] | None, load_id: str = "0" * 16) -> None:
        """Prove that a load can be recorded, published and kept in this root, before anything is paid.

        Raises:
            StorageRefused: The proof failed, or the tables have another set of partition keys.
        """
        layout.check_partition(partition or {})
        now = datetime.now(timezone.utc)
        names = [layout.load_path(table, partition, now, load_id) for table in layout.LOAD_TABLES]
        names.append(layout.refused_path(PAGE_ERRORS, load_id))  # both tables' refused files are in one folder
        self.storage.preflight(DOCUMENTS, names)
        self.layout.claim(DOCUMENTS, tuple(partition) if partition else layout.DEFAULT_KEYS)

    @property
    def url(self) -> str:
        """The address of the root, without credentials; for a local root its path."""
        return self.storage.url

    def exists(self, file: str) -> bool:
        """Return whether a file exists; `file` is its path relative to the root, as a receipt names it."""
        return self.storage.exists(file)

    def size(self, file: str) -> int:
        """Return the size of a file in bytes; 0 if it does not exist."""
        return self.storage.find_size(file) or 0

    def open(self, file: str) -> IO[bytes]:
        """Return a file, open for reading."""
        return self.storage.open_input(file)

    def write(self, file: str, data: bytes) -> None:
        """Write or replace a small file that belongs to no load, in one step: readers see the old or the new one."""
        with self.storage.scratch() as directory:
            ready = directory / "file"
            ready.write_bytes(data)
            self.storage.replace(file, ready)

    def local_path(self, file: str) -> Path | None:
        """Return the path of a file on this machine; None if the root is on object storage or in memory."""
        return self.storage.local_path(file)

    def path(self, table: str, intent: Intent) -> str:
        """Return the final path of a load's file in a table, relative to the root."""
        return layout.load_path(table, intent.partition, intent.created(), intent.load_id)


def open_dataset(root: RootPath, *, storage_options: Mapping[str, object] | None = None) -> Dataset:
    """Return the dataset at a root: a local path, an s3://, gs://, abfs:// or memory:// URL, or an `FsspecPath`.

    `storage_options` are options for the file system of a URL, as fsspec takes them. Default: the settings of the
    environment.
    """
    return Dataset.at(open_storage(root, storage_options=storage_options))


def refuse_memory(dataset: Dataset, process: str, *, hint: str = "") -> None:
    """Raise StorageRefused if a dataset is in memory, because the process named here ends before it can be read.

    `hint` is appended to the error's hint, after the kinds of persistent roots.
    """
    if dataset.url.startswith("memory://"):
        raise StorageRefused(
            f"{dataset.url} is in the memory of {process} and gone when that ends.",
            hint=f"Give {KINDS}. {hint}".strip(),
        )


def path_keys(dataset: Dataset, table: str) -> tuple[str, ...]:
    """Return the path keys of a table of a dataset, in order; those by default if nothing has landed in it yet.

    Raises:
        StorageRefused: The record of the keys cannot be read.
    """
    return Layout(dataset.storage).keys(table)
