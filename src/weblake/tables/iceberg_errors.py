"""Translate the errors of pyiceberg and of its catalogs, and suppress its warnings that concern no user."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from weblake.errors import FeatureMissing, StorageRefused
from weblake.remedies import Remedy
from weblake.tables.formats import CommitConflict, first_line


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate the errors of a catalog: the user sees what could not be done, and no traceback."""
    from pyiceberg.exceptions import NoSuchTableError, NotInstalledError

    try:
        yield
    except (StorageRefused, FeatureMissing, CommitConflict):
        raise
    except NoSuchTableError as error:
        raise StorageRefused(
            f"{what} cannot be used: {first_line(error)}.",
            hint=Remedy(
                "If another program has renamed it, rename it back; if it was dropped, remove it with {remove_table}, "
                "and add it again with {add_table}."
            ),
        ) from error
    except NotInstalledError as error:
        raise FeatureMissing(f"{what} needs a package that is not installed.", hint=f"{first_line(error)}.") from error
    except FileNotFoundError as error:
        raise StorageRefused(
            f"{what} names a file that is missing: {first_line(error)}.",
            hint="If the dataset was moved, move it back, or put a symbolic link in its old place: the table has the "
            "whole paths of its files. Otherwise restore the file from a backup.",
        ) from error
    except Exception as error:  # catalogs raise errors of their own, of HTTP clients and of databases
        raise StorageRefused(
            f"{what} cannot be used: {first_line(error)}.",
            hint="Check its settings: .pyiceberg.yaml, or PYICEBERG_CATALOG__… in the environment.",
        ) from error


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress three warnings of pyiceberg: of columns without statistics, which the bodies are, because no query uses
    theirs; of a replacement of rows that the table did not have yet; and of a table whose property asks for delete
    files (`write.delete.mode`), in place of which it writes the other rows of a file again.
    """
    log = logging.getLogger("pyiceberg.io.pyarrow")

    def wanted(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("PyArrow statistics missing")

    log.addFilter(wanted)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Delete operation did not match any records")
            warnings.filterwarnings("ignore", message="Merge on read is not yet supported")
            yield
    finally:
        log.removeFilter(wanted)


def conflict_errors() -> tuple[type[Exception], ...]:
    """Return the errors after which the table has to be looked at again: another program has committed first; or, of
    the catalog, the network and a database, that it is unknown whether a commit took place.
    """
    from pyiceberg import exceptions

    found = (
        exceptions.CommitFailedException,
        exceptions.CommitStateUnknownException,
        exceptions.ValidationException,
        # Of a REST catalog, or of a proxy before it, which may have passed the commit on.
        exceptions.ServerError,
        exceptions.ServiceUnavailableError,
        OSError,
    )
    try:
        from sqlalchemy.exc import OperationalError
    except ImportError:
        return found
    return (*found, OperationalError)
