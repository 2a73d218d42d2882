"""Staging directories: created, locked while their process lives, deleted after it has ended.

The owner of a directory holds a lock on a file in it, which the kernel releases when the process ends. So abandoned
directories are detected reliably, unlike by process id, which another machine, container or later process may share.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from weblake.errors import FeatureMissing

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where datasets can be read
    fcntl = None  # type: ignore[assignment]

#: Minimum age in seconds at which abandoned files and directories are deleted.
ABANDONED_S = 24 * 3600.0

#: How the name of a file that is being written ends.
PART = ".part"
_OWNER = "owner.lock"
_SCRATCH_NAME = re.compile(r"\d+-[0-9a-f]{16}(\.part)?")


def unique_name(end: str = "") -> str:
    """Return a unique name for a file or directory, by which `sweep` recognises it; `end` is PART for a file."""
    return f"{os.getpid()}-{secrets.token_hex(8)}{end}"


def refuse_without_locks() -> None:
    """Raise FeatureMissing on Windows, before anything is paid or written."""
    if fcntl is None:
        raise FeatureMissing(
            "weblake writes datasets on Linux and macOS only; this system has no POSIX file locks.",
            hint="On Windows run it in WSL (Windows Subsystem for Linux). Reading datasets works here.",
        )


@contextmanager
def scratch_in(parent: Path, prefix: str = "") -> Iterator[Path]:
    """Create a private directory below the existing directory `parent`; removed with its content at the end."""
    refuse_without_locks()
    directory = parent / f"{prefix}{unique_name()}"
    drop = partial(shutil.rmtree, directory, ignore_errors=True)
    owner: int | None = None
    try:  # mkdir is inside the try block because a signal may arrive right after it
        directory.mkdir(mode=0o700)
        owner = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # a file system without locks: sweep() cannot lock it either and keeps it
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield directory
    finally:
        try:
            if owner is not None:
                os.close(owner)
            drop()
        except BaseException:  # a second Ctrl-C during the removal: repeat it, as it does not block
            drop()
            raise


def sweep(parent: Path, prefix: str = "", *, age_s: float = ABANDONED_S) -> None:
    """Delete abandoned files and directories below `parent` older than `age_s` seconds; OSErrors are ignored."""
    with suppress(OSError):
        for entry in list(parent.iterdir()):
            name = entry.name.removeprefix(prefix)
            if entry.name.startswith(prefix) and _SCRATCH_NAME.fullmatch(name):
                with suppress(OSError):
                    _sweep_one(entry, age_s)


def _sweep_one(entry: Path, age_s: float) -> None:
    if time.time() - _last_change(entry) < age_s:
        return
    if entry.is_symlink() or not entry.is_dir():
        entry.unlink(missing_ok=True)
        return
    try:
        owner = os.open(entry / _OWNER, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its owner ended between creating and locking it
        shutil.rmtree(entry, ignore_errors=True)
        return
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry, ignore_errors=True)
    finally:
        os.close(owner)


def _last_change(entry: Path) -> float:
    """Return the time of the last change to an entry or to a file in it, in seconds since the epoch."""
    newest = entry.lstat().st_mtime
    if entry.is_dir() and not entry.is_symlink():
        for file in entry.iterdir():
            newest = max(newest, file.lstat().st_mtime)
    return newest
