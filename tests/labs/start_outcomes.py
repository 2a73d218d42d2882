"""Assertions for the end of every schedule of a start, and for the output of `weblake orphans` about it."""

from __future__ import annotations

from typing import Any

from start_schedules import Process, StartModel, State

from weblake.api.steps import NoResponse, Request, Response, run
from weblake.dataset.root import Dataset
from weblake.jobs.retry import Retry
from weblake.loads.orphans import Orphan, find_open_loads


class RecordedStorage:
    """A storage with the records that a schedule left."""

    url = "memory://lake"

    def __init__(self, state: State) -> None:
        self._records = dict(state.records)

    def read(self, name: str) -> bytes | None:
        return self._records.get(name)

    def pages(self, prefix: str) -> list[list[str]]:
        return [sorted(name for name in self._records if name.startswith(prefix))]

    def local_path(self, name: str) -> None:
        return None

    def exists(self, name: str) -> bool:
        return name in self._records


class ClientOfState:
    """A client of a service whose state does not change."""

    service = "given"

    def __init__(self, model: StartModel, state: State) -> None:
        self.retry, self._model, self._state = Retry(jitter=lambda: 0.0), model, state

    def run(self, flow: Any) -> Any:
        return run(flow, self, sleep=lambda _: None, wall=lambda: self._state.now)

    def redact(self, text: str) -> str:
        return text

    def send(self, request: Request) -> Response | NoResponse:
        if request.path == "/v2/team/activity":
            return self._model.listed(self._state)
        return Response(
            200, {"content-type": "application/json"}, b'{"success": true, "status": "scraping", "data": []}'
        )


def orphans_after(model: StartModel, state: State) -> tuple[Orphan, ...]:
    """Return what `weblake orphans` finds in the ledger, when all requests have arrived and been listed."""
    when = state.now + 100
    records: Any = RecordedStorage(state)
    dataset = Dataset.at(records)
    client: Any = ClientOfState(model, State((), 0, 0, now=when, service=state.service.at(when, model.kind)))
    return find_open_loads(client, dataset).orphans


def check_end(model: StartModel, end: State) -> None:
    """Check that at most one job was paid for, that each success has it, and that each error names the load."""
    jobs = [job for job, _ in end.service.jobs]
    context = f"{model.kind}, {model.request.kind}: {end.trail}: {end.processes}"
    assert len(jobs) <= 1, f"{len(jobs)} jobs were started; {context}"
    for process in end.processes:
        if process.error is None:
            assert jobs == [process.job], f"another job than the started one; {context}"
        elif jobs:
            assert model.request.load_id in process.error, f"the load is not named; {context}"
            assert "again" in process.error or "new=True" in process.error, f"the error names no remedy; {context}"
    found = orphans_after(model, end)
    named = [{each.job_id, *(each.candidates or ())} for each in found]
    if jobs and model.lists_activity and model.request.endpoint:
        assert any(jobs[0] in each for each in named), f"started, and no orphan names the job; {context}"
    elif jobs:
        assert found[0].paid is not False, f"started, and the orphan reports that it was not; {context}"


def check_all_ends(model: StartModel, processes: tuple[Process, ...], crashes: int, losses: int) -> int:
    """Check the end of every schedule, and return the number of ends."""
    ends = 0
    for end in model.explore(State(processes, crashes, losses)):
        check_end(model, end)
        ends += 1
    return ends
