"""The events of loads and requests, which a client's observer receives.

An event holds ids, names, counts and seconds, or a message of weblake's own: no key, no header, no body, no query, no
text of a page, of a site or of the service. `load_id` is that of the load in whose run the event happened; None outside
a load. docs/observability.md lists which log record, span and metric is made of each event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from weblake.receipt import Receipt

_CURRENT_LOAD: ContextVar[str | None] = ContextVar("weblake_load", default=None)

#: The service's statuses of a job, and weblake's own; any other text of a service becomes OTHER.
STATUSES = frozenset({"scraping", "completed", "failed", "cancelled", "expired"})
OTHER = "other"
#: The counts of a receipt that are outcomes of pages.
PAGE_OUTCOMES = ("stored", "failed", "robots_blocked", "rejected", "missing", "duplicates")


@contextmanager
def of_load(load_id: str) -> Iterator[None]:
    """Return a context manager in which new events belong to this load, in all threads that are started in it."""
    token = _CURRENT_LOAD.set(load_id)
    try:
        yield
    finally:
        _CURRENT_LOAD.reset(token)


def known_status(status: object) -> str:
    """Return a job's status in lower case if it is a known one, otherwise `other`."""
    text = status.lower() if isinstance(status, str) else ""
    return text if text in STATUSES else OTHER


def count_of(value: object) -> int | None:
    """Return a count that the service reports, or None if it is no number of 0 or more."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the events. `seconds` is how long the step took that the event ends."""

    load_id: str | None = msgspec.field(default_factory=_CURRENT_LOAD.get)


#: A function that is called with each event, in the thread in which it happens. It must return soon; an exception of it
#: is logged and has no other effect, unless it is one that ends a program, such as KeyboardInterrupt.
Observer = Callable[[Event], None]


class LoadStarted(Event, frozen=True, kw_only=True):
    """`land` was called for a load; exactly one of LoadFinished, LoadRefused and LoadFailed follows."""

    kind: str


class LoadEnd(Event, frozen=True, kw_only=True):
    """Base class of the three ends of a load."""

    kind: str
    job_id: str | None
    seconds: float
    #: The counts, if the load was read.
    receipt: Receipt | None = None
    #: Name of the class of the exception, such as LoadIncomplete; None if the load has landed.
    error: str | None = None

    @property
    def outcome(self) -> str:
        """One word: `landed`, `landed_before`, `refused` or `failed`."""
        return "failed"


class LoadFinished(LoadEnd, frozen=True, kw_only=True):
    """A load has landed; `landed_before` is True if an earlier run landed it, so that this one did nothing."""

    landed_before: bool

    @property
    def outcome(self) -> str:
        """`landed` or `landed_before`."""
        return "landed_before" if self.landed_before else "landed"


class LoadRefused(LoadEnd, frozen=True, kw_only=True):
    """A load was read and not published, because it is not complete or passed a limit; or all of its pages failed."""

    @property
    def outcome(self) -> str:
        """`refused`."""
        return "refused"


class LoadFailed(LoadEnd, frozen=True, kw_only=True):
    """A call of `land` ended before the load was read; the same call resumes it."""


class LoadMessage(Event, frozen=True, kw_only=True):
    """A user has to know something about a load, such as that its list of URLs has changed since its start."""

    text: str


class JobStarted(Event, frozen=True, kw_only=True):
    """The service accepted a start, and the job's id is recorded."""

    kind: str
    job_id: str
    #: From the first look into the ledger, all attempts and pauses included.
    seconds: float


class StartLost(Event, frozen=True, kw_only=True):
    """A start got no response, and its outcome is looked up, which may take minutes; LostStartResolved follows."""


class LostStartResolved(Event, frozen=True, kw_only=True):
    """It was found out what became of a start that had got no response."""

    kind: str
    #: The job; None if there is none, or if it is not known.
    job_id: str | None
    #: `adopted` (found in the activity list), `replayed` (the service repeated its response), `recorded` (another
    #: process had recorded it), `not_started`, or `unknown` (a person has to decide).
    outcome: str
    seconds: float


class StatusPolled(Event, frozen=True, kw_only=True):
    """The status of a job was read; a count is None if the service does not report it."""

    kind: str
    job_id: str
    status: str
    completed: int | None
    total: int | None
    credits_used: float | None = None


class WaitFinished(Event, frozen=True, kw_only=True):
    """A wait for the end of a job is over."""

    kind: str
    job_id: str
    #: The job's status, or the name of the class of the exception that ended the wait.
    outcome: str
    seconds: float


class ChunkRead(Event, frozen=True, kw_only=True):
    """A chunk of a job's results was read; a single scrape or a parsed file is one chunk.

    `seconds` is the time for which the load waited for it, which is short if it had been prefetched.
    """

    kind: str
    job_id: str
    documents: int
    #: Size after decompression.
    bytes: int
    seconds: float


class LoadAccounted(Event, frozen=True, kw_only=True):
    """The pages of an ended job were counted by outcome.

    Once for each load: by the run that publishes it, or refuses it for the first time.
    """

    #: The counts, and the credits that the job used; None if the service does not report them.
    receipt: Receipt


class FilesPublished(Event, frozen=True, kw_only=True):
    """This run has published the files of a load."""

    #: Paths relative to the root.
    paths: tuple[str, ...]
    rows: int
    bytes: int
    seconds: float


class RequestFinished(Event, frozen=True, kw_only=True):
    """An HTTP request got its response, or failed."""

    method: str
    #: Path below the base URL, without the query.
    path: str
    #: None if there was no usable response.
    status: int | None
    #: 1 for the first try of a call.
    attempt: int
    #: Size of the body as far as it was read, after decompression.
    bytes: int
    seconds: float


class RetryScheduled(Event, frozen=True, kw_only=True):
    """A try of a call failed, and another one follows after a pause."""

    #: The contract's operationId in snake_case.
    operation: str
    attempt: int
    error: str
    status: int | None
    pause_s: float


class UsageReported(Event, frozen=True, kw_only=True):
    """The team's usage of the running month was read, and compared with a budget."""

    #: `credits` or `tokens`, or one of them with `_by_key`.
    report: str
    used: float
    #: None for no budget.
    budget: float | None


class OrphansListed(Event, frozen=True, kw_only=True):
    """The loads of a root that have not landed were listed."""

    #: Address of the root, without credentials.
    root: str
    orphans: int
    #: Age of the oldest one in seconds; 0 if there is none.
    oldest_s: float
    #: Loads whose checked files are kept because they were refused.
    refused: int
