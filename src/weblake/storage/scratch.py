"""Staging directories: made, owned while their process lives, swept when it is dead.

An owner holds a lock on a file in its directory, which the kernel drops with the process. So what is litter is known
and not guessed from a process number, which another machine, another container or a later process may share.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

#: Seconds that litter is left alone, even where its owner is dead.
LITTER_AGE = 24 * 3600.0

_OWNER = "owner.lock"
_PART = ".part"
_OURS = re.compile(r"\d+-[0-9a-f]{16}(\.part)?")


def part_name() -> str:
    """A fresh name for one file that is being written."""
    return f"{_mark()}{_PART}"


@contextmanager
def scratch_in(parent: Path, prefix: str = "") -> Iterator[Path]:
    """A new directory of ours below `parent`, which exists; removed at the end with all that is left in it."""
    sweep(parent, prefix)
    directory = parent / f"{prefix}{_mark()}"
    drop = partial(shutil.rmtree, directory, ignore_errors=True)
    owner: int | None = None
    try:  # made inside: a signal may end us on the very next line
        directory.mkdir(mode=0o700)
        owner = os.open(directory / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # a file system without locks: sweep() cannot lock it either and leaves it alone
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield directory
    finally:
        try:
            if owner is not None:
                os.close(owner)
            drop()
        except BaseException:  # a second Ctrl-C while this is done: it may cut short what hangs, and this does not
            drop()
            raise


def sweep(parent: Path, prefix: str = "", *, age_s: float = LITTER_AGE) -> None:
    """Removes what dead owners left below `parent` longer than `age_s` seconds ago. Never raises: litter may stay."""
    with suppress(OSError):
        for entry in list(parent.iterdir()):
            name = entry.name.removeprefix(prefix)
            if entry.name.startswith(prefix) and _OURS.fullmatch(name):
                with suppress(OSError):
                    _sweep_one(entry, age_s)


def _sweep_one(entry: Path, age_s: float) -> None:
    if time.time() - _touched(entry) < age_s:
        return
    if entry.is_symlink() or not entry.is_dir():
        entry.unlink(missing_ok=True)
        return
    try:
        owner = os.open(entry / _OWNER, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:  # its owner died between making it and locking it
        shutil.rmtree(entry, ignore_errors=True)
        return
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(entry, ignore_errors=True)
    finally:
        os.close(owner)


def _touched(entry: Path) -> float:
    """Wall-clock seconds of the last change to it or to a file in it."""
    newest = entry.lstat().st_mtime
    if entry.is_dir() and not entry.is_symlink():
        for file in entry.iterdir():
            newest = max(newest, file.lstat().st_mtime)
    return newest


def _mark() -> str:
    return f"{os.getpid()}-{secrets.token_hex(8)}"
