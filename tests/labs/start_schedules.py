"""Exploration of every schedule of processes that start one load, with the real start flow.

A process is executed from its beginning for each of its operations: it gets the same results as before, and stops at
the first operation that has no result yet. The state of a process is therefore only the list of its results, states can
be compared, and each is continued once. Faults come from a budget of crashes and of lost responses.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from start_service_model import BEGAN, Service, reply, stamp

from weblake.api.operation import Operation
from weblake.api.steps import NoResponse, Now, Response, Send, Sleep
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import Intent
from weblake.errors import WeblakeError
from weblake.jobs.retry import Retry
from weblake.loads import starts
from weblake.loads.load_request import LoadRequest

#: Seconds until a job appears in the activity list.
LAG_S = 1.5


@cache
def started_by(request: LoadRequest, key: str) -> Operation[object]:
    """Return the start operation, built once for each key."""
    return request.start(key)  # type: ignore[misc]


class NoResultYet(BaseException):
    """Raised by a replayed process at an operation that has no result yet."""

    def __init__(self, *operation: Any) -> None:
        self.operation = operation


@dataclass(frozen=True)
class Process:
    """One process: all results that it got, and its next operation."""

    results: tuple[Any, ...] = field(default=(), compare=False)
    operation: tuple[Any, ...] | None = field(default=None, compare=False)
    #: A hash that stands for both fields when states are compared.
    mark: int = 0
    #: The time at which it continues.
    ready: float = BEGAN
    #: The job's id, or the error that it ended with.
    job: str | None = None
    error: str | None = None

    @property
    def ended(self) -> bool:
        return self.job is not None or self.error is not None


@dataclass(frozen=True)
class State:
    """The state of all processes, of the records and of the service."""

    processes: tuple[Process, ...]
    #: Process deaths and lost responses that may still happen.
    crashes: int
    losses: int
    now: float = BEGAN
    records: tuple[tuple[str, bytes], ...] = ()
    service: Service = field(default_factory=Service)
    #: The history of this state.
    trail: tuple[str, ...] = field(default=(), compare=False)

    def with_process(self, n: int, process: Process, **changes: Any) -> State:
        processes = (*self.processes[:n], process, *self.processes[n + 1 :])
        return replace(self, processes=processes, **changes)


@dataclass(frozen=True)
class StartModel:
    """The parameters of an exploration: the request, the kind of service, and how finely processes are interleaved."""

    request: LoadRequest
    #: replay: same key, same response; burnt: a repeated key gets a 409 without an id; none: keys are ignored.
    kind: str
    lists_activity: bool = True
    #: Whether another process may run between two reads.
    fine: bool = False
    service: str = "given"
    #: Seconds until a process that died runs again.
    again_s: float = 0.0
    #: Duration of a slow record, and of a start that the service delays: longer than the wait for a lost start.
    slow_s: float = 20.0
    paced_s: int = 20

    @property
    def deadline_s(self) -> float:
        """Return how long a start may take to arrive."""
        return started_by(self.request, str(uuid.UUID(int=1, version=4))).request.deadline_s

    def explore(self, state: State) -> Iterator[State]:
        """Yield every state in which all processes have ended; raise if one never ends."""
        seen, left = {state}, [state]
        while left:
            state = left.pop()
            following = [each for each in self.after(state) if each not in seen]
            if all(process.ended for process in state.processes):
                yield replace(state, service=state.service.at(state.now + 1000, self.kind))
            seen.update(following)
            left += following

    def after(self, state: State) -> Iterator[State]:
        """Yield every state that may follow this one."""
        waiting = [process.ready for process in state.processes if not process.ended]
        if waiting and min(waiting) > state.now:
            now = min([*waiting, *(when for when, _ in state.service.late)])
            yield replace(state, now=now, service=state.service.at(now, self.kind))
            return
        for n, process in enumerate(state.processes):
            if not process.ended and process.ready <= state.now:
                if process.operation is None:
                    yield self.resumed(state, n)
                else:
                    yield from self.outcomes(state, n, process)

    def resumed(self, state: State, n: int) -> State:
        """Return the state in which a process has come to its next operation, or to its end."""
        process = state.processes[n]
        others = [each for k, each in enumerate(state.processes) if k != n and not each.ended]
        replayed = ReplayedProcess(self, state, list(process.results), alone=not others)
        try:
            answer = self._flow(replayed)
        except NoResultYet as pending:
            mark = hash((process.mark, *replayed.results[len(process.results) :], pending.operation[0]))
            came = replace(process, results=tuple(replayed.results), operation=pending.operation, mark=mark)
        except WeblakeError as error:
            came = Process(error=f"{type(error).__name__}: {error}")
        else:
            came = Process(job=answer)
        now = replayed.now
        came = replace(came, ready=now)
        return state.with_process(n, came, now=now, service=state.service.at(now, self.kind))

    def outcomes(self, state: State, n: int, process: Process) -> Iterator[State]:
        """Yield the states after the next operation of one process, for each of its possible outcomes."""
        what = process.operation[0]  # type: ignore[index]
        if what == "create":
            yield from self._created(state, n, process)
        elif what == "send" and process.operation[1].method == "POST":
            yield from self._posted(state, n, process)
        elif what == "send":
            yield self.continued(state, n, self.listed(state), "list")
            if state.losses:
                yield self.continued(replace(state, losses=state.losses - 1), n, NoResponse("reset"), "list lost")
            yield from self._died(state, n, "before a list")
        elif what == "sleep":
            yield self.continued(state, n, None, "sleeps", after=process.operation[1])
        else:
            yield self.continued(state, n, local(state, process.operation), what)

    def continued(self, state: State, n: int, answer: Any, note: str, after: float = 0.0) -> State:
        """Return the state after the current operation of a process got its result."""
        process = state.processes[n]
        mark = hash((process.mark, answer))
        came = replace(process, results=(*process.results, answer), operation=None, mark=mark, ready=state.now + after)
        return state.with_process(n, came, trail=(*state.trail, f"{n}: {note} at {state.now - BEGAN:g}"))

    def _died(self, state: State, n: int, note: str) -> Iterator[State]:
        if state.crashes:
            trail = (*state.trail, f"{n}: dies {note} at {state.now - BEGAN:g}")
            yield state.with_process(n, Process(ready=state.now + self.again_s), crashes=state.crashes - 1, trail=trail)

    def _created(self, state: State, n: int, process: Process) -> Iterator[State]:
        assert process.operation is not None
        _, name, data = process.operation
        known = dict(state.records)
        fresh = name not in known
        made = replace(state, records=tuple(sorted((known | {name: data}).items()))) if fresh else state
        yield self.continued(made, n, fresh, f"records {name.rpartition('/')[2]}")
        if state.losses and ".start-" in name:
            slow = replace(made, losses=state.losses - 1)
            yield self.continued(slow, n, fresh, "records its start slowly", after=self.slow_s)
        yield from self._died(state, n, f"before {name}")
        yield from self._died(made, n, f"after {name}")

    def _posted(self, state: State, n: int, process: Process) -> Iterator[State]:
        assert process.operation is not None
        key = dict(process.operation[1].headers)["x-idempotency-key"]
        service, job = state.service.start(key, state.now, self.kind)
        taken = replace(state, service=service)
        answer = self.started(job, state.now)
        late = replace(state.service, late=(*state.service.late, (state.now + self.deadline_s, key)))
        lag = replace(state, service=late)
        yield self.continued(taken, n, answer, "starts")
        yield from self._died(state, n, "before its start")
        yield from self._died(taken, n, "after its start")
        yield from self._died(lag, n, "and its start comes late")
        if state.losses:
            paced = reply(429, {"success": False}, state.now, **{"retry-after": str(self.paced_s)})
            for note, came, answer in (
                ("its start's answer is lost", taken, NoResponse("reset")),
                ("its start is lost", state, NoResponse("reset")),
                ("its start comes late", lag, NoResponse("reset")),
                ("is results to wait", state, paced),
                ("is refused a connection", state, NoResponse("refused", sent=False)),
            ):
                yield self.continued(replace(came, losses=state.losses - 1), n, answer, note)

    def started(self, job: str | None, now: float) -> Response:
        if job is None:
            return reply(409, {"success": False, "error": "Idempotency key already used"}, now)
        if self.request.kind in ("scrape", "parse"):
            return reply(200, {"success": True, "data": {"markdown": "a", "metadata": {"scrapeId": job}}}, now)
        return reply(200, {"success": True, "id": job, "invalidURLs": []}, now)

    def listed(self, state: State) -> Response:
        if not self.lists_activity:
            return reply(404, {"success": False, "error": "no such thing"}, state.now)
        entries = [
            {"id": job, "endpoint": self.request.kind, "created_at": stamp(when), "target": self.request.first_target}
            for job, when in state.service.jobs
            if when + LAG_S <= state.now
        ]
        return reply(200, {"success": True, "data": entries, "cursor": None, "has_more": False}, state.now)

    def intent(self, now: float) -> Intent:
        return Intent(
            load_id=self.request.load_id,
            kind=self.request.kind,
            endpoint=self.request.endpoint or "",
            created_at=stamp(now),
            request_sha256=self.request.request_sha,
            first_target=self.request.first_target,
            replay=self.kind == "replay",
            service=self.service,
        )

    def _flow(self, replayed: ReplayedProcess) -> str:
        """Run the real start flow, from the intent to the job's id, and return the id."""
        ledger = Ledger(replayed)  # type: ignore[arg-type]
        intent = ledger.record_intent(self.intent(replayed("now")))
        request = replace(self.request, start=partial(started_by, self.request), with_urls=None)
        flow = starts.JobStarter(request, intent, ledger, Retry(jitter=lambda: 0.5), service=self.service).run()
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as end:
                return str(end.value[0].job_id)
            match step:
                case Send(request):
                    answer = replayed("send", request)
                case Sleep(seconds):
                    answer = replayed("sleep", seconds)
                case Now():
                    answer = replayed("now")


class ReplayedProcess:
    """Returns the recorded results to a process and computes local ones; it is also the storage of its ledger."""

    def __init__(self, model: StartModel, state: State, results: list[Any], alone: bool) -> None:
        self._model, self._state, self._alone = model, state, alone
        self.results, self._next, self.now = results, 0, state.now

    def __call__(self, *operation: Any) -> Any:
        if self._next == len(self.results):
            self.results.append(self._found(operation))
        self._next += 1
        return self.results[self._next - 1]

    def _found(self, operation: tuple[Any, ...]) -> Any:
        if operation[0] == "now":
            return self.now
        if operation[0] == "sleep" and self._alone:
            self.now += operation[1]
            return None
        if operation[0] in ("read", "list") and (self._alone or not self._model.fine):
            return local(self._state, operation)
        raise NoResultYet(*operation)

    def create(self, name: str, data: bytes) -> bool:
        return bool(self("create", name, data))

    def read(self, name: str) -> bytes | None:
        found: bytes | None = self("read", name)
        return found

    def list(self, prefix: str) -> list[str]:
        found: list[str] = self("list", prefix)
        return found


def local(state: State, operation: tuple[Any, ...]) -> Any:
    """Return the result of a read of the records."""
    if operation[0] == "read":
        return dict(state.records).get(operation[1])
    return tuple(name for name, _ in state.records if name.startswith(operation[1]))
