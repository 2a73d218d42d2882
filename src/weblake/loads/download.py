"""Download the results of a job that has ended: its chunks in order, with the next one prefetched, and its errors.

While the caller works on a chunk, the next one is downloaded in another thread, and the list of errors with the last
one (docs/decisions/059-one-writer-thread.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from weblake.api import response_json, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.models import JobError, JobErrors
from weblake.background import run_in_thread
from weblake.errors import FixRequest, JobGone, MalformedReply
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.result_pages import ResultPager, with_read_errors
from weblake.jobs.retry import Retry, RetryPolicy
from weblake.steps import Flow, Response

T = TypeVar("T")


class FlowRunner(Protocol):
    """A client that runs flows."""

    retry: Retry

    @property
    def service(self) -> str:
        """Name of the client's service, as the ledger records it."""

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end and return its result; may be called from any thread."""


class Download:
    """One pass over the chunks of a job, from the first to the last, and the errors of its pages.

    Args:
        client: Runs the read requests, two at a time at most.
        job: A job that has ended.
        until: Deadline of the download, in monotonic seconds.
        first: The response with the first chunk, if the caller already has it.
    """

    def __init__(self, client: FlowRunner, job: JobRef, *, until: float, first: Response | None = None) -> None:
        #: The head of the current chunk: status, total, completed, creditsUsed, expiresAt …
        self.head: Mapping[str, object] = {}
        self._job, self._client, self._until = job, client, until
        self._pager = ResultPager(job, client.retry, until=until, first=first)
        #: Whether the current chunk is the last; the pager may be one chunk ahead.
        self._ended = False
        self._errors: Future[JobErrors] | None = None

    def chunks(self) -> Iterator[response_json.Documents]:
        """Yield the documents of each chunk, undecoded; the caller calls `record_new` after each chunk.

        Raises:
            JobGone: The job, or the chunk, no longer exists.
            WeblakeError: As `ResultPager.read_chunk`.
        """
        following = run_in_thread(self._read_chunk)
        while not self._ended:
            chunk, self._ended = following.result()
            self.head = chunk.head
            if self._ended:
                self._errors = run_in_thread(self._read_errors)
            else:
                following = run_in_thread(self._read_chunk)
            yield chunk.documents
            del chunk  # frees the memory while the next chunk is awaited

    def record_new(self, documents: int) -> None:
        """Record how many documents of the current chunk were new; raise MalformedReply for a chain without an end."""
        if not self._ended:
            self._pager.record_new(documents)

    def errors(self) -> JobErrors:
        """Return the job's list of errors; call it after the last chunk. Raises as `chunks`."""
        assert self._errors is not None
        return self._errors.result()

    def has_expired(self) -> bool:
        """Return whether the job itself is gone, and not only one chunk of it on one of several servers."""
        policy = RetryPolicy(until=self._until)
        try:
            self._client.run(with_read_errors(self._job, get_status(self._job, self._client.retry, policy)))
        except JobGone:
            return True
        return False

    def _read_chunk(self) -> tuple[response_json.Chunk, bool]:
        return self._client.run(self._pager.read_chunk()), self._pager.ended

    def _read_errors(self) -> JobErrors:
        return self._client.run(read_errors(self._job, self._client.retry, self._until))


def read_errors(job: JobRef, retry: Retry, until: float) -> Flow[JobErrors]:
    """Return the job's list of errors; empty if the service has none: the account then shows missing pages."""
    try:
        operation = JOB_KINDS[job.kind].errors(job.job_id)
        read = partial(_parse_errors, operation.name)
        call = retry.exchange(operation, read, RetryPolicy(tries=8, cap_s=30.0, until=until))
        return (yield from with_read_errors(job, call))
    except FixRequest:
        return JobErrors()
    except JobGone:
        # Raises JobGone if the job itself has expired.
        yield from with_read_errors(job, get_status(job, retry, RetryPolicy(until=until)))
        return JobErrors()


def _parse_errors(what: str, reply: Response) -> JobErrors:
    """Return the list of errors in a response; an entry that cannot be read counts as a failed page without a URL."""
    value = responses.value_of(reply, what)
    lists = (value.get("errors"), value.get("robotsBlocked")) if isinstance(value, dict) else ()
    if not lists or not all(one is None or isinstance(one, list) for one in lists):
        raise MalformedReply(
            f"{what}: the service did not answer with lists of errors and of blocked pages.",
            hint="Nothing was published: without them nobody can tell which pages are missing.",
        )
    found = JobErrors.decode(value)
    unread = sum(len(one or ()) for one in lists) - len(found.errors) - len(found.robots_blocked)
    return replace(found, errors=[*found.errors, *[JobError()] * unread])
