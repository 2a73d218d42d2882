"""What observes events: the log, a caller's observer, and the totals of each load."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from weblake import events
from weblake.events import Event, LoadEnd, Observer

_CLIENT_LOG = logging.getLogger("weblake.client")
_LANDING_LOG = logging.getLogger("weblake.landing")


def client_observer(given: Observer | None) -> Observer:
    """Return a function that logs each event and passes it to the observer, if one is given."""
    return log_event if given is None else combine(log_event, given)


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
    """Log a request at DEBUG to `weblake.client`, and the end of a load at INFO to `weblake.landing`; nothing else.

    The attribute `weblake` of the record is a dict of its fields.
    """
    if isinstance(event, events.RequestFinished):
        if _CLIENT_LOG.isEnabledFor(logging.DEBUG):
            _log(_CLIENT_LOG, logging.DEBUG, "request", _request_fields(event))
    elif isinstance(event, LoadEnd) and _LANDING_LOG.isEnabledFor(logging.INFO):
        _log(_LANDING_LOG, logging.INFO, "load", _end_fields(event))


def _log(logger: logging.Logger, level: int, name: str, fields: dict[str, object]) -> None:
    text = " ".join(f"{field}={'none' if value is None else value}" for field, value in fields.items())
    logger.log(level, "%s %s", name, text, extra={"weblake": {"event": name, **fields}})


def _request_fields(event: events.RequestFinished) -> dict[str, object]:
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
        fields |= {"status": events.known_status(receipt.status), "credits": receipt.credits_used}
        fields |= {name: getattr(receipt, name) for name in events.PAGE_OUTCOMES}
    if event.error is not None:
        fields["error"] = event.error
    return fields


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
            match event:
                case events.WaitFinished():
                    totals.wait_s += event.seconds
                case events.RetryScheduled():
                    totals.retries += 1
                case events.LostStartResolved():
                    totals.lost_starts += 1
                case events.StatusPolled():
                    totals.polls += 1
                case events.ChunkRead():
                    totals.downloaded_bytes += event.bytes

    def pop(self, load_id: str) -> Totals:
        """Return the totals of a load and forget them; zeros if there was no event."""
        with self._lock:
            return self._loads.pop(load_id, None) or Totals()
