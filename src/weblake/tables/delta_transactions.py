"""Looks up application transactions in the log of a Delta Lake table.

deltalake reads the log since its last checkpoint again for each of them, one after the other. From an object store the
log is copied once, and deltalake reads the copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from weblake.dataset import parallel
from weblake.storage import Storage

if TYPE_CHECKING:
    from deltalake import DeltaTable

_LOG = "_delta_log"
#: A commit or a checkpoint, by its version. A checkpoint names no application transaction outside of these files.
_NAME = re.compile(rf"{_LOG}/(\d{{20}})\.(checkpoint\.)?[^/]+$")


def versions_of(storage: Storage, folder: str, table: DeltaTable, names: Sequence[str]) -> dict[str, int]:
    """Return the versions of application transactions in the version of a table that was read; 0 for one without.

    Raises:
        DeltaError: The log cannot be read.
        OSError: The same.
    """
    from deltalake.exceptions import DeltaError

    if storage.local_path(folder) is None and len(names) > 1:
        with suppress(DeltaError, OSError), _copy(storage, folder, table.version()) as copied:
            return {name: copied.transaction_version(name) or 0 for name in names}
    return {name: table.transaction_version(name) or 0 for name in names}


@contextmanager
def _copy(storage: Storage, folder: str, version: int) -> Iterator[DeltaTable]:
    """Yield a version of a table whose log, from its last checkpoint on, is on local disk."""
    from deltalake import DeltaTable

    found = [(name, match) for name in storage.list(f"{folder}/{_LOG}") if (match := _NAME.search(name))]
    until = [(name, int(match[1]), match[2]) for name, match in found if int(match[1]) <= version]
    begin = max((number for _, number, checkpoint in until if checkpoint), default=0)
    wanted = [name for name, number, _ in until if number >= begin]
    with storage.scratch() as scratch:
        (scratch / _LOG).mkdir()
        read = parallel.in_order(wanted, storage.read, threads=parallel.readers(storage))
        for name, data in zip(wanted, read, strict=True):
            if data is None:  # an empty file would be a commit without transactions
                raise FileNotFoundError(name)
            (scratch / _LOG / name.rpartition("/")[2]).write_bytes(data)
        yield DeltaTable(str(scratch), version=version)
