"""The events of loads and requests, and what observes them: the log, a caller's observer, measurements and totals.

An event holds ids, names, counts and seconds, or a message of weblake's own: no key, no header, no body, no query, no
text of a page, of a site or of the service. `load_id` is that of the load in whose run the event happened; None outside
a load. docs/site/tasks/monitoring.md lists which log record, span and metric is made of each event.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from weblake.receipt import Receipt

_CLIENT_LOG = logging.getLogger("weblake.client")
_LANDING_LOG = logging.getLogger("weblake.landing")
#: Seconds between two log lines about a job in the same state.
LOG_INTERVAL_S = 60.0
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
    """Return a count that the service reports, or None if it is no whole number from 0 to 2**53."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


def amount_of(value: object) -> float | None:
    """Return an amount of credits that the service reports, or None if it is no number from 0 to 10**15."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        return None
    return float(value)


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


def combine(*observers: Observer) -> Observer:
    """Return an observer that calls all of these; the first exception of each is logged, and has no other effect."""
    failed: set[int] = set()  # by id: an observer need not be hashable

    def observe(event: Event) -> None:
        for observer in observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001  # whatever an observer raises, the load goes on
                if id(observer) not in failed:
                    failed.add(id(observer))
                    _CLIENT_LOG.warning("An observer raised at %s; later ones are not logged.", event, exc_info=True)

    return observe


def log_event(event: Event) -> None:
    """Log a request at DEBUG to `weblake.client`; to `weblake.landing` a load's end at INFO, its messages as warnings.

    The attribute `weblake` of the record of a request or an end is a dict of its fields.
    """
    if isinstance(event, RequestFinished):
        if _CLIENT_LOG.isEnabledFor(logging.DEBUG):
            _log(_CLIENT_LOG, logging.DEBUG, "request", _request_fields(event))
    elif isinstance(event, LoadEnd) and _LANDING_LOG.isEnabledFor(logging.INFO):
        _log(_LANDING_LOG, logging.INFO, "load", _end_fields(event))
    elif isinstance(event, LoadMessage):
        _LANDING_LOG.warning("%s", event.text)


def _log(logger: logging.Logger, level: int, name: str, fields: dict[str, object]) -> None:
    text = " ".join(f"{field}={'none' if value is None else value}" for field, value in fields.items())
    logger.log(level, "%s %s", name, text, extra={"weblake": {"event": name, **fields}})


def _request_fields(event: RequestFinished) -> dict[str, object]:
    return {
        "method": event.method,
        "path": event.path,
        "status": event.status,
        "ms": round(event.seconds * 1000, 1),
        "attempt": event.attempt,
        "bytes": event.bytes,
        "load_id": event.load_id,
    }


def _end_fields(event: LoadEnd) -> dict[str, object]:
    fields: dict[str, object] = {
        "outcome": event.outcome,
        "load_id": event.load_id,
        "kind": event.kind,
        "job_id": event.job_id,
        "seconds": round(event.seconds, 3),
    }
    receipt = event.receipt
    if receipt is not None:
        fields |= {"status": known_status(receipt.status), "credits": receipt.credits_used}
        fields |= {name: getattr(receipt, name) for name in PAGE_OUTCOMES}
    if event.error is not None:
        fields["error"] = event.error
    return fields


#: Each metric: its kind, its unit, and its description. docs/site/tasks/monitoring.md lists them with their attributes.
METRICS = {
    "weblake.loads": ("counter", "{load}", "Calls of land, by outcome"),
    "weblake.pages": ("counter", "{page}", "Pages of ended jobs, by outcome"),
    "weblake.credits": ("counter", "{credit}", "Credits that ended jobs used"),
    "weblake.retries": ("counter", "{retry}", "Tries of requests that failed and were followed by another one"),
    "weblake.lost_starts": ("counter", "{start}", "Starts without a response, by what was found out"),
    "weblake.polls": ("counter", "{poll}", "Polls of the status of a job"),
    "weblake.downloaded": ("counter", "By", "Results of jobs, after decompression"),
    "weblake.published": ("counter", "By", "Files that were published"),
    "weblake.wait.duration": ("histogram", "s", "Waits for the end of a job"),
    "weblake.usage": ("gauge", "", "Credits or tokens that the running month has used"),
    "weblake.usage.budget": ("gauge", "", "Credits or tokens that the running month may use"),
    "weblake.orphans": ("gauge", "{load}", "Loads of a root that have not landed"),
    "weblake.orphans.oldest": ("gauge", "s", "Age of the oldest load of a root that has not landed"),
    "weblake.orphans.refused": ("gauge", "{load}", "Refused loads of a root, whose files are kept"),
}


Tags = Mapping[str, str]


class Measurement(NamedTuple):
    """A value of a metric of METRICS."""

    name: str
    #: `counter`, `histogram` or `gauge`.
    kind: str
    value: float
    tags: Tags


def _account(event: LoadAccounted) -> Iterator[tuple[str, float, Tags]]:
    receipt = event.receipt
    for outcome in PAGE_OUTCOMES:
        if count := getattr(receipt, outcome):
            yield "weblake.pages", count, {"outcome": outcome, "kind": receipt.kind}
    if receipt.credits_used:
        yield "weblake.credits", receipt.credits_used, {"kind": receipt.kind}


def _usage(event: UsageReported) -> Iterator[tuple[str, float, Tags]]:
    yield "weblake.usage", event.used, {"report": event.report}
    if event.budget is not None:
        yield "weblake.usage.budget", event.budget, {"report": event.report}


def _orphans(event: OrphansListed) -> Iterator[tuple[str, float, Tags]]:
    yield "weblake.orphans", event.orphans, {"root": event.root}
    yield "weblake.orphans.oldest", event.oldest_s, {"root": event.root}
    yield "weblake.orphans.refused", event.refused, {"root": event.root}


def _end(event: LoadEnd) -> Iterator[tuple[str, float, Tags]]:
    yield "weblake.loads", 1, {"outcome": event.outcome, "kind": event.kind}


#: The values of each kind of event that has any: metric, value and tags.
_VALUES: Mapping[type[Event], Callable[[Any], Iterable[tuple[str, float, Tags]]]] = {
    LoadFinished: _end,
    LoadRefused: _end,
    LoadFailed: _end,
    LoadAccounted: _account,
    RetryScheduled: lambda e: [("weblake.retries", 1, {"operation": e.operation, "error.type": e.error})],
    LostStartResolved: lambda e: [("weblake.lost_starts", 1, {"outcome": e.outcome})],
    StatusPolled: lambda e: [("weblake.polls", 1, {"kind": e.kind})],
    ChunkRead: lambda e: [("weblake.downloaded", e.bytes, {"kind": e.kind})],
    FilesPublished: lambda e: [("weblake.published", e.bytes, {})],
    WaitFinished: lambda e: [("weblake.wait.duration", e.seconds, {"kind": e.kind, "outcome": e.outcome})],
    UsageReported: _usage,
    OrphansListed: _orphans,
}


def measurements(event: Event) -> Iterator[Measurement]:
    """Yield the measurements of an event; most kinds of events have none."""
    for name, value, tags in _VALUES.get(type(event), lambda e: ())(event):
        yield Measurement(name, METRICS[name][0], value, tags)


@dataclass(slots=True)
class Totals:
    """Totals of the events of one load."""

    #: Seconds of the waits for the end of the job.
    wait_s: float = 0.0
    retries: int = 0
    #: Starts without a response, whose outcome was found out.
    lost_starts: int = 0
    polls: int = 0
    #: Bytes of the job's results, after decompression.
    downloaded_bytes: int = 0


#: The total to which the values of a metric are added.
_TOTALS = {
    "weblake.wait.duration": "wait_s",
    "weblake.retries": "retries",
    "weblake.lost_starts": "lost_starts",
    "weblake.polls": "polls",
    "weblake.downloaded": "downloaded_bytes",
}


class LoadTotals:
    """An observer that adds up the events of each load; thread-safe."""

    def __init__(self) -> None:
        self._loads: dict[str, Totals] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Add an event to the totals of its load; an event outside a load is ignored."""
        if event.load_id is None:
            return
        with self._lock:
            totals = self._loads.setdefault(event.load_id, Totals())
            for each in measurements(event):
                if each.name in _TOTALS:
                    total = _TOTALS[each.name]
                    setattr(totals, total, getattr(totals, total) + each.value)

    def pop(self, load_id: str) -> Totals:
        """Return the totals of a load and forget them; zeros if there was no event."""
        with self._lock:
            return self._loads.pop(load_id, None) or Totals()


@dataclass(slots=True)
class ProgressLog:
    """An observer that logs the state of one job: at the start, at each change, and each minute."""

    #: Called with a level and a message.
    log: Callable[[int, str], object]
    _state: str = field(default="", init=False)
    _at: float = field(default=-math.inf, init=False)

    def __call__(self, event: Event) -> None:
        """Log a poll, a retry, or a start that got no response."""
        match event:
            case StatusPolled():
                of = "" if event.total is None else f" of {event.total}"
                counts = [] if event.completed is None else [f"completed {event.completed}{of}"]
                counts += [] if event.credits_used is None else [f"{event.credits_used:.12g} credits"]
                text = f"{event.status}: {', '.join(counts)}" if counts else event.status
                self.log_state(event.status, f"{event.kind.removesuffix('_scrape')} {event.job_id} is {text}.")
            case RetryScheduled():
                error = f"{event.error} ({event.status})" if event.status else event.error
                self.log_trouble(f"{event.operation}: {error}; it is tried again in {event.pause_s:.0f} s.")
            case StartLost():
                self.log(
                    logging.WARNING,
                    f"The start of load {event.load_id} got no answer. weblake looks up whether the service has "
                    "started its job, which may take minutes; nothing is paid twice. Let it run.",
                )

    def log_trouble(self, message: str) -> None:
        """Log that the service cannot be asked now, unless that was logged in this minute."""
        self.log_state("trouble", message)

    def log_state(self, state: str, message: str) -> None:
        """Log a message if the state has changed, or a minute has passed since the last one."""
        now = time.monotonic()
        if state != self._state or now - self._at >= LOG_INTERVAL_S:
            self._state, self._at = state, now
            self.log(logging.WARNING if state == "trouble" else logging.INFO, message)
