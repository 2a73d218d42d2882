"""Tests of what a local root syncs to disk, and in which order, recorded from the calls of this process.

`tests/system/test_fsync_order.py` reads the same of a whole landing from a trace of system calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from catalogue import proves

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


OPERATIONS: dict[str, tuple[Callable[[Disk], object], list[str]]] = {
    "create": (
        lambda disk: disk.storage.create(OTHER, b"x"),
        ["sync staged", f"link {OTHER}", "unlink staged", "sync documents/day"],
    ),
    # The name was created by another writer.
    "create again": (lambda disk: disk.storage.create(RECORD, b"x"), ["sync documents/day"]),
    "publish": (
        lambda disk: disk.storage.publish(disk.staged(), OTHER),
        ["sync staged", f"link {OTHER}", "sync documents/day", "unlink staged"],
    ),
    "publish in new folders": (
        lambda disk: disk.storage.publish(disk.staged(), NEW),
        [
            "sync documents",
            "sync documents/new",
            "sync staged",
            f"link {NEW}",
            "sync documents/new/deep",
            "unlink staged",
        ],
    ),
    "replace": (
        lambda disk: disk.storage.replace(RECORD, disk.staged()),
        ["sync staged", f"replace {RECORD}", "sync documents/day"],
    ),
    "move": (
        lambda disk: disk.storage.move(RECORD, "refused/a.parquet"),
        ["sync .", "link refused/a.parquet", "sync refused", f"unlink {RECORD}", "sync documents/day"],
    ),
    "delete": (lambda disk: disk.storage.delete(RECORD), [f"unlink {RECORD}", "sync documents/day"]),
    "rely on a file": (lambda disk: disk.storage.ensure_durable(RECORD), ["sync documents/day"]),
}


@proves(
    "P2",
    at="src/weblake/storage/local.py",
    line='    with path.open("rb") as file:',
    becomes="    for file in ():",
    case="publish",
)
@proves(
    "P2",
    at="src/weblake/storage/local.py",
    line="        os.fsync(descriptor)",
    becomes="        pass",
    case="publish in new folders",
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_p2_contents_names_and_folders_are_synced_in_the_required_order(disk: Disk, operation: str) -> None:
    """A power cut must not find a name without its content, or a file without its folder."""
    act, calls = OPERATIONS[operation]
    act(disk)
    assert disk.calls == calls


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
