"""Translate the errors of deltalake: what could not be done with a table, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from weblake.errors import StorageRefused
from weblake.remedies import Remedy
from weblake.tables.formats import CommitConflict, first_line

#: Words of errors that a repetition does not help: deltalake lacks a feature of the table (it has a class for this, and
#: often raises another one), or no row may be removed from the table.
_PERMANENT = re.compile("Unsupported|not supported|append-only")

#: The words for a file that the log names and the storage does not have.
_MISSING = re.compile("Object at location .+ not found", re.DOTALL)


@contextmanager
def translate_read_errors(location: str, doing: str = "read") -> Iterator[None]:
    """Translate the errors of reading or creating the table: the user sees what could not be done, and no traceback."""
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    try:
        yield
    except TableNotFoundError:
        raise StorageRefused(
            f"{location} has no Delta Lake log.",
            hint=Remedy("Remove it with {remove_table}, and add it again with {add_table}."),
        ) from None
    except (DeltaError, OSError, pa.ArrowException) as error:  # Arrow's error: of a query, such as a missing file
        if isinstance(error, DeltaProtocolError) or _PERMANENT.search(str(error)):
            raise StorageRefused(
                f"deltalake cannot read the Delta Lake table {location}: {first_line(error)}.",
                hint="Update deltalake, or drop the table's feature that it lacks (ALTER TABLE … DROP FEATURE).",
            ) from error
        if _MISSING.search(str(error)):
            raise StorageRefused(
                f"The Delta Lake table {location} names a file that is missing: {first_line(error)}.",
                hint="Restore it from a backup; or take it out of the table with DeltaTable.repair().",
            ) from error
        raise StorageRefused(
            f"The Delta Lake table {location} cannot be {doing}: {first_line(error)}.",
            hint="Check the settings of its storage in the environment, such as AWS_…, and whether another program "
            "has changed the table.",
        ) from error


@contextmanager
def translate_commit_errors(location: str) -> Iterator[None]:
    """Translate the errors of a commit: another program has committed first, or the outcome is unknown."""
    from deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError

    try:
        yield
    except (DeltaError, OSError) as error:
        if isinstance(error, (DeltaProtocolError, SchemaMismatchError)) or _PERMANENT.search(str(error)):
            raise StorageRefused(
                f"The Delta Lake table {location} does not take the files of the dataset: {first_line(error)}.",
                hint="Its columns or features were changed by another program: change them back.",
            ) from error
        raise CommitConflict(first_line(error)) from error
