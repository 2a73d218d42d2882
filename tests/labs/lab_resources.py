"""The cache directory that labs share, and free ports."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import tempfile
from pathlib import Path


def cache() -> Path:
    """Return a directory of this user alone, for files that every lab of this machine can reuse."""
    path = Path(tempfile.gettempdir(), f"weblake-lab-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    # The name is predictable: a link, or a directory of another user, could replace our database.
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    assert ours, f"{path} is not a directory of ours; remove it"
    return path


def free_port() -> int:
    """Return a free loopback port below the ephemeral range, so that it stays free until it is used."""
    for port in random.sample(range(20000, 32000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port between 20000 and 32000")
