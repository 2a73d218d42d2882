"""Following a job's chunks safely to their end. Imports: errors, next_link, replies, retry, steps, waiting, wire.

A chunk ends at 10 MB or at 100 documents, whichever comes first, and `next` is where the following one begins. What
can go wrong with that chain, and what is done about it, is contract/facts.md section 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from weblake import models, wire
from weblake.errors import DeadlineExceeded, MalformedReply, RetryLater
from weblake.next_link import Query, query_of
from weblake.retry import Patience, Retry
from weblake.steps import Flow, Reply
from weblake.waiting import JobRef

#: A chunk is 10 MB, but a single page may be larger than that and then is a chunk of its own.
MAX_CHUNK = 256 << 20
#: Chunks in a row that may bring nothing new. A service may count results that its storage lost, 100 to a chunk.
MAX_STALE = 200
#: Chunks of one job: a million documents at 100 each, ten times over.
MAX_CHUNKS = 100_000


class Walk:
    """One pass over a job's chunks, from the first to the last.

    Call `step` until `ended`: each call is a flow that reads one chunk. `fresh` tells the walk how many documents of
    the last chunk had not been seen before, so that a chain that only repeats itself is noticed.
    """

    def __init__(self, job: JobRef, retry: Retry, *, until: float, max_chunk: int = MAX_CHUNK) -> None:
        self.job = job
        self.ended = False
        #: The head of the chunk read last: status, total, completed, creditsUsed, expiresAt …
        self.head: Mapping[str, object] = {}
        self._retry = retry
        self._patience = Patience(tries=8, cap_s=30.0, until=until)
        read = job.read()
        self._read = replace(read, request=replace(read.request, max_body=max_chunk))
        self._asked: Query = ()
        self._visited: set[Query] = set()
        self._stale = 0
        self._repolled = False

    def step(self) -> Flow[Sequence[wire.JsonBytes]]:
        """Reads the next chunk and returns its documents as raw JSON; possibly none.

        Raises:
            MalformedReply: The chain leads elsewhere, loops or does not end, or the job is not ended after all.
            DeadlineExceeded: The job's time limit passed.
            JobGone: The job's data expired on the way.
        """
        asked = self._asked
        operation = replace(self._read, request=replace(self._read.request, query=asked))
        try:
            chunk = yield from self._retry.exchange(operation, _chunk, self._patience)
        except DeadlineExceeded:
            raise DeadlineExceeded(
                f"The time limit passed while {self.job.words} was being read.",
                hint="Run the same command again with a larger --timeout; nothing is paid twice.",
            ) from None
        except RetryLater as error:
            raise type(error)(
                f"Reading {self.job.words} was given up: {error.message}",
                hint="Run the same command again later; nothing was published and nothing is paid twice.",
                retry_after=error.retry_after,
            ) from error
        self.head = chunk.head
        if not models.is_terminal(chunk.head.get("status")):
            raise NotEnded(f"{self.job.words} went back to {str(chunk.head.get('status'))[:40]!r} after it had ended.")
        self._visited.add(asked)
        self._advance(query_of(chunk.head.get("next"), operation.request.path), empty=not chunk.documents)
        return chunk.documents

    def fresh(self, documents: int) -> None:
        """Says how many documents of the last chunk were new."""
        self._stale = 0 if documents else self._stale + 1
        if not self.ended and (self._stale > MAX_STALE or len(self._visited) > MAX_CHUNKS):
            raise MalformedReply(
                f"The chunks of {self.job.words} do not end: the last {self._stale} brought nothing new.",
                hint="Nothing was published; report it to whoever runs the service.",
            )

    def _advance(self, following: Query | None, *, empty: bool) -> None:
        if following is None:
            self.ended = True
        elif following == self._asked and empty:
            # "No more yet". After the end it may be the last write settling: asked once more, then believed.
            self.ended, self._repolled = self._repolled, True
        elif following in self._visited:
            raise MalformedReply(
                f"The chunks of {self.job.words} lead in a circle.",
                hint="Nothing was published; report it to whoever runs the service.",
            )
        else:
            self._asked, self._repolled = following, False


class NotEnded(MalformedReply):
    """The job's status went back from ended to running."""


def _chunk(reply: Reply) -> wire.Chunk:
    return wire.read_chunk(bytes(reply.body))
