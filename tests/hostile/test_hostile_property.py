"""Any documents, any cuts, any faults, on a clock of our own: every document once, or an error and nothing visible."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar
from unittest import mock
from urllib.parse import urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_script import JOB, url_of
from lake_run import page_errors, published

from weblake import load, orders, read, steps
from weblake.errors import LoadIncomplete, WeblakeError
from weblake.lake import open_dataset
from weblake.orders import Naming, Order, Terms
from weblake.receipt import Receipt
from weblake.retry import Retry
from weblake.steps import Flow, NoReply, Reply, Request

T = TypeVar("T")

PATH = f"/v2/batch/scrape/{JOB}"

#: What may happen to one request. `late` does what was asked and loses the answer.
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


@dataclass
class Clock:
    """A clock that only moves when something waits."""

    wall_base: float = field(default_factory=time.time)
    passed: float = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.passed += seconds

    def monotonic(self) -> float:
        return 1000.0 + self.passed

    def wall(self) -> float:
        return self.wall_base + self.passed


@dataclass
class World:
    """A job as it truly is, and a network that spoils what is said of it."""

    chunks: list[list[dict[str, object]]]
    failed: list[int]
    total: int
    tape: list[str | None]
    clock: Clock = field(default_factory=Clock)
    started: list[str] = field(default_factory=list)
    sent: int = 0

    def send(self, request: Request) -> Reply | NoReply:
        self.sent += 1
        self.clock.passed += 0.01
        fault = self.tape.pop(0) if self.tape else None
        if fault in ("refused", "reset"):
            return NoReply("no", sent=fault == "reset")
        if fault == "timeout":
            self.clock.passed += request.deadline_s
            return NoReply("late")
        # To a start, 404 is a clear refusal; of the errors, it says that the service has no such list.
        if fault == "404" and (request.method == "POST" or request.path.endswith("/errors")):
            fault = None
        if fault is not None and fault[0].isdigit():
            status, _, wait = fault.partition(" after ")
            return self.reply({"success": False, "error": fault}, int(status), wait.removesuffix(" s"))
        reply = self.reply(self.answer(request, lag=fault == "lag"))
        if fault == "late":
            return NoReply("the answer was lost")
        if fault == "html":
            return Reply(200, {}, b"<html></html>", wall=self.clock.wall())
        return Reply(200, {}, reply.body[:-5], wall=self.clock.wall()) if fault == "cut" else reply

    def answer(self, request: Request, *, lag: bool) -> object:
        if request.method == "POST":
            self.started.append(datetime.fromtimestamp(self.clock.wall(), UTC).isoformat())
            return {"success": True, "id": JOB}
        if request.path == "/v2/team/activity":
            rows = [{"id": JOB, "endpoint": "batch_scrape", "created_at": at} for at in self.started]
            return {"success": True, "data": rows, "cursor": None}
        if request.path.endswith("/errors"):
            return {"errors": [{"url": url_of(n), "error": "x"} for n in self.failed], "robotsBlocked": []}
        at = int(dict(request.query).get("cursor", 0))
        last = at + 1 == len(self.chunks)
        link = None if last else f"http://elsewhere.test{PATH}?{urlencode({'cursor': at + 1})}"
        status = "scraping" if lag else "completed"
        return {"status": status, "total": self.total, "completed": self.total, "next": link, "data": self.chunks[at]}

    def reply(self, body: object, status: int = 200, retry_after: str = "") -> Reply:
        headers = {"retry-after": retry_after} if retry_after else {}
        return Reply(status, headers, json.dumps(body).encode(), wall=self.clock.wall())


@dataclass
class Driver:
    """What load.land asks of a client, on the world's clock."""

    world: World
    retry: Retry = field(default_factory=Retry)
    service: str = "given"

    def run(self, flow: Flow[T]) -> T:
        clock = self.world.clock
        return steps.run(flow, self.world, sleep=clock.sleep, clock=clock.monotonic, wall=clock.wall)


def cut(
    documents: Sequence[dict[str, object]], sizes: Sequence[int], back: Sequence[int]
) -> list[list[dict[str, object]]]:
    """Chunks of these sizes, some empty, each of which may begin before the one in front of it ended."""
    chunks, at = [], 0
    for size, overlap in zip(sizes, back, strict=False):
        begin = max(0, at - overlap)
        chunks.append(list(documents[begin : at + size]))
        at = min(len(documents), at + size)
    return [*chunks, list(documents[at:])]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, list[dict[str, object]], int]:
    """A world, the documents that it delivers, and how many it lost."""
    count = draw(st.integers(0, 12))
    ids = draw(st.booleans())
    documents = []
    for n in range(count):
        metadata = {"sourceURL": url_of(n), "title": draw(st.text(max_size=3))} | ({"scrapeId": f"s{n}"} if ids else {})
        documents.append({"markdown": draw(st.text(max_size=8)), "metadata": metadata})
    failed = list(range(count, count + draw(st.integers(0, 3))))
    lost = draw(st.sampled_from([0, 0, 0, 1, 3]))
    if count + len(failed) + lost == 0:
        lost = 1
    sizes = draw(st.lists(st.integers(0, 5), max_size=6))
    back = draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)))
    calm, wild = st.none(), st.sampled_from(FAULTS)
    tape = draw(st.lists(calm | wild, max_size=12)) + draw(st.lists(wild, max_size=12))
    return World(cut(documents, sizes, back), failed, count + lost, tape), documents, lost


def settle(world: World, root: Path, order: Order, terms: Terms) -> tuple[Receipt | None, WeblakeError | None]:
    """Lands until the faults are used up, as a scheduler would; nothing may be visible before it is whole."""
    dataset = open_dataset(root)
    error: WeblakeError | None = None
    for _ in range(40):
        before, begun = len(world.started), world.clock.passed
        try:
            with mock.patch.object(load, "time", SimpleNamespace(monotonic=world.clock.monotonic)):
                return load.land(Driver(world), dataset, order, terms).receipt, None
        except LoadIncomplete as incomplete:
            return None, incomplete
        except WeblakeError as given_up:
            error = given_up
            assert published(root) == []
        finally:
            starts = len(world.started) - before + 1
            assert world.clock.passed - begun <= terms.timeout_s + (80 * starts if order.start is not None else 0.1)
    raise AssertionError(f"it never ended: {error}")


def judge(root: Path, documents: Sequence[dict[str, object]], failed: int, lost: int, receipt: Receipt | None) -> None:
    if receipt is None:
        assert published(root) == []
        return
    assert lost == 0
    assert (receipt.stored, receipt.failed, receipt.missing) == (len(documents), failed, 0)
    assert receipt.submitted == receipt.stored + receipt.failed
    table = read(root, "documents").to_table().to_pylist()
    expected = Counter((d["metadata"]["sourceURL"], d["markdown"]) for d in documents)  # type: ignore[index]
    assert Counter((row["source_url"], row["markdown"]) for row in table) == expected
    assert sorted(row["position"] for row in table) == list(range(len(documents)))
    assert len(page_errors(root)) == failed


QUIET = settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])


@QUIET
@given(worlds(), st.sampled_from([4.0, 60.0, 3600.0]))
def test_a_job_started_elsewhere(made: tuple[World, list[dict[str, object]], int], timeout_s: float) -> None:
    world, documents, lost = made
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "lake")
        receipt, error = settle(world, root, orders.elsewhere("batch", JOB), Terms(timeout_s=timeout_s))
        judge(root, documents, len(world.failed), lost, receipt)
        if receipt is None:
            assert isinstance(error, LoadIncomplete)
            assert lost or not documents
            assert error.receipt is not None
            assert error.receipt.missing == lost


@QUIET
@given(worlds())
def test_a_batch_is_paid_once(made: tuple[World, list[dict[str, object]], int]) -> None:
    world, documents, lost = made
    count = len(documents) + len(world.failed) + lost
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "lake")
        order = orders.batch([url_of(n) for n in range(count)], Naming(str(root)))
        receipt, error = settle(world, root, order, Terms(timeout_s=3600))
        judge(root, documents, len(world.failed), lost, receipt)
        assert len(world.started) == 1
        if receipt is None:
            assert isinstance(error, LoadIncomplete)
            assert lost or not documents
            assert error.receipt is not None
            assert error.receipt.missing == lost
