"""Host name lookups in daemon threads, because the system's resolver has no timeout."""

from __future__ import annotations

import ipaddress
import socket
from concurrent.futures import Future
from functools import partial

from weblake.background import run_in_thread

_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


def look_up(host: str, port: int) -> Future[list[str]]:
    """Return a future of the addresses of a host: at least one address, or an OSError.

    The thread is a daemon, so a lookup that hangs does not prevent the process or an event loop from ending.
    """
    if not _is_address(host):
        return run_in_thread(partial(_addresses, host, port))
    found: Future[list[str]] = Future()
    found.set_result([host])
    return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise OSError(f"{host} has no address")
    return [socket.getnameinfo(address, _NUMERIC)[0] for *_, address in found]
