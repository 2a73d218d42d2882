"""Tells which user owns the other end of a loopback connection, where the system reports it."""

from __future__ import annotations

import os
from pathlib import Path

_TABLE = Path("/proc/net/tcp")


def is_own_user(peer: tuple[str, int] | None) -> bool:
    """Return whether a program of this user's has this end (address, port) of a connection.

    Linux tells; elsewhere everybody on the machine is taken for this user.
    """
    if peer is None:
        return False
    if not _TABLE.exists():
        return True
    # The kernel's form of an end: the address as the machine's own number, and the port, in hexadecimal.
    port = f":{peer[1]:04X}"
    for line in _TABLE.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(port) and fields[1].startswith("0100007F"):
            return int(fields[7]) == os.geteuid()
    return False
