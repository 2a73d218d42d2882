"""A simulated service with jobs, a network with faults, and a virtual clock that advances only during waits.

A fault tape says what happens to one request after another; after its end there are no more faults. So a case is its
tape, its documents and its chunks: hypothesis draws them, prints them when a case fails, and can reproduce them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone, tzinfo
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock
from urllib.parse import urlencode

from weblake.api import steps
from weblake.api.steps import Flow, NoResponse, Request, Response
from weblake.dataset import records
from weblake.jobs.retry import Retry
from weblake.loads import download, load

T = TypeVar("T")

Page = dict[str, object]

#: What may happen to one request. `late`: the service performs the request and its response is lost.
FAULTS = [
    "429",
    "429 after 7 s",
    "500",
    "503 after 2 s",
    "404",
    "refused",
    "reset",
    "late",
    "timeout",
    "cut",
    "html",
    "lag",
]

#: The fixed start time of every simulation, so that a case can be reproduced.
BEGAN = datetime(2026, 11, 21, 6, tzinfo=timezone.utc).timestamp()

_KINDS = {"/v2/batch/scrape": "batch_scrape", "/v2/crawl": "crawl"}
_PATHS = {kind: path for path, kind in _KINDS.items()}
_JOBS = uuid.UUID("6f1c2a52-0000-4000-8000-5d0a3c6f7b11")


@dataclass
class Clock:
    """A clock that advances only during waits."""

    wall_base: float = BEGAN
    passed: float = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.passed += seconds

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def wall(self) -> float:
        return self.wall_base + self.passed

    def now(self, zone: tzinfo | None = None) -> datetime:
        return datetime.fromtimestamp(self.wall(), zone)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Give this clock to the modules that read a clock themselves, and let them prefetch without threads.

        Two threads would take the faults of a tape in any order, and a case could not be reproduced.
        """
        dates = SimpleNamespace(now=self.now, fromisoformat=datetime.fromisoformat)
        clock = SimpleNamespace(monotonic=self.monotonic)
        with ExitStack() as stack:
            for module in (load, download):
                stack.enter_context(mock.patch.object(module, "time", clock))
            stack.enter_context(mock.patch.object(records, "datetime", dates))
            stack.enter_context(mock.patch.object(download, "run_in_thread", run_immediately))
            yield


def run_immediately(work: Callable[[], T]) -> Future[T]:
    """Do the work at once and return a future of its result: `background.run_in_thread` without a thread."""
    made: Future[T] = Future()
    try:
        made.set_result(work())
    except BaseException as error:  # noqa: BLE001 - as in the thread, the future has it
        made.set_exception(error)
    return made


@dataclass
class Content:
    """What a job delivers."""

    documents: list[Page]
    #: The URLs of failed pages.
    failed: list[str] = field(default_factory=list)
    #: The number of documents that the service counts and does not deliver.
    lost: int = 0
    #: The documents in chunks; by default one chunk.
    chunks: list[list[Page]] = field(default_factory=list)
    #: The number of status reads before the job has ended.
    polls: int = 0
    status: str = "completed"

    def __post_init__(self) -> None:
        self.chunks = self.chunks or [self.documents]


@dataclass
class Job:
    """One job of the service."""

    job_id: str
    kind: str
    target: str
    created: float
    content: Content

    @property
    def entry(self) -> dict[str, object]:
        """Return the job's entry in the activity list."""
        created = datetime.fromtimestamp(self.created, timezone.utc).isoformat()
        return {"id": self.job_id, "endpoint": self.kind, "created_at": created, "target": self.target}

    def chunk(self, at: int, *, lag: bool) -> dict[str, object]:
        content = self.content
        count = len(content.documents) + content.lost
        head: dict[str, object] = {"total": count, "completed": count, "creditsUsed": len(content.documents)}
        if content.polls > 0:
            content.polls -= 1
            return head | {"status": "scraping", "next": None, "data": []}
        last = at + 1 == len(content.chunks)
        link = f"http://elsewhere.test{_PATHS[self.kind]}/{self.job_id}?{urlencode({'cursor': at + 1})}"
        if lag:  # another server with a stale state, which has not seen the last page yet
            return head | {"status": "scraping", "next": None, "data": content.chunks[at][:-1]}
        return head | {"status": content.status, "next": None if last else link, "data": content.chunks[at]}


@dataclass
class SimulatedService:
    """The jobs of the service, and a network that applies the fault tape to its responses."""

    #: Returns what a job of these URLs delivers.
    found: Callable[[Sequence[str]], Content]
    tape: list[str | None] = field(default_factory=list)
    #: Whether the service declares and supports idempotent replay.
    replay: bool = False
    clock: Clock = field(default_factory=Clock)
    jobs: dict[str, Job] = field(default_factory=dict)
    #: Every total of credits that was ever reported.
    reported: set[float] = field(default_factory=set)
    #: Each request, its time, and its fault, in order.
    heard: list[tuple[object, ...]] = field(default_factory=list)
    _keys: dict[str, str] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """Return the number of requests."""
        return len(self.heard)

    def add(self, kind: str, target: str, content: Content, job_id: str | None = None) -> Job:
        """Add a job as if somebody had started it."""
        job_id = job_id or str(uuid.uuid5(_JOBS, str(len(self.jobs))))
        job = self.jobs[job_id] = Job(job_id, kind, target, self.clock.wall(), content)
        return job

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def send(self, request: Request) -> Response | NoResponse:
        self.clock.passed += 0.01
        fault = self.fault(request)
        self.heard.append((request.method, request.path, request.query, self.clock.passed, fault))
        if fault in ("refused", "reset"):
            return NoResponse("no", sent=fault == "reset")
        if fault == "timeout":
            self.clock.passed += request.deadline_s
            return NoResponse("late")
        if fault is not None and fault[0].isdigit():
            status, _, wait = fault.partition(" after ")
            return self.reply({"success": False, "error": fault}, int(status), wait.removesuffix(" s"))
        try:
            reply = self.reply(self.answer(request, lag=fault == "lag"))
        except KeyError:
            return self.reply({"success": False, "error": "Job not found"}, 404)
        if fault == "late":
            return NoResponse("the answer was lost")
        if fault == "html":
            return Response(200, {}, b"<html></html>", received_at=self.clock.wall())
        if fault == "cut":
            return Response(200, {}, reply.body[:-5], received_at=self.clock.wall())
        return reply

    def fault(self, request: Request) -> str | None:
        """Return the next fault of the tape for this request."""
        fault = self.tape.pop(0) if self.tape else None
        # A 404 to a start is a clear refusal; to a read of the errors, it means that the service has no such list.
        if fault == "404" and (request.method == "POST" or request.path.endswith("/errors")):
            return None
        return fault

    def answer(self, request: Request, *, lag: bool = False) -> object:
        if request.path in _KINDS:
            return {"success": True, "id": self.start(request).job_id}
        if request.path == "/v2/team/activity":
            return {"success": True, "data": [job.entry for job in self.jobs.values()], "cursor": None}
        if request.path.startswith("/v2/team/credit-usage"):
            return {"success": True, "periods": [self.period()]}
        path, _, tail = request.path.removesuffix("/errors").rpartition("/")
        job = self.jobs[tail]
        assert _KINDS[path] == job.kind
        if request.path.endswith("/errors"):
            return {"errors": [{"url": url, "error": "x"} for url in job.content.failed], "robotsBlocked": []}
        return job.chunk(int(dict(request.query).get("cursor", 0)), lag=lag)

    def start(self, request: Request) -> Job:
        key = dict(request.headers)["x-idempotency-key"]
        if self.replay and key in self._keys:
            return self.jobs[self._keys[key]]
        body = json.loads(request.body or b"")
        urls = body.get("urls") or [body["url"]]
        job = self.add(_KINDS[request.path], urls[0], self.found(urls))
        self._keys[key] = job.job_id
        return job

    def credits(self) -> float:
        return float(sum(len(job.content.documents) for job in self.jobs.values()))

    def period(self) -> dict[str, object]:
        self.reported.add(self.credits())
        first = datetime.fromtimestamp(self.clock.wall_base, timezone.utc).replace(day=1, hour=0, minute=0, second=0)
        return {"startDate": first.isoformat(), "endDate": None, "totalCredits": self.credits()}

    def reply(self, body: object, status: int = 200, retry_after: str = "") -> Response:
        headers = {"retry-after": retry_after} if retry_after else {}
        if self.replay:
            headers["weblake-idempotency"] = "replay"
        return Response(status, headers, json.dumps(body).encode(), received_at=self.clock.wall())


@dataclass
class SimulatedClient:
    """The part of a client's interface that load.land needs, on the clock of its service."""

    world: Any
    retry: Retry = field(default_factory=Retry)
    service: str = "given"

    def run(self, flow: Flow[T]) -> T:
        clock = self.world.clock
        return steps.run(flow, self.world, sleep=self.world.sleep, clock=clock.monotonic, wall=clock.wall)

    def redact(self, text: str) -> str:
        return text


def split_into_chunks(documents: Sequence[Page], sizes: Sequence[int], back: Sequence[int]) -> list[list[Page]]:
    """Return chunks of these sizes, some empty, each of which may overlap the one before."""
    chunks, at = [], 0
    for size, overlap in zip(sizes, back, strict=False):
        begin = max(0, at - overlap)
        chunks.append(list(documents[begin : at + size]))
        at = min(len(documents), at + size)
    return [*chunks, list(documents[at:])]
