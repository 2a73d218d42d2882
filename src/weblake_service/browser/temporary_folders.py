"""Temporary folders of browsers: removed with their process, or by the next service if that was killed.

A file lock that ends with its process shows which folders are still in use.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from contextlib import suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

_LOG = logging.getLogger("weblake.service")
_PREFIX = "weblake-browser-"
_LOCK = ".in-use"


class TemporaryFolder:
    """A new temporary folder of this process; `remove` deletes it. Thread-safe."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Closed on exec, so that no child keeps the lock after this process has ended.
        self._lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        flock(self._lock, LOCK_EX | LOCK_NB)

    def remove(self) -> None:
        """Delete the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)


def remove_abandoned() -> None:
    """Delete the folders of services that were killed: a browser's profile may contain its user's cookies."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # The folder belongs to another user, or is being created or removed now.
            continue
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except OSError:
            continue
        else:
            _LOG.info("Removing %s, which a service that was killed left behind.", path)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
