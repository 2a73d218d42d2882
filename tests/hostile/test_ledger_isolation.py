"""An unreadable record, or one of a newer version, stops only the load that it belongs to."""

from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

import pytest
from catalogue import proves
from interrupted_storage import InterruptedStorage
from slot_loads import DAMAGES, Lab, newer_weblake, overwrite, this_weblake

from weblake.dataset import history, landed_loads, layout, ledger
from weblake.dataset.root import Dataset
from weblake.errors import StorageRefused
from weblake.loads import orphans, recovery
from weblake.loads.load_request import LoadRequest

#: The steps at which the record of a load is damaged, and which of its records exist then.
POSITIONS = {
    "begun": {"", ".start-1", ".owner", ".job"},
    "start without an answer": {"", ".start-1"},
    "void start": {"", ".start-1", ".start-1.void"},
    "landed": {"", ".start-1", ".owner", ".job", ".lander", ".done", "slot entry"},
    "retired": {"", ".start-1", ".owner", ".job", ".lander", ".done", ".retired"},
}

#: Zeros cannot be decoded, as half a record cannot; test_damaged_ledger.py has them in the default tier.
with_each_damage = pytest.mark.parametrize(
    "damage", [pytest.param(name, marks=[pytest.mark.system] * (name == "all zeros")) for name in DAMAGES]
)


def load_at_step(lab: Lab, position: str) -> LoadRequest:
    request = lab.request("task", "run-1")
    name = f"_weblake/ledger/{request.load_id}"
    if position in ("landed", "retired"):
        lab.land(request)
    else:
        lab.begin(request)
    if position == "retired":
        lab.land(lab.request("task", "run-2"))
    if position in ("start without an answer", "void start"):
        for record in lab.records(request.load_id):
            if record not in (f"{name}.json", f"{name}.start-1.json"):
                lab.dataset.storage.delete(record)
    if position == "void start":
        start = lab.dataset.ledger.starts(request.load_id)[0]
        lab.dataset.ledger.void_start(start, "refused")
    return request


def record_of(lab: Lab, request: LoadRequest, step: str) -> str:
    """Return the name of a load's record, which is filed under the load or under its job."""
    names = [name for name in lab.records(request.load_id) if step_of(name) == step]
    return min(names, key=lambda name: request.load_id not in name)


def step_of(name: str) -> str:
    return "slot entry" if name.startswith(layout.SLOTS) else name.rpartition("/")[2][16:].removesuffix(".json")


@proves(
    "2.8",
    at="src/weblake/dataset/slots.py",
    line="            found = msgspec.json.decode(data, type=SlotEntry)",
    becomes="            found = self.ledger.read_record(name, load_id, SlotEntry)",
    case="landed-slot entry-a newer version",
)
@with_each_damage
@pytest.mark.parametrize(
    ("position", "step"), [(at, step) for at, steps in POSITIONS.items() for step in sorted(steps)]
)
def test_p13_an_unreadable_record_stops_its_own_load_only(position: str, step: str, damage: str) -> None:
    lab = Lab()
    request = load_at_step(lab, position)
    spoilt = record_of(lab, request, step)
    assert {step_of(name) for name in lab.records(request.load_id)} >= POSITIONS[position]
    overwrite(lab.dataset.storage, spoilt, DAMAGES[damage])
    jobs = len(lab.world.jobs)

    same_slot, other_slot = lab.request("task", "run-3"), lab.request("other", "run-1")
    lab.land(same_slot)
    lab.land(other_slot)
    assert len(lab.world.jobs) == jobs + 2
    assert lab.visible == {same_slot.load_id, other_slot.load_id}, "an older load of the slot was not retired"

    try:
        lab.land(request)
    except StorageRefused as error:
        stopped_by = error.message
    else:
        stopped_by = spoilt  # its landing does not need that record any more
    assert spoilt in stopped_by
    assert len(lab.world.jobs) == jobs + 2, "the load was started again"
    assert lab.visible == {same_slot.load_id, other_slot.load_id}


def test_an_entry_of_the_index_that_is_of_another_load_is_not_believed() -> None:
    lab = Lab()
    first, other = lab.request("task", "run-1"), lab.request("other", "run-1")
    for request in (first, other):
        lab.land(request)
    name, theirs = (record_of(lab, request, "slot entry") for request in (first, other))
    data = lab.dataset.storage.read(theirs)
    assert data is not None
    overwrite(lab.dataset.storage, name, lambda _: data)
    second = lab.request("task", "run-2")
    lab.land(second)
    assert lab.visible == {second.load_id, other.load_id}


def test_landing_a_load_reads_as_much_in_a_large_root() -> None:
    def calls(loads: int) -> int:
        lab = Lab()
        lab.land(lab.request("first", "run-1"))
        for n in range(loads):
            lab.land(lab.request(f"task {n}", "run-1"))
        counted = InterruptedStorage(lab.dataset.storage, 0, lambda: None)
        lab.dataset = Dataset.at(counted)  # type: ignore[arg-type]
        lab.land(lab.request("first", "run-2"))
        return counted.calls

    assert calls(2) == calls(60)


def test_finding_a_load_changes_nothing() -> None:
    """The run that landed it may die at any call."""
    for died_in in ("record_done", "record_retirement", "record_retired"):
        lab = Lab()
        lab.land(lab.request("task", "run-1"))
        second = lab.request("task", "run-2")
        lab.begin(second)
        if died_in == "record_retired":
            lab.land(lab.request("task", "run-3"))  # which replaces the second one
        with (
            mock.patch.object(ledger.Ledger, died_in, side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            lab.land(second)
        storage = lab.dataset.storage
        before = {name: storage.read(name) for name in storage.list("")}
        assert landed_loads.find(lab.dataset, second.load_id) is not None
        assert {name: storage.read(name) for name in storage.list("")} == before
        assert recovery.recover(lab.dataset, second.load_id) is not None
        assert len(lab.visible) == 1
        assert lab.dataset.ledger.done(second.load_id) is not None


@proves(
    "2.8",
    at="src/weblake/dataset/ledger.py",
    line="        version = min(version, VERSION)",
    becomes="        version = VERSION",
    case="False-record_done",
)
@pytest.mark.parametrize("moment", ["record_done", "record_retired"])
@pytest.mark.parametrize("first_is_newer", [False, True])
def test_a_worker_of_another_version_retires_a_load_while_it_lands(moment: str, first_is_newer: bool) -> None:
    """Both succeed: what one records about the other's load has a version that the other one knows."""
    lab = Lab()
    first, second = lab.request("task", "run-1"), lab.request("task", "run-2")
    real, met = getattr(ledger.Ledger, moment), list[str]()

    def meanwhile(self: ledger.Ledger, load_id: str, *args: object, **more: object) -> object:
        if load_id == first.load_id and not met:
            met.append(load_id)
            with this_weblake(lab.dataset) if first_is_newer else newer_weblake(lab.dataset):
                lab.land(second)
        return real(self, load_id, *args, **more)

    lab.begin(first)
    lab.begin(second)
    if moment == "record_retired":  # the first one finds that the second has landed, and has yet to report it
        lab.land(second)
    with newer_weblake(lab.dataset) if first_is_newer else nullcontext():
        with mock.patch.object(ledger.Ledger, moment, meanwhile):
            lab.land(first)
        assert met
        assert lab.visible == {second.load_id}
        lab.land(first)
    assert len(lab.world.jobs) == 2
    assert lab.visible == {second.load_id}


@with_each_damage
@pytest.mark.parametrize("step", sorted(POSITIONS["landed"] - {".owner"}))
def test_a_lost_start_is_looked_up_although_a_record_of_another_load_is_damaged(step: str, damage: str) -> None:
    """With a service that does not replay, the activity list decides, and the owner of each job is recorded."""
    lab = Lab(replay=False)
    lost, other = lab.request("task", "run-1"), lab.request("other", "run-1", url="https://site.test/task")
    lab.begin(lost)
    (job,) = lab.world.jobs
    for name in lab.records(lost.load_id):
        if step_of(name) in (".job", ".owner"):
            lab.dataset.storage.delete(name)
    lab.land(other)
    spoilt = record_of(lab, other, step)
    overwrite(lab.dataset.storage, spoilt, DAMAGES[damage])
    lab.land(lost)
    assert lab.dataset.ledger.owner("batch_scrape", job) == lost.load_id
    assert len(lab.world.jobs) == 2


@with_each_damage
@pytest.mark.parametrize("step", sorted(POSITIONS["retired"] | POSITIONS["void start"]))
def test_lists_of_loads_name_the_unreadable_record_and_continue(step: str, damage: str) -> None:
    lab = Lab()
    request = load_at_step(lab, "void start" if step == ".start-1.void" else "retired")
    others = [lab.request(name, "run-1") for name in ("other", "another")]
    for other in others:
        lab.land(other)
    spoilt = record_of(lab, request, step)
    overwrite(lab.dataset.storage, spoilt, DAMAGES[damage])
    told: dict[str, str] = {}
    listed = {row.receipt.load_id for row in history.history(lab.dataset, unreadable=told.__setitem__)}
    assert listed >= {other.load_id for other in others}
    found = orphans.open_loads(lab.dataset)
    told |= {each.load_id: each.why for each in found.unreadable}
    if step in (".done", ".retired", ".start-1.void"):
        assert list(told) == [request.load_id]
        assert spoilt in told[request.load_id]
    else:  # neither list needs it
        assert told == {}
        assert request.load_id in listed | {each.load_id for each in found.orphans}
