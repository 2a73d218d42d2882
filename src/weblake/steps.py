"""The two drivers of every conversation with the service, and the steps they understand. Imports nothing of ours.

A conversation (a *flow*) is a generator: it yields what to send and how long to wait, and receives what came of it.
It never opens, sleeps, or reads a clock; the drivers do nothing else. So a worker drives a flow with `run`, an event
loop drives the same flow with `arun`, and a test drives it with no network and no clock at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from weblake.remedies import Remedy

T = TypeVar("T")

#: Most bytes of one reply, after decompression, that are held. One page may be larger than the 10 MB chunk it is in.
MAX_BODY = 64 << 20


@dataclass(frozen=True, slots=True)
class Upload:
    """A file sent as multipart form data; at most 50 MB, which options.py checks before it is read."""

    filename: str
    source: Path | bytes
    fields: tuple[tuple[str, str], ...] = ()


class Request(msgspec.Struct, frozen=True):
    """One HTTP request, without origin or key: the transport adds both."""

    method: str
    #: Below the base URL, beginning with a slash, already percent-encoded.
    path: str
    query: tuple[tuple[str, str], ...] = ()
    #: An encoded JSON body.
    body: bytes | None = None
    upload: Upload | None = None
    headers: tuple[tuple[str, str], ...] = ()
    #: Seconds from the first byte sent to the last byte read, all in all.
    deadline_s: float = 120.0
    max_body: int = MAX_BODY
    #: Reading stops as soon as this is true of the bytes so far: a poll wants the head of a reply, not its documents.
    #: What it is given is a view that ends with the call.
    enough: Callable[[memoryview], bool] | None = None
    #: Gives the buffer that the body is put into, whatever is in it.
    buffer: Callable[[], bytearray] = bytearray
    #: Sent on a connection of its own: a pooled one that the server has just closed would leave a start's outcome open.
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. Header names are lower-case; the body is decompressed. Neither is in the repr: a service may
    repeat in them whatever it got, and some tracebacks show locals."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | bytearray = field(default=b"", repr=False)
    #: Whether the body was read to its end, or `Request.enough` stopped it.
    whole: bool = True
    #: Wall-clock seconds when the head arrived, for a Retry-After that names a date.
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class NoReply:
    """No usable reply came."""

    reason: str
    #: False where the request surely never left: then even a start may be sent again.
    sent: bool = True
    #: True where sending again cannot help (a certificate that does not match, a body over its bound).
    final: bool = False
    #: What to do about it, where that is known.
    hint: str | Remedy = ""


class Send(msgspec.Struct, frozen=True):
    """Send this; the flow receives a Reply or a NoReply."""

    request: Request


class Sleep(msgspec.Struct, frozen=True):
    """Wait this long; the flow receives None."""

    seconds: float


class Now(msgspec.Struct, frozen=True):
    """The flow receives the seconds of a clock that only runs forwards, or of the wall clock, which is only data."""

    wall: bool = False


Step = Send | Sleep | Now
Flow = Generator[Step, object, T]


def send(request: Request) -> Flow[Reply | NoReply]:
    """Yields one request and returns its Reply or NoReply."""
    answer = yield Send(request)
    assert isinstance(answer, Reply | NoReply)
    return answer


def sleep(seconds: float) -> Flow[None]:
    """Yields one wait."""
    yield Sleep(max(0.0, seconds))


def now(*, wall: bool = False) -> Flow[float]:
    """Returns monotonic seconds, or seconds since 1970 with `wall`."""
    answer = yield Now(wall)
    assert isinstance(answer, float)
    return answer


class Transport(Protocol):
    """Carries one request out and its answer back; never raises for what a network does."""

    def send(self, request: Request) -> Reply | NoReply:
        """Sends one request within its deadline."""


class AsyncTransport(Protocol):
    """The same for an event loop."""

    async def send(self, request: Request) -> Reply | NoReply:
        """Sends one request within its deadline."""


def run(
    flow: Flow[T],
    transport: Transport,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> T:
    """Drives a flow to its end in this thread and returns what it returns."""
    answer: object = None
    try:
        while True:
            step = flow.send(answer)
            match step:
                case Send(request):
                    answer = transport.send(request)
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
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
) -> T:
    """Drives a flow to its end on the running event loop and returns what it returns."""
    answer: object = None
    try:
        while True:
            step = flow.send(answer)
            match step:
                case Send(request):
                    answer = await transport.send(request)
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
