"""Loads of a simulated service that land in one root in memory, and damage to their records.

All of them belong to slots with a partition value, as those of Airflow and Dagster do, so that landing one of them
retires the older one of its slot.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from fsspec.implementations.memory import MemoryFileSystem
from simulated_service import Content, SimulatedClient, SimulatedService

from weblake.dataset import layout, ledger, records
from weblake.dataset.root import Dataset, open_dataset
from weblake.loads import generations, load, load_request
from weblake.loads.load_request import LoadRequest, Naming, Task, Terms
from weblake.storage import Storage
from weblake.storage.objects import ObjectStorage

TERMS = Terms(timeout_s=60)
NEXT_VERSION = records.VERSION + 1
PLAIN_CREATE = ObjectStorage.create

#: Functions that damage the bytes of a record, by name.
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda whole: whole[: len(whole) // 2],
    "all zeros": lambda whole: b"\0" * len(whole),
    "a newer version": lambda whole: newer(whole),
}


def newer(whole: bytes) -> bytes:
    """Return the record as the next version of weblake would write it."""
    return with_more_fields(json.dumps(json.loads(whole) | {"version": NEXT_VERSION}).encode())


def with_more_fields(whole: bytes) -> bytes:
    """Return the record with fields that this version does not know."""
    return json.dumps(json.loads(whole) | {"shade": {"of": ["blue"]}}).encode()


class Lab:
    """A simulated service and a root, in which tasks of an orchestrator land pages."""

    def __init__(self, *, replay: bool = True) -> None:
        # The roots of earlier tests: all of them are one dictionary, which fsspec searches completely in most calls.
        MemoryFileSystem.store.clear()
        self.world = SimulatedService(lambda urls: Content([page(url) for url in urls]), replay=replay)
        self.dataset = open_dataset(f"memory://{uuid.uuid4().hex}/lake")

    def request(self, task: str, run: str, day: str = "2026-11-21", url: str | None = None) -> LoadRequest:
        request = load_request.batch([url or f"https://site.test/{task}"], Naming(partition={"day": day}))
        return generations.place_generation(request, Task(("airflow", "dag", task, -1), run, "max_tries=1"), 0)

    def land(self, request: LoadRequest) -> None:
        with self.world.clock.installed():
            load.land(SimulatedClient(self.world), self.dataset, request, TERMS)
        self.world.clock.passed += 1

    def begin(self, request: LoadRequest) -> None:
        with self.world.clock.installed():
            load.start_load(SimulatedClient(self.world), self.dataset, request)
        self.world.clock.passed += 1

    def records(self, load_id: str) -> list[str]:
        """Return the names of a load's records, including those filed under its job."""
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


@contextmanager
def newer_weblake(dataset: Dataset) -> Iterator[None]:
    """Act as a worker of the next version, whose records have that version and fields unknown to this one."""
    create = type(dataset.storage).create

    def written(storage: Storage, name: str, data: bytes) -> bool:
        record = name.startswith((f"{layout.LEDGER}/", f"{layout.SLOTS}/"))
        return create(storage, name, with_more_fields(data) if record else data)

    with (
        mock.patch.object(type(dataset.storage), "create", written),
        mock.patch.object(ledger, "VERSION", NEXT_VERSION),
        mock.patch.object(records, "VERSION", NEXT_VERSION),
    ):
        yield


@contextmanager
def this_weblake(dataset: Dataset) -> Iterator[None]:
    """Act as a worker of this version while one of the next version is running."""
    written = type(dataset.storage).create
    with (
        mock.patch.object(type(dataset.storage), "create", PLAIN_CREATE),
        mock.patch.object(ledger, "VERSION", NEXT_VERSION - 1),
        mock.patch.object(records, "VERSION", NEXT_VERSION - 1),
    ):
        yield
    assert type(dataset.storage).create is written
