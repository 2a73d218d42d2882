"""The actions of the Delta Lake log with which a commit adds and removes the files of loads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from weblake.storage import Storage
from weblake.tables.delta_statistics import read_footer, statistics_of
from weblake.tables.formats import LoadFile

if TYPE_CHECKING:
    from deltalake.transaction import AddAction, RemoveAction, Transaction

#: Versions of the application transaction of a load.
ADDED, REMOVED = 1, 2


def transaction_name(load_id: str) -> str:
    """Return the name of a load's application transaction."""
    return f"weblake:{load_id}"


def transaction(load_id: str, version: int) -> Transaction:
    """Return the application transaction of a load."""
    from deltalake.transaction import Transaction

    return Transaction(transaction_name(load_id), version)


def add_action(storage: Storage, folder: str, file: LoadFile, *, now: int) -> AddAction:
    """Return the action that adds a file to the table in `folder`, with the statistics of its footer; `now` in ms."""
    from deltalake.transaction import AddAction

    assert file.path is not None
    return AddAction(
        path=path_in_log(folder, file.path),
        size=file.bytes,
        partition_values=dict(file.keys),
        modification_time=now,
        data_change=True,
        stats=json.dumps(statistics_of(read_footer(storage, file))),
    )


def remove_action(folder: str, file: LoadFile, *, now: int) -> RemoveAction:
    """Return the action that removes a file from the table in `folder`; `now` in ms."""
    from deltalake.transaction import RemoveAction

    assert file.path is not None
    return RemoveAction(
        path=path_in_log(folder, file.path),
        data_change=True,
        deletion_timestamp=now,
        size=file.bytes,
        partition_values=dict(file.keys),
    )


def path_in_log(folder: str, path: str) -> str:
    """Return a path relative to the table's folder; deltalake encodes it for the log itself."""
    return path.removeprefix(f"{folder}/")
