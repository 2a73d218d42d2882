"""Tests of what a local root syncs to disk, and in which order, recorded from the calls of this process.

`tests/system/test_fsync_order.py` reads the same of a whole landing from a trace of system calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weblake.storage.local import LocalStorage

RECORD, OTHER, NEW = "documents/day/a.parquet", "documents/day/b.parquet", "documents/new/deep/a.parquet"


class Disk:
    """A root whose folders exist, and the calls that change or sync it, in their order."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.calls = root, list[str]()
        self.storage = LocalStorage(root)
        self.storage.create(RECORD, b"first")
        self._wrap(monkeypatch, os, "fsync", "sync", lambda descriptor: os.readlink(f"/proc/self/fd/{descriptor}"))
        self._wrap(monkeypatch, os, "link", "link", lambda _, final: final)
        self._wrap(monkeypatch, Path, "replace", "replace", lambda _, final: final)
        self._wrap(monkeypatch, Path, "unlink", "unlink", lambda path: path)

    def _wrap(
        self, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, call: str, about: Callable[..., object]
    ) -> None:
        inner = getattr(owner, name)

        def recorded(*args: object, **options: object) -> object:
            found = Path(str(about(*args))).relative_to(self.root)
            self.calls.append(f"{call} {'staged' if '_weblake/tmp' in str(found) else found}")
            return inner(*args, **options)

        monkeypatch.setattr(owner, name, recorded)

    def staged(self) -> Path:
        path = self.root / "_weblake/tmp/rows.parquet"
        path.write_bytes(b"rows")
        return path


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with monkeypatch.context() as patched:
        yield Disk(tmp_path.resolve(), patched)


def test_a_record_is_synced_before_its_name_appears_and_its_name_before_it_counts(disk: Disk) -> None:
    assert disk.storage.create(OTHER, b"x")
    assert disk.calls == ["sync staged", f"link {OTHER}", "unlink staged", "sync documents/day"]


def test_a_record_is_written_to_the_file_before_that_is_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    fsync = os.fsync

    def sized(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", sized)
        assert disk.storage.create(OTHER, b"whole record")
    assert sizes[0] == len(b"whole record")


def test_the_name_of_a_record_that_another_writer_created_is_synced_too(disk: Disk) -> None:
    assert not disk.storage.create(RECORD, b"x")
    assert disk.calls == ["sync documents/day"]


def test_a_published_file_is_synced_before_its_name_appears(disk: Disk) -> None:
    assert disk.storage.publish(disk.staged(), OTHER)
    assert disk.calls == ["sync staged", f"link {OTHER}", "sync documents/day", "unlink staged"]


def test_a_replaced_file_is_synced_before_it_has_the_name(disk: Disk) -> None:
    disk.storage.replace(RECORD, disk.staged())
    assert disk.calls == ["sync staged", f"replace {RECORD}", "sync documents/day"]


def test_a_moved_file_has_its_new_name_on_disk_before_it_loses_the_old_one(disk: Disk) -> None:
    assert disk.storage.create("refused/a.parquet", b"x")
    disk.calls.clear()
    assert disk.storage.move("refused/a.parquet", OTHER)
    assert disk.calls == [f"link {OTHER}", "sync documents/day", "unlink refused/a.parquet", "sync refused"]


def test_a_deletion_is_synced(disk: Disk) -> None:
    disk.storage.delete(RECORD)
    assert disk.calls == [f"unlink {RECORD}", "sync documents/day"]


def test_the_deletion_of_a_folder_is_synced(disk: Disk) -> None:
    disk.storage.delete_folder("documents/day")
    assert disk.calls == [f"unlink {RECORD}", "sync documents/day", "sync documents"]


def test_a_file_that_is_relied_on_has_its_name_synced(disk: Disk) -> None:
    assert disk.storage.ensure_durable(RECORD)
    assert disk.calls == ["sync documents/day"]


def test_new_folders_are_synced_in_their_parents_before_a_file_is_in_them(disk: Disk) -> None:
    assert disk.storage.publish(disk.staged(), NEW)
    folders = ["sync documents", "sync documents/new"]
    assert disk.calls == [*folders, "sync staged", f"link {NEW}", "sync documents/new/deep", "unlink staged"]
