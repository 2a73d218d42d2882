"""Download the results of a job that has ended: its chunks in order, with the next one prefetched, and its errors.

The head of a chunk, before its documents, contains the address of the next chunk. So the next chunk is requested on a
second connection as soon as that head has arrived, and the list of errors on a third one as soon as a head shows that
the job has ended: a chain of chunks takes no longer than its round trips (docs/decisions/028-overlapping-landing.md).
`result_pages.ResultPager` alone decides, in order, which chunk comes next and whether its address is valid; prefetching
only saves waiting time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from weblake.api import models, response_json, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.models import JobError, JobErrors
from weblake.api.next_link import Query, query_of
from weblake.api.steps import Flow, NoResponse, Request, Response, Send, send
from weblake.errors import FixRequest, JobGone, MalformedReply
from weblake.events import ChunkRead
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.result_pages import ResultPager, with_read_errors
from weblake.jobs.retry import Retry, RetryPolicy

T = TypeVar("T")

#: A function that is called with the part of a response body that has arrived so far.
_Inspect = Callable[[response_json.JsonBytes], bool]

#: Seconds; if chunks arrive faster than this, the next one is not prefetched: starting a thread would cost more time.
QUICK_S = 0.004


class FlowRunner(Protocol):
    """A client that runs flows."""

    retry: Retry

    @property
    def service(self) -> str:
        """Name of the client's service, as the ledger records it."""

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end and return its result; may be called from any thread."""

    def redact(self, text: str) -> str:
        """Return a text of the service without the API key."""


class Download:
    """One pass over the chunks of a job, from the first to the last, and the errors of its pages.

    Args:
        client: Runs the read requests, three at a time at most.
        job: A job that has ended.
        until: Deadline of the download, in monotonic seconds.
    """

    def __init__(self, client: FlowRunner, job: JobRef, *, until: float) -> None:
        self.pager = ResultPager(job, client.retry, until=until)
        self._client = client
        self._until = until
        self._next: _Prefetch | None = None
        self._errors: Future[JobErrors] | None = None
        #: Whether the last response arrived within QUICK_S: then the next chunk is not prefetched.
        self._quick = False

    def chunks(self) -> Iterator[response_json.Documents]:
        """Yield the documents of each chunk, undecoded; the caller calls `pager.record_new` after each chunk.

        Raises:
            JobGone: The job, or the chunk, no longer exists.
            WeblakeError: As `ResultPager.read_chunk`.
        """
        while not self.pager.ended:
            begun = time.monotonic()
            documents = self._client.run(_with_answers(self.pager.read_chunk(), self._answer_request))
            self._client.retry.observe(
                ChunkRead(
                    kind=self.pager.job.kind,
                    job_id=self.pager.job.job_id,
                    documents=len(documents),
                    bytes=self.pager.body_bytes,
                    seconds=time.monotonic() - begun,
                )
            )
            yield documents
            del documents  # frees the memory while the next chunk is awaited

    def errors(self) -> JobErrors:
        """Return the job's list of errors without the API key; call it after the last chunk. Raises as `chunks`."""
        found, redact = self._start_errors().result(), cache(self._client.redact)
        return replace(
            found,
            errors=[
                replace(each, code=each.code and redact(each.code), error=each.error and redact(each.error))
                for each in found.errors
            ],
        )

    def has_expired(self) -> bool:
        """Return whether the job itself is gone, and not only one chunk of it on one of several servers."""
        job, retry = self.pager.job, self._client.retry
        try:
            self._client.run(with_read_errors(job, get_status(job, retry, RetryPolicy(until=self._until))))
        except JobGone:
            return True
        return False

    def _answer_request(self, request: Request) -> Response | NoResponse:
        """Return the response to a request for a chunk, prefetched or not; start the prefetch of the next chunk."""
        prefetch, self._next = self._next, None
        if prefetch is None or prefetch.query != request.query:
            if self._quick:
                return self._fetch(request)
            prefetch = self._start_prefetch(request)
        head = {} if self._quick else prefetch.head.result()
        if models.is_terminal(head.get("status")):
            with suppress(MalformedReply):  # the pager raises the same error later
                following = query_of(head.get("next"), request.path)
                if following not in (None, request.query) and self.pager.is_new(following):
                    self._next = self._start_prefetch(replace(request, query=following))
                self._start_errors()
        return prefetch.reply.result()

    def _start_prefetch(self, request: Request) -> _Prefetch:
        return _Prefetch(request.query, lambda inspect: self._fetch(replace(request, stop_when=inspect)))

    def _fetch(self, request: Request) -> Response | NoResponse:
        began = time.monotonic()
        try:
            return self._client.run(send(request))
        finally:
            self._quick = time.monotonic() - began < QUICK_S

    def _start_errors(self) -> Future[JobErrors]:
        if self._errors is None:
            flow = _errors(self.pager.job, self._client.retry, self._until)
            self._errors = run_in_thread(partial(self._client.run, flow))
        return self._errors


class _Prefetch:
    """A request for one chunk, sent in its own thread."""

    def __init__(self, query: Query, fetch: Callable[[_Inspect], Response | NoResponse]) -> None:
        self.query = query
        #: The fields before the documents, as soon as they have arrived; empty if there are none before the documents.
        self.head: Future[Mapping[str, object]] = Future()
        #: The response. It must not refer to this object: a reference cycle would keep a chunk in memory too long.
        self.reply: Future[Response | NoResponse] = run_in_thread(partial(self._run, fetch))

    def _run(self, fetch: Callable[[_Inspect], Response | NoResponse]) -> Response | NoResponse:
        try:
            return fetch(self._read_head)
        finally:
            if not self.head.done():
                self.head.set_result({})

    def _read_head(self, body: response_json.JsonBytes) -> bool:
        if not self.head.done():
            head = response_json.read_head(body)
            if head is not None or len(body) > response_json.MAX_HEAD_BYTES:
                self.head.set_result({} if head is None else head.fields)
        return False  # read on to the end of the body


def _with_answers(flow: Flow[T], answer: Callable[[Request], Response | NoResponse]) -> Flow[T]:
    """Return a flow like `flow` whose requests are passed to `answer` instead of to the driver."""
    came: object = None
    try:
        while True:
            step = flow.send(came)
            came = answer(step.request) if isinstance(step, Send) else (yield step)
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()


def _errors(job: JobRef, retry: Retry, until: float) -> Flow[JobErrors]:
    """Return the job's list of errors; empty if the service has none: the account then shows missing pages."""
    try:
        operation = JOB_KINDS[job.kind].errors(job.job_id)
        read = partial(_read_errors, operation.name)
        call = retry.exchange(operation, read, RetryPolicy(tries=8, cap_s=30.0, until=until))
        return (yield from with_read_errors(job, call))
    except FixRequest:
        return JobErrors()
    except JobGone:
        yield from with_read_errors(
            job, get_status(job, retry, RetryPolicy(until=until))
        )  # raises JobGone if the job itself has expired
        return JobErrors()


def _read_errors(what: str, reply: Response) -> JobErrors:
    """Return the list of errors in a response; an entry that cannot be read counts as a failed page without a URL."""
    value = responses.value_of(reply, what)
    lists = (value.get("errors"), value.get("robotsBlocked")) if isinstance(value, dict) else ()
    if not lists or not all(one is None or isinstance(one, list) for one in lists):
        raise MalformedReply(
            f"{what}: the response has no lists of errors and of blocked pages.",
            hint="Nothing was published, because the missing pages cannot be determined without these lists.",
        )
    found = JobErrors.decode(value)
    unread = sum(len(one or ()) for one in lists) - len(found.errors) - len(found.robots_blocked)
    return replace(found, errors=[*found.errors, *[JobError()] * unread])


def run_in_thread(work: Callable[[], T]) -> Future[T]:
    """Run a function in a new daemon thread and return a future of its result.

    The thread is never joined: the caller may exit with an exception or Ctrl-C, and the process may end while it runs.
    So a function that runs in it must need no cleanup.

    Raises:
        RuntimeError: The system cannot start another thread.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - `Future.result` raises it
            future.set_exception(error)

    # In the caller's context, so that events and spans of the thread belong to the caller's load.
    threading.Thread(target=copy_context().run, args=(run,), name="weblake-ahead", daemon=True).start()
    return future
