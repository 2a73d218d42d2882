"""Flows: sequences of requests to the service written as generators, the steps they yield, and two drivers.

A flow yields what to send and how long to wait, and receives the results. It does no I/O, does not sleep and does not
read a clock; the drivers do that, and report each request as an event. So a worker runs a flow with `run`, an event
loop runs the same flow with `arun`, and a test runs it without a network and a clock
(docs/decisions/001-requests-as-generators.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from weblake.errors import Remedy
from weblake.events import Observer, RequestFinished

T = TypeVar("T")

#: Maximum bytes of a response body after decompression. A page may be larger than the usual 10 MB of a chunk.
MAX_BODY = 64 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A file sent as multipart form data; at most 50 MB, which api/options checks before the file is read."""

    filename: str
    source: Path | bytes
    fields: tuple[tuple[str, str], ...] = ()


class Request(msgspec.Struct, frozen=True):
    """An HTTP request without origin and API key, which the transport adds."""

    method: str
    #: Path below the base URL: percent-encoded, with a leading slash.
    path: str
    query: tuple[tuple[str, str], ...] = ()
    #: An encoded JSON body.
    body: bytes | None = None
    upload: Upload | None = None
    headers: tuple[tuple[str, str], ...] = ()
    #: Total deadline in seconds, from the call of the transport to the last byte read.
    deadline_s: float = 120.0
    max_body: int = MAX_BODY
    #: Reading stops when this returns True for the bytes so far: a poll needs a response's head, not its documents.
    #: The view that it gets is valid during the call only.
    stop_when: Callable[[memoryview], bool] | None = None
    #: Whether the service may charge for it: then a lost response is an OutcomeUnknown.
    paid: bool = False
    #: Number of this try of a call; 1 for the first one.
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Response:
    """A response. Header names are lower-case; the body is decompressed.

    Neither is in the repr, because a service may repeat the API key in them, and some tracebacks show locals.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | bytearray = field(default=b"", repr=False)
    #: When the head arrived, in wall-clock seconds since 1970; needed for a Retry-After with a date.
    received_at: float = 0.0


@dataclass(frozen=True, slots=True)
class NoResponse:
    """The outcome of a request without a usable response."""

    reason: str
    #: False if no byte of the request was sent: then even a start may be sent again.
    sent: bool = True
    #: True if sending again cannot help (a certificate that is not valid, a body that is too large).
    final: bool = False
    #: The remedy, if known.
    hint: str | Remedy = ""


class Send(msgspec.Struct, frozen=True):
    """Step: send a request; the flow receives a Response or a NoResponse."""

    request: Request


class Sleep(msgspec.Struct, frozen=True):
    """Step: wait for some seconds; the flow receives None."""

    seconds: float


class Now(msgspec.Struct, frozen=True):
    """Step: read a clock; the flow receives monotonic seconds, or wall-clock seconds since 1970 if `wall` is True."""

    wall: bool = False


Step = Send | Sleep | Now
Flow = Generator[Step, object, T]


def send(request: Request) -> Flow[Response | NoResponse]:
    """Yield one request and return its Response or NoResponse."""
    answer = yield Send(request)
    assert isinstance(answer, Response | NoResponse)
    return answer


def sleep(seconds: float) -> Flow[None]:
    """Yield one wait; negative seconds count as 0."""
    yield Sleep(max(0.0, seconds))


def now(*, wall: bool = False) -> Flow[float]:
    """Return monotonic seconds, or wall-clock seconds since 1970 if `wall` is True."""
    answer = yield Now(wall)
    assert isinstance(answer, float)
    return answer


class Transport(Protocol):
    """Sends requests; failures of the network are returned as NoResponse and never raised."""

    def send(self, request: Request) -> Response | NoResponse:
        """Send one request within its deadline and return its outcome."""


class AsyncTransport(Protocol):
    """A Transport for an event loop."""

    async def send(self, request: Request) -> Response | NoResponse:
        """Send one request within its deadline and return its outcome."""


def _finished(request: Request, outcome: Response | NoResponse, begun: float) -> RequestFinished:
    status, size = (outcome.status, len(outcome.body)) if isinstance(outcome, Response) else (None, 0)
    return RequestFinished(
        method=request.method,
        path=request.path,
        status=status,
        attempt=request.attempt,
        bytes=size,
        seconds=time.perf_counter() - begun,
    )


def run(
    flow: Flow[T],
    transport: Transport,
    *,
    observe: Observer = lambda event: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> T:
    """Run a flow to its end in the calling thread and return its result."""
    answer: object = None
    try:
        while True:
            step = flow.send(answer)
            match step:
                case Send(request):
                    begun = time.perf_counter()
                    outcome = transport.send(request)
                    observe(_finished(request, outcome, begun))
                    answer = outcome
                case Sleep(seconds):
                    sleep(seconds)
                    answer = None
                case Now(of_wall):
                    answer = wall() if of_wall else clock()
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()


async def arun(
    flow: Flow[T],
    transport: AsyncTransport,
    *,
    observe: Observer = lambda event: None,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> T:
    """Run a flow to its end on the running event loop and return its result."""
    answer: object = None
    try:
        while True:
            step = flow.send(answer)
            match step:
                case Send(request):
                    begun = time.perf_counter()
                    outcome = await transport.send(request)
                    observe(_finished(request, outcome, begun))
                    answer = outcome
                case Sleep(seconds):
                    await asyncio.sleep(seconds)
                    answer = None
                case Now(of_wall):
                    answer = wall() if of_wall else clock()
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        flow.close()
