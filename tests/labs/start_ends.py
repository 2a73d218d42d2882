"""What must be true at the end of every schedule of a start, and what `weblake orphans` must say of it."""

from __future__ import annotations

from typing import Any

from start_world import Process, State, World

from weblake.jobs.retry import Retry
from weblake.loads.orphans import Orphan, look
from weblake.loads.publishing import Dataset
from weblake.steps import NoReply, Reply, Request, run


class Records:
    """A storage that holds what a schedule left."""

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


class Teller:
    """A client of a service that does not change any more."""

    service = "given"

    def __init__(self, world: World, state: State) -> None:
        self.retry, self._world, self._state = Retry(jitter=lambda: 0.0), world, state

    def run(self, flow: Any) -> Any:
        return run(flow, self, sleep=lambda _: None, wall=lambda: self._state.now)

    def send(self, request: Request) -> Reply | NoReply:
        if request.path == "/v2/team/activity":
            return self._world.listed(self._state)
        return Reply(200, {"content-type": "application/json"}, b'{"success": true, "status": "scraping", "data": []}')


def looked_at(world: World, state: State) -> tuple[Orphan, ...]:
    """What `weblake orphans` finds in the ledger, when all requests have arrived and been listed."""
    when = state.now + 100
    records: Any = Records(state)
    dataset = Dataset.at(records)
    client: Any = Teller(world, State((), 0, 0, now=when, service=state.service.at(when, world.kind)))
    return look(client, dataset).orphans


def checked(world: World, end: State) -> None:
    """Paid once at most; whoever ended well has the one job; whoever did not says for which load, and what to do."""
    jobs = [job for job, _ in end.service.jobs]
    told = f"{world.kind}, {world.order.kind}: {end.trail}: {end.processes}"
    assert len(jobs) <= 1, f"paid {len(jobs)} times; {told}"
    for process in end.processes:
        if process.error is None:
            assert jobs == [process.job], f"not the job that was paid; {told}"
        elif jobs:
            assert world.order.load_id in process.error, f"the load is not named; {told}"
            assert "again" in process.error or "new=True" in process.error, f"nothing to do; {told}"
    found = looked_at(world, end)
    named = [{each.job_id, *(each.candidates or ())} for each in found]
    if jobs and world.lists_activity and world.order.endpoint:
        assert any(jobs[0] in each for each in named), f"paid, and no orphan names it; {told}"
    elif jobs:
        assert found[0].paid is not False, f"paid, and the orphan says that it was not; {told}"


def explored(world: World, processes: tuple[Process, ...], crashes: int, losses: int) -> int:
    ends = 0
    for end in world.explore(State(processes, crashes, losses)):
        checked(world, end)
        ends += 1
    return ends
