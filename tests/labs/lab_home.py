"""Where labs keep what every later one can use again, and how they come by a port."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import tempfile
from pathlib import Path


def cache() -> Path:
    """A directory of ours alone, for what every lab of this machine can use again."""
    path = Path(tempfile.gettempdir(), f"weblake-lab-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    # The name is known to everybody: a link, or somebody else's directory, would choose our database.
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    assert ours, f"{path} is not a directory of ours; remove it"
    return path


def free_port() -> int:
    """A free loopback port below those that the system gives away by itself, so that it stays free until used."""
    for port in random.sample(range(20000, 32000), 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port between 20000 and 32000")
