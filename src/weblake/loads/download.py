"""All that the service has of a job that has ended, read a little ahead: its chunks in order, and its list of errors.

Where the next chunk is stands in the head of the one before, ahead of its documents. So the next one is asked for as
soon as that head has arrived, on a second connection, and the list of errors beside the last chunk, or the one before:
a chain of chunks takes no longer than its round trips (docs/decisions/028-what-overlaps.md). Which chunk comes next,
and whether it may, is still decided by `pages.Walk` alone, in order: what was asked for ahead only spares it the
waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from msgspec.structs import replace

from weblake.api import models, response_json, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.models import JobError, JobErrors
from weblake.api.next_link import Query, query_of
from weblake.background import begun
from weblake.errors import FixRequest, JobGone, MalformedReply
from weblake.http.bodies import BufferPool
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.result_pages import Walk, reading
from weblake.jobs.retry import RetryPolicy, Retry
from weblake.steps import Flow, NoReply, Reply, Request, Send, send

T = TypeVar("T")

#: Looks at what has arrived of a reply so far.
_Look = Callable[[response_json.JsonBytes], bool]

#: A reply that is whole within so many seconds is not worth a thread: to start one, and take turns with it, costs more.
QUICK_S = 0.004


class Runs(Protocol):
    """Whatever drives flows: a client."""

    retry: Retry

    @property
    def service(self) -> str:
        """Which service it talks to, as the ledger has it."""

    def run(self, flow: Flow[T]) -> T:
        """Drives a flow to its end, in any thread."""


class Download:
    """One pass over a job's chunks, from the first to the last, and what went wrong with its pages.

    Args:
        client: Drives the reads, two at a time at most.
        job: A job that has ended.
        until: Monotonic seconds by which it has to be done.
        first: The reply with the first chunk, where somebody has it already.
    """

    def __init__(self, client: Runs, job: JobRef, *, until: float, first: Reply | None = None) -> None:
        self.walk = Walk(job, client.retry, until=until)
        self._client = client
        self._until = until
        self._buffers = BufferPool()
        self._body: bytes | bytearray = b""
        self._next = None if first is None else _Flight((), lambda look: _looked_at(first, look))
        self._errors: Future[JobErrors] | None = None
        #: Whether the last reply was: then the next one is not asked for ahead.
        self._quick = False
        #: Documents of all chunks so far, and of the last one.
        self._documents = self._of_chunk = 0

    def chunks(self) -> Iterator[response_json.Documents]:
        """Yields the documents of each chunk, undecoded; after each, tell `walk.fresh` how many of them were new.

        Raises:
            JobGone: There is no such job any more, or no such chunk.
            WeblakeError: As `Walk.step`.
        """
        while not self.walk.ended:
            documents = self._client.run(_answered(self.walk.step(), self._answer))
            self._of_chunk = len(documents)
            self._documents += self._of_chunk
            yield documents
            del documents  # while it waits for the next one
            self._buffers.give(self._body)

    def errors(self) -> JobErrors:
        """What `/errors` says; to be called when the chunks have ended. Raises as they do."""
        return self._asked_errors().result()

    def has_expired(self) -> bool:
        """Whether the job itself is gone, and not one chunk of it on one of several servers."""
        job, retry = self.walk.job, self._client.retry
        try:
            self._client.run(reading(job, get_status(job, retry, RetryPolicy(until=self._until))))
        except JobGone:
            return True
        return False

    def _answer(self, request: Request) -> Reply | NoReply:
        """The reply to a request for a chunk, which may have been sent already; sends the next one when it can."""
        flight, self._next = self._next, None
        if flight is None or flight.query != request.query:
            if self._quick:
                return self._kept(self._fetched(request))
            flight = self._sent(request)
        head = {} if self._quick else flight.head.result()
        if models.is_terminal(head.get("status")):
            with suppress(MalformedReply):  # the walk will say so
                following = query_of(head.get("next"), request.path)
                if following is None:
                    self._asked_errors()
                elif following != request.query and self.walk.is_new(following):
                    self._next = self._sent(replace(request, query=following))
        reply = flight.reply.result()
        if self._next is not None and self._is_next_to_last(head):
            self._asked_errors()
        return self._kept(reply)

    def _is_next_to_last(self, head: Mapping[str, object]) -> bool:
        """Whether one more chunk is probably the last, by what the service counted: nothing but time hangs on it."""
        completed = head.get("completed")
        return isinstance(completed, int) and 0 <= completed - self._documents <= 2 * self._of_chunk

    def _kept(self, reply: Reply | NoReply) -> Reply | NoReply:
        """The same reply; its body can be used again once its documents are gone."""
        self._body = reply.body if isinstance(reply, Reply) else b""
        return reply

    def _sent(self, request: Request) -> _Flight:
        return _Flight(request.query, lambda look: self._fetched(replace(request, enough=look)))

    def _fetched(self, request: Request) -> Reply | NoReply:
        began = time.monotonic()
        try:
            return self._client.run(send(replace(request, buffer=self._buffers.take)))
        finally:
            self._quick = time.monotonic() - began < QUICK_S

    def _asked_errors(self) -> Future[JobErrors]:
        if self._errors is None:
            flow = _errors(self.walk.job, self._client.retry, self._until)
            self._errors = begun(partial(self._client.run, flow))
        return self._errors


class _Flight:
    """A request for one chunk, on its way in a thread of its own."""

    def __init__(self, query: Query, fetch: Callable[[_Look], Reply | NoReply]) -> None:
        self.query = query
        #: The fields before the documents, as soon as they are there; none where they cannot be told before the end.
        self.head: Future[Mapping[str, object]] = Future()
        #: What came of it. Nothing that it holds leads back here: a cycle would keep a chunk long after its time.
        self.reply: Future[Reply | NoReply] = begun(partial(self._fly, fetch))

    def _fly(self, fetch: Callable[[_Look], Reply | NoReply]) -> Reply | NoReply:
        try:
            return fetch(self._look)
        finally:
            self._tell({})

    def _look(self, body: response_json.JsonBytes) -> bool:
        if not self.head.done():
            head = response_json.read_head(body)
            if head is not None:
                self._tell(head.fields)
            elif len(body) > response_json.HEAD_BYTES:
                self._tell({})
        return False  # what is wanted is the whole

    def _tell(self, head: Mapping[str, object]) -> None:
        if not self.head.done():
            self.head.set_result(head)


def _looked_at(reply: Reply, look: _Look) -> Reply:
    look(reply.body)
    return reply


def _answered(flow: Flow[T], answer: Callable[[Request], Reply | NoReply]) -> Flow[T]:
    """The same flow, where what it sends is answered from elsewhere."""
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
    """What `/errors` says; nothing where the service has no such list, which the account then shows."""
    try:
        operation = JOB_KINDS[job.kind].errors(job.job_id)
        read = partial(_read_errors, operation.name)
        call = retry.exchange(operation, read, RetryPolicy(tries=8, cap_s=30.0, until=until))
        return (yield from reading(job, call))
    except FixRequest:
        return JobErrors()
    except JobGone:
        yield from reading(
            job, get_status(job, retry, RetryPolicy(until=until))
        )  # raises where it is the job itself that has expired meanwhile
        return JobErrors()


def _read_errors(what: str, reply: Reply) -> JobErrors:
    """The list as it came; an entry that cannot be read is a failed page all the same, without a name."""
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
