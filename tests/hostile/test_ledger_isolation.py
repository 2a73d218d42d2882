"""A record that cannot be read, or of a newer version, stops the load that it belongs to and no other one.

Loads of a virtual service land in one root in memory. All of them belong to slots with a partition value, as those of
Airflow and Dagster do, so that landing one of them retires the older one of its slot.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
from catalogue import proves
from virtual_world import Content, Driver, World

from weblake import generations, layout, ledger, load, orders, publishing, recovery
from weblake.errors import StorageRefused
from weblake.generations import Task
from weblake.lake import open_dataset
from weblake.orders import Naming, Order, Terms
from weblake.publishing import Dataset
from weblake.storage import Storage

TERMS = Terms(timeout_s=60)
NEXT_VERSION = ledger.VERSION + 1

#: What becomes of the bytes of a record.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda whole: whole[: len(whole) // 2],
    "all zeros": lambda whole: b"\0" * len(whole),
    "a newer version": lambda whole: newer(whole),
}


def newer(whole: bytes) -> bytes:
    """The record as the next version of weblake would write it."""
    return json.dumps(json.loads(whole) | {"version": NEXT_VERSION, "shade": {"of": ["blue"]}}).encode()


class Lab:
    """A virtual service and a root; tasks of an orchestrator land pages in it."""

    def __init__(self) -> None:
        self.world = World(lambda urls: Content([page(url) for url in urls]), replay=True)
        self.dataset = open_dataset(f"memory://{uuid.uuid4().hex}/lake")

    def order(self, task: str, run: str, day: str = "2026-11-21") -> Order:
        order = orders.batch([f"https://site.test/{task}"], Naming(partition={"day": day}))
        return generations.place(order, Task(("airflow", "dag", task, -1), run, "max_tries=1"), 0)

    def land(self, order: Order) -> None:
        with self.world.clock.ruling():
            load.land(Driver(self.world), self.dataset, order, TERMS)
        self.world.clock.passed += 1

    def begin(self, order: Order) -> None:
        with self.world.clock.ruling():
            load.begin(Driver(self.world), self.dataset, order)
        self.world.clock.passed += 1

    def records(self, load_id: str) -> list[str]:
        """The records of a load, also those that are filed under its job."""
        storage = self.dataset.storage
        filed = [*storage.list(layout.LEDGER), *storage.list(layout.SLOTS)]
        return [name for name in filed if load_id in name or load_id.encode() in (storage.read(name) or b"")]

    @property
    def visible(self) -> set[str]:
        return {layout.load_id_in(name) for name in self.dataset.storage.list("documents")}


def page(url: str) -> dict[str, object]:
    return {"markdown": "x", "metadata": {"sourceURL": url, "url": url}}


def overwrite(storage: Storage, name: str, made: Callable[[bytes], bytes]) -> None:
    whole = storage.read(name)
    assert whole is not None
    storage.delete(name)
    assert storage.create(name, made(whole))


#: How far the load has come whose record is spoilt, and which of its records there are then.
POSITIONS = {
    "begun": {"", ".start-1", ".owner", ".job"},
    "start without an answer": {"", ".start-1"},
    "void start": {"", ".start-1", ".start-1.void"},
    "landed": {"", ".start-1", ".owner", ".job", ".lander", ".done", "slot entry"},
    "retired": {"", ".start-1", ".owner", ".job", ".lander", ".done", ".retired"},
}


def brought_to(lab: Lab, position: str) -> Order:
    order = lab.order("task", "run-1")
    name = f"_weblake/ledger/{order.load_id}"
    if position in ("landed", "retired"):
        lab.land(order)
    else:
        lab.begin(order)
    if position == "retired":
        lab.land(lab.order("task", "run-2"))
    if position in ("start without an answer", "void start"):
        for record in lab.records(order.load_id):
            if record not in (f"{name}.json", f"{name}.start-1.json"):
                lab.dataset.storage.delete(record)
    if position == "void start":
        start = lab.dataset.ledger.starts(order.load_id)[0]
        lab.dataset.ledger.void_start(start, "refused")
    return order


def step_of(name: str) -> str:
    return "slot entry" if name.startswith(layout.SLOTS) else name.rpartition("/")[2][16:].removesuffix(".json")


@proves(
    "2.8",
    at="src/weblake/slots.py",
    line="            found = msgspec.json.decode(data, type=SlotEntry)",
    becomes="            found = self.ledger.read_record(name, load_id, SlotEntry)",
    case="landed-slot entry-a newer version",
)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("position", "step"), [(at, step) for at, steps in POSITIONS.items() for step in sorted(steps)]
)
def test_p13_an_unreadable_record_stops_its_own_load_only(position: str, step: str, damage: str) -> None:
    lab = Lab()
    order = brought_to(lab, position)
    spoilt = [name for name in lab.records(order.load_id) if step_of(name) == step and order.load_id in name] or [
        name for name in lab.records(order.load_id) if step_of(name) == step
    ]
    assert {step_of(name) for name in lab.records(order.load_id)} >= POSITIONS[position]
    overwrite(lab.dataset.storage, spoilt[0], DAMAGES[damage])
    jobs = len(lab.world.jobs)

    same_slot, other_slot = lab.order("task", "run-3"), lab.order("other", "run-1")
    lab.land(same_slot)
    lab.land(other_slot)
    assert len(lab.world.jobs) == jobs + 2
    assert lab.visible == {same_slot.load_id, other_slot.load_id}, "an older load of the slot was not retired"

    try:
        lab.land(order)
    except StorageRefused as error:
        stopped_by = error.message
    else:
        stopped_by = spoilt[0]  # its landing does not need that record any more
    assert spoilt[0] in stopped_by
    assert len(lab.world.jobs) == jobs + 2, "the load was bought again"
    assert lab.visible == {same_slot.load_id, other_slot.load_id}


@contextmanager
def newer_weblake(dataset: Dataset) -> Iterator[None]:
    """A worker of the next version: it writes records of that version, with fields that this one does not know."""
    create = type(dataset.storage).create

    def written(storage: Storage, name: str, data: bytes) -> bool:
        record = name.startswith((f"{layout.LEDGER}/", f"{layout.SLOTS}/")) and name != layout.SLOT_INDEX
        return create(storage, name, newer(data) if record else data)

    with (
        mock.patch.object(type(dataset.storage), "create", written),
        mock.patch.object(ledger, "VERSION", NEXT_VERSION),
    ):
        yield


def test_workers_of_two_versions_land_into_one_root() -> None:
    lab = Lab()
    first, second, third = (lab.order("task", f"run-{n}") for n in range(3))
    lab.land(first)
    with newer_weblake(lab.dataset):
        lab.land(second)
    assert lab.visible == {second.load_id}
    lab.land(third)
    assert lab.visible == {third.load_id}
    with newer_weblake(lab.dataset):
        lab.land(lab.order("other", "run-1"))
        lab.land(first)
        lab.land(third)
    assert len(lab.world.jobs) == 4
    with pytest.raises(StorageRefused, match="version"):
        lab.land(second)
    assert len(lab.world.jobs) == 4


@pytest.mark.parametrize("newer_first", [True, False])
def test_loads_of_two_versions_that_land_out_of_order_leave_the_newest(newer_first: bool) -> None:
    lab = Lab()
    old, new = lab.order("task", "run-1"), lab.order("task", "run-2")
    lab.begin(old)
    with newer_weblake(lab.dataset):
        lab.begin(new)
    for order in (new, old) if newer_first else (old, new):
        if order is new:
            with newer_weblake(lab.dataset):
                lab.land(order)
        else:
            lab.land(order)
    assert lab.visible == {new.load_id}


@pytest.mark.parametrize("again", [False, True], ids=["next run", "task cleared"])
def test_a_root_without_an_index_of_slots_goes_on(again: bool) -> None:
    """As weblake left roots before there was an index: the first landing that may retire a load makes it."""
    lab = Lab()
    first, other = lab.order("task", "run-1"), lab.order("other", "run-1")
    lab.land(first)
    lab.land(other)
    for name in lab.dataset.storage.list(layout.SLOTS):
        lab.dataset.storage.delete(name)
    second = lab.order("task", "run-2")
    if again:
        task = Task(("airflow", "dag", "task", -1), "run-1", "max_tries=2")
        second = generations.place(second, task, 1)
    lab.land(second)
    assert lab.visible == {second.load_id, other.load_id}
    lab.land(lab.order("other", "run-2"))
    assert len(lab.visible) == 2
    assert other.load_id not in lab.visible


def test_a_damaged_index_is_made_again() -> None:
    lab = Lab()
    lab.land(lab.order("task", "run-1"))
    for name in lab.dataset.storage.list(layout.SLOTS):
        lab.dataset.storage.delete(name)
    lab.dataset.storage.create(layout.SLOT_INDEX, b"{")
    second = lab.order("task", "run-2")
    lab.land(second)
    assert lab.visible == {second.load_id}


def test_a_load_that_could_not_be_indexed_is_retired_once_it_can_be_read() -> None:
    lab = Lab()
    first = lab.order("task", "run-1")
    lab.land(first)
    storage, name = lab.dataset.storage, f"_weblake/ledger/{first.load_id}.json"
    for each in storage.list(layout.SLOTS):
        storage.delete(each)
    whole = storage.read(name)
    assert whole is not None
    overwrite(storage, name, DAMAGES["cut off"])
    second, third = lab.order("task", "run-2"), lab.order("task", "run-3")
    lab.land(second)
    assert lab.visible == {first.load_id, second.load_id}
    overwrite(storage, name, lambda _: whole)
    lab.land(third)
    assert lab.visible == {third.load_id}


class Counted:
    """A storage that counts what it is asked."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if callable(found):
            self.calls.append(name)
        return found


def test_landing_a_load_costs_the_same_in_a_large_root() -> None:
    def calls(loads: int) -> list[str]:
        lab = Lab()
        lab.land(lab.order("first", "run-1"))
        for n in range(loads):
            lab.land(lab.order(f"task {n}", "run-1"))
        counted = Counted(lab.dataset.storage)
        lab.dataset = Dataset.at(counted)  # type: ignore[arg-type]
        lab.land(lab.order("first", "run-2"))
        return counted.calls

    few, many = calls(2), calls(60)
    assert few == many
    assert few.count("list") == 1


def test_finding_a_load_changes_nothing() -> None:
    """Wherever the run that landed it died."""
    for died_in in ("record_done", "record_retirement", "record_retired"):
        lab = Lab()
        lab.land(lab.order("task", "run-1"))
        second = lab.order("task", "run-2")
        lab.begin(second)
        if died_in == "record_retired":
            lab.land(lab.order("task", "run-3"))  # which takes the place of the second one
        with (
            mock.patch.object(ledger.Ledger, died_in, side_effect=KeyboardInterrupt),
            pytest.raises(KeyboardInterrupt),
        ):
            lab.land(second)
        storage = lab.dataset.storage
        before = {name: storage.read(name) for name in storage.list("")}
        assert publishing.find(lab.dataset, second.load_id) is not None
        assert {name: storage.read(name) for name in storage.list("")} == before
        assert recovery.recover(lab.dataset, second.load_id) is not None
        assert len(lab.visible) == 1
        assert lab.dataset.ledger.done(second.load_id) is not None
