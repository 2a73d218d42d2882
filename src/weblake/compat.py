"""Features of Python 3.11 for Python 3.10.

`re` has possessive quantifiers (`a*+`), `read_time` parses every ISO 8601 time that `datetime.fromisoformat` parses,
`program_command` is `python -P`, and `allow_tls_in_tls` prepares a transport for a second TLS handshake.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

__all__ = ["allow_tls_in_tls", "program_command", "re", "read_time"]

#: Does the same as `-P`: neither the program's directory nor the current directory is on the path.
_SAFE_PATH = "import runpy, sys; del sys.path[0]; runpy.run_path(sys.argv.pop(1), run_name='__main__')"

# Type checkers use the standard library's types; `regex` has the same interface.
if TYPE_CHECKING or sys.version_info >= (3, 11):
    import re

    read_time = datetime.fromisoformat
else:
    import regex as re
    from backports.datetime_fromisoformat import datetime_fromisoformat as read_time


def program_command(program: Path, *arguments: str) -> list[str]:
    """Return the command line that runs a program with this Python, without its directory on the import path."""
    if sys.version_info >= (3, 11):
        return [sys.executable, "-P", str(program), *arguments]
    return [sys.executable, "-c", _SAFE_PATH, str(program), *arguments]


def allow_tls_in_tls(transport: asyncio.Transport) -> None:
    """Let `loop.start_tls` accept a transport that is already encrypted, as Python 3.11 does.

    The transport of 3.10 supports it, but its class does not set the attribute that asyncio checks.
    """
    if sys.version_info < (3, 11) and transport.get_extra_info("ssl_object") is not None:
        transport._start_tls_compatible = True  # type: ignore[attr-defined]
