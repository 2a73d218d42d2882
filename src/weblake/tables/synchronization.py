"""Bring the tables of a dataset up to date, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from weblake.dataset import layout
from weblake.dataset.registered_tables import RegisteredTable
from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import FeatureMissing, StorageRefused, WeblakeError
from weblake.remedies import Remedy
from weblake.storage import RootPath
from weblake.tables.committing import SyncResult, sync_table
from weblake.tables.kept_files import delete_kept_files
from weblake.tables.registration import open_lake_table, select_tables
from weblake.tables.replacing import sync_files


def sync(
    root: RootPath,
    *,
    format: str | None = None,
    name: str | None = None,
    everything: bool = False,
    storage_options: Mapping[str, object] | None = None,
    table_options: Mapping[str, str] | None = None,
) -> list[SyncResult]:
    """Commit to the tables of a dataset what has landed and what was retired; return what was done, by table.

    A sync can be repeated, killed and run several times at once: each load is added once, and of each file of
    usage_periods and activity the table has the newest content. Files of retired loads that no table needs any more are
    deleted.

    Args:
        root: The dataset.
        format: Only tables of this format.
        name: Only the table with this identifier, or of this table of the dataset.
        everything: Look at each load of the ledger, not only at those that landed or were retired since the last sync;
            for usage_periods and activity, at each file.
        storage_options: As in `add`.
        table_options: As in `add`.

    Raises:
        InvalidOption: The dataset has no such table.
        FeatureMissing: deltalake or pyiceberg is not installed.
        StorageRefused: A table or a record cannot be read or written; another program has changed a table so that files
            cannot be added, or made it append-only and a load was replaced; or no attempt of a commit has succeeded.
            The other tables, and the loads whose records can be read, are up to date all the same. If several tables
            failed, this is the error of the first, and its hint has the messages of the others.
    """
    dataset = open_dataset(root, storage_options=storage_options)
    wanted = select_tables(dataset, format, name)
    done, failures = sync_each(dataset, wanted, lambda _: table_options, everything=everything)
    told: list[WeblakeError] = []
    for error in failures:
        if not isinstance(error, (StorageRefused, FeatureMissing)):
            raise error
        told.append(error)
    if told:
        first, *others = told
        if others:
            text = " ".join(f"Another table is not up to date either: {error.message}" for error in others)
            first.remedy = first.remedy.followed_by(Remedy("{other_tables}", {"other_tables": text}))
        raise first
    return done


def sync_each(
    dataset: Dataset,
    wanted: Sequence[RegisteredTable],
    options_of: Callable[[RegisteredTable], Mapping[str, str] | None],
    *,
    everything: bool = False,
) -> tuple[list[SyncResult], list[Exception]]:
    """Sync tables, also if one of them fails, and return the results and the errors.

    If none fails, delete the files of retired loads that no table needs any more. All tables are looked at before that:
    another program may have restored an older version of one, which names such a file again.

    Args:
        dataset: The dataset.
        wanted: The tables.
        options_of: Returns the settings for deltalake or pyiceberg of a table; an error of it is one of the table.
        everything: As in `sync`.
    """
    done, opened = [], []
    failures: list[Exception] = []
    for each in wanted:
        try:
            lake = open_lake_table(dataset, each, options_of(each))
            opened.append((each, lake))
            sync_one = sync_files if each.table in layout.FIXED_KEYS else sync_table
            done.append(sync_one(dataset, each, lake, everything=everything))
        except Exception as error:  # noqa: BLE001  # the libraries of the formats raise errors of their own
            failures.append(error)
    if done and not failures:
        try:
            done[0] = replace(done[0], deleted_files=delete_kept_files(dataset, opened))
        except StorageRefused as error:
            failures.append(error)
    return done, failures
