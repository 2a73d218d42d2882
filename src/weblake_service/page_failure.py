"""The exceptions for a page that could not be scraped, and for a limit of the service itself."""

from __future__ import annotations

import errno
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress

#: Errors of the system that a limit of this process or machine causes.
_LIMIT_ERRORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}
_MAX_CAUSES = 50
#: Texts of SQLite for the same.
_DATABASE_LIMITS = {
    "database or disk is full", "disk I/O error", "database is locked", "unable to open database file",
}  # fmt: skip


class ServiceLimitReached(Exception):
    """A limit of the service or its machine is reached, such as open files: the work waits and is tried again."""


class PageFailure(Exception):
    """The page could not be scraped at all; a target that returns 404 is not a failure but a document."""

    def __init__(self, code: str, message: str, *, status: int = 500, reached: bool = True) -> None:
        super().__init__(message)
        #: One of the contract's known error codes.
        self.code = code
        #: What happened, to what, and what to do next.
        self.message = message
        #: The status code of the response to a single POST /v2/scrape.
        self.status = status
        #: False if it failed before a request was sent: unknown name, no connection, or a private target.
        self.reached = reached


def not_configured(what: str, needs: str) -> PageFailure:
    """Return the refusal of a feature that is not configured."""
    message = f"{what} needs {needs}, which this service does not have."
    return PageFailure("FEATURE_NOT_CONFIGURED", message, status=503)


def own_limit(error: BaseException | None) -> str:
    """Return the limit of the service or its machine that caused an error; empty if it has another cause."""
    # Bounded, because causes and contexts can form a circle.
    for _ in range(_MAX_CAUSES):
        if isinstance(error, ServiceLimitReached):
            return str(error)
        if isinstance(error, socket.gaierror):
            # The resolver does not say why it failed.
            with suppress(FileNotFoundError):
                try:
                    os.close(os.open(os.devnull, os.O_RDONLY))
                except OSError as found:
                    error = found
        if isinstance(error, OSError) and error.errno in _LIMIT_ERRORS:
            return os.strerror(error.errno)
        if isinstance(error, sqlite3.OperationalError) and str(error) in _DATABASE_LIMITS:
            return str(error)
        for one in getattr(error, "exceptions", ()):
            if found_there := own_limit(one):
                return found_there
        # Also a suppressed context: httpcore raises its errors `from None`.
        error = error and (error.__cause__ or error.__context__)
    return ""


@contextmanager
def translated_limits() -> Iterator[None]:
    """Convert errors that a limit of the service caused to ServiceLimitReached."""
    try:
        yield
    except Exception as error:
        if limit := own_limit(error):
            raise ServiceLimitReached(limit) from error
        raise
