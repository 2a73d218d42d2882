"""The records of the ledger. Later versions may add fields and never change the meaning of a field."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from typing import Annotated

import msgspec

#: The version of all records that this version writes.
VERSION = 1
_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|\+00:00)$"

LoadId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{16}$")]
#: A time in UTC, ISO 8601, such as 2026-11-21T06:00:00+00:00.
UtcTime = Annotated[str, msgspec.Meta(pattern=_TIME)]
#: A string that is not empty.
Text = Annotated[str, msgspec.Meta(min_length=1)]


def new_nonce() -> str:
    """Return a random nonce that distinguishes a record from an equal record of another writer."""
    return secrets.token_hex(8)


def utc_now() -> str:
    """Return the current UTC time in the format of records."""
    return datetime.now(timezone.utc).isoformat()


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all records. Fields that a later version adds are ignored when a record is read."""

    load_id: LoadId
    version: int = msgspec.field(default_factory=lambda: VERSION)
    writer: str = msgspec.field(default_factory=new_nonce)


class Intent(Record, frozen=True, kw_only=True):
    """A load that is about to be bought."""

    #: The kind of job: batch_scrape, crawl, scrape or parse.
    kind: Text
    #: The endpoint name of such jobs in the service's activity list.
    endpoint: str
    created_at: UtcTime
    request_sha256: str
    #: The base URL of the service without credentials, for display only.
    service: str | None = None
    submitted: int | None = None
    first_target: str | None = None
    #: The digest of the list of URLs to be sent; a later run of the load may send another list.
    urls: str | None = None
    #: URLs of the caller's list that are not in `urls` because a page of them is fresh. None if that was not asked;
    #: otherwise no run of the load sends another list than `urls`.
    fresh: int | None = None
    #: Path keys and values in their order; None for the default, `load_date`.
    partition: dict[str, str] | None = None
    slot: str | None = None
    slot_has_partition: bool = False
    generation: int = 0
    #: The id of the orchestrator's run.
    run: str | None = None
    #: The cause of the request: equal for retries, different for another request by a person.
    occasion: str | None = None
    #: The orchestrator's name of the work (Slot.task); empty without a slot.
    task: tuple[str, ...] = ()
    #: Maximum number of pages of a crawl; None if it is not known.
    page_limit: int | None = None
    #: The random key of a load that was requested with `new`; None for any other load.
    new_key: str | None = None
    #: Whether the service declared that it replays starts by idempotency key; None if it was not queried.
    replay: bool | None = None
    #: Seconds by which the service's clock was ahead of the clock of `created_at`; None if unknown.
    clock_ahead_s: float | None = None

    def created(self) -> datetime:
        """Return `created_at` as an aware datetime in UTC."""
        return datetime.fromisoformat(self.created_at)


class StartAttempt(Record, frozen=True, kw_only=True):
    """A start request that is about to be sent."""

    n: Annotated[int, msgspec.Meta(ge=1)]
    #: The idempotency key of the request.
    key: Text
    at: UtcTime
    #: The digest of the list of URLs that is sent (loads/sent_lists.py); None for a request without a list.
    urls: str | None = None
    #: The digest of the request, and the target that the activity list would show for it.
    request_sha256: str | None = None
    first_target: str | None = None
    #: The service that it is sent to, as in the intent; None: that of the intent.
    service: str | None = None
    #: Whether a record states that this start started nothing.
    void: bool = False

    def at_seconds(self) -> float:
        """Return `at` in seconds since the epoch."""
        return datetime.fromisoformat(self.at).timestamp()


class Void(Record, frozen=True, kw_only=True):
    """Evidence that a start request started no job."""

    n: int
    why: str
    at: UtcTime


class Job(Record, frozen=True, kw_only=True):
    """The job of a load, started or found in the activity list."""

    job_id: Text
    kind: Text
    #: When its start was answered. If the response was lost and the job was found later, or the response was repeated:
    #: when that start was recorded.
    at: UtcTime
    #: URLs that the service rejected when the job was started.
    rejected: tuple[str, ...] = ()
    #: The digests of the list of URLs that the job was started with, and of the request.
    urls: str | None = None
    request_sha256: str | None = None
    #: Whether the job was found in the activity list after the response to its start was lost.
    adopted: bool = False

    def at_seconds(self) -> float:
        """Return `at` in seconds since the epoch; the time limit of the job counts from it."""
        return datetime.fromisoformat(self.at).timestamp()

    def age_s(self) -> float:
        """Return the seconds since `at` by this machine's clock; never negative."""
        return max(0.0, (datetime.now(timezone.utc) - datetime.fromisoformat(self.at)).total_seconds())


class Owner(Record, frozen=True, kw_only=True):
    """The load that a job belongs to, or as which it is landed; prevents another load from claiming the job."""

    job_id: Text
    owner: LoadId
    at: UtcTime


class Done(Record, frozen=True, kw_only=True):
    """A load that has landed."""

    at: UtcTime
    receipt: dict[str, object]
    #: Older loads of its slot that it replaced.
    retired: tuple[LoadId, ...] = ()


class Returned(Record, frozen=True, kw_only=True):
    """A load that a task has returned to its orchestrator."""

    #: Why the orchestrator ran the task: equal for retries, different for another request by a person.
    occasion: str
    at: UtcTime


class LimitReached(Record, frozen=True, kw_only=True):
    """A load whose job weblake cancels at a limit; written before the cancel."""

    #: Credits that the job had used, if they were more than its limit; otherwise 0. A service may report fewer later.
    used: float = 0.0
    #: The time limit that had passed, in seconds, if any.
    timeout_s: float | None = None
    at: UtcTime


class Retired(Record, frozen=True, kw_only=True):
    """A load that a later one has replaced."""

    by: LoadId
    at: UtcTime
