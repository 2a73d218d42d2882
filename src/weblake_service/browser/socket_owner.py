"""Determines the user of the other end of a loopback connection, where the system reports it."""

from __future__ import annotations

import os
from pathlib import Path

_TCP_TABLE = Path("/proc/net/tcp")


def is_own_user(peer: tuple[str, int] | None) -> bool:
    """Return whether a process of this user owns this end (address, port) of a connection.

    Supported on Linux; on other systems every local user is treated as this user.
    """
    if peer is None:
        return False
    if not _TCP_TABLE.exists():
        return True
    # The kernel's format of an endpoint: the address in host byte order, and the port, in hexadecimal.
    port = f":{peer[1]:04X}"
    for line in _TCP_TABLE.read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(port) and fields[1].startswith("0100007F"):
            return int(fields[7]) == os.geteuid()
    return False
