"""Page through the chunks of a job's results, and detect chains that loop, lead elsewhere or do not end.

A chunk ends at 10 MB or at 100 documents, whichever comes first; `next` is the address of the following chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from weblake.api import models, response_json, responses
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.next_link import Query, query_of
from weblake.api.operation import Operation
from weblake.api.steps import Flow, Response, now, sleep
from weblake.errors import DeadlineExceeded, MalformedReply, Remedy, RetryLater, WeblakeError
from weblake.jobs.polling import JobRef
from weblake.jobs.retry import Retry, RetryPolicy, with_message

T = TypeVar("T")

#: Maximum bytes of a chunk. Chunks are 10 MB, but a larger single page is a chunk by itself.
MAX_CHUNK = 256 << 20
#: Maximum number of chunks in a row without a new document. A service may count results that its storage lost, 100 in
#: a chunk.
MAX_STALE = 200
#: Seconds between reads of a chunk whose status says that the ended job is still running.
LAG_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
#: Maximum number of chunks of one job: ten times a million documents with 100 in a chunk.
MAX_CHUNKS = 100_000


class ResultPager:
    """Pages through the chunks of a job once, from the first to the last.

    Call `read_chunk` until `ended`: each call is a flow that reads one chunk. Call `record_new` with the number of new
    documents in the last chunk, so that a chain that repeats itself is detected.
    """

    def __init__(self, job: JobRef, retry: Retry, *, until: float) -> None:
        self.job = job
        self.ended = False
        #: The head of the chunk read last: status, total, completed, creditsUsed, expiresAt …
        self.head: Mapping[str, object] = {}
        #: The size of its response in bytes.
        self.body_bytes = 0
        self._retry = retry
        self._until = until
        self._policy = RetryPolicy(tries=8, cap_s=30.0, until=until)
        read = JOB_KINDS[job.kind].read(job.job_id)
        self._read = replace(read, request=replace(read.request, max_body=MAX_CHUNK))
        self._asked: Query = ()
        self._visited: set[Query] = set()
        self._stale = 0
        self._repolled = False

    def read_chunk(self) -> Flow[response_json.Documents]:
        """Read the next chunk and return its documents, undecoded; possibly none.

        Raises:
            MalformedReply: The chain leads elsewhere, loops or does not end, or the job has not ended.
            DeadlineExceeded: The job's time limit passed.
            JobGone: The job's data expired during the download.
        """
        asked = self._asked
        operation = replace(self._read, request=replace(self._read.request, query=asked))
        chunk = yield from self._ended_chunk(operation)
        self.head = chunk.head
        self._visited.add(asked)
        self._advance(query_of(chunk.head.get("next"), operation.request.path), empty=not chunk.documents)
        return chunk.documents

    def _ended_chunk(self, operation: Operation[models.JobStatus]) -> Flow[response_json.Chunk]:
        """Return the chunk, read again until its status is final: one of several servers may lag behind the others."""
        for pause in (*LAG_PAUSES_S, None):
            exchange = self._retry.exchange(operation, self._parse, self._policy)
            chunk = yield from with_read_errors(self.job, exchange)
            if models.is_terminal(chunk.head.get("status")):
                return chunk
            if pause is not None:
                left = self._until - (yield from now())
                yield from sleep(min(pause, left))
        raise MalformedReply(
            f"{self.job} went back to {str(chunk.head.get('status'))[:40]!r} after it had ended.",
            hint=Remedy(
                "Nothing was published. {run_again}; if the error persists, report it to the operator of the service."
            ),
        )

    def _parse(self, reply: Response) -> response_json.Chunk:
        self.body_bytes = len(reply.body)
        chunk = response_json.read_chunk(reply.body)
        if not chunk.documents and responses.is_error_body(chunk.head):
            raise responses.error_of(reply, self._read.name)
        return chunk

    def is_new(self, query: Query) -> bool:
        """Return whether no chunk at this address has been read."""
        return query not in self._visited

    def record_new(self, documents: int) -> None:
        """Record how many documents of the last chunk were new."""
        self._stale = 0 if documents else self._stale + 1
        if not self.ended and (self._stale > MAX_STALE or len(self._visited) > MAX_CHUNKS):
            raise MalformedReply(
                f"The chunks of {self.job} do not end: {len(self._visited)} were read, the last {self._stale} of "
                "them without anything new.",
                hint="Nothing was published; report it to the operator of the service.",
            )

    def _advance(self, following: Query | None, *, empty: bool) -> None:
        if following is None:
            self.ended = True
        elif following == self._asked and empty:
            # "No more yet" after the end of the job: a last write may be delayed, so the chunk is read once more.
            self.ended, self._repolled = self._repolled, True
        elif following in self._visited:
            raise MalformedReply(
                f"The chunks of {self.job} lead in a circle.",
                hint="Nothing was published; report it to the operator of the service.",
            )
        else:
            self._asked, self._repolled = following, False


def with_read_errors(job: JobRef, flow: Flow[T]) -> Flow[T]:
    """Return the flow's result; if reading an ended job is given up, raise an error that says how to continue."""
    try:
        return (yield from flow)
    except DeadlineExceeded as error:
        trouble = f" The last try: {error.__cause__.message}" if isinstance(error.__cause__, WeblakeError) else ""
        raise DeadlineExceeded(
            f"The time limit passed while {job} was being read.{trouble}",
            hint=Remedy("{run_again}, with a larger {timeout}; nothing is paid twice."),
        ) from error
    except RetryLater as error:
        raise with_message(
            error,
            f"Reading {job} was given up: {error.message}",
            Remedy("{run_again} later; nothing was published and nothing is paid twice."),
        ) from error
