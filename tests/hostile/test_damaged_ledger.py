"""A damaged ledger record, at any step of a load, starts no job and is not treated as absent."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from catalogue import proves
from scripted_job import url_of
from simulated_service import Content, SimulatedClient, SimulatedService

from weblake.dataset.root import Dataset, open_dataset
from weblake.errors import StorageRefused
from weblake.loads import load, load_request
from weblake.loads.load_request import LoadRequest, Naming, Terms

URL = url_of(0)
STEPS = ["", ".start-1", ".job", ".done"]

#: Functions that damage the bytes of a record, by name.
DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "cut off": lambda whole, at: whole[:at],
    "a hole": lambda whole, at: b"\0" * at + whole[at:],
    "all zeros": lambda whole, at: b"\0" * len(whole),
    "another version": lambda whole, at: json.dumps(json.loads(whole) | {"version": at + 2}).encode(),
    "of another load": lambda whole, at: json.dumps(json.loads(whole) | {"load_id": f"{at:016x}"}).encode(),
}


def load_at_step(step: str) -> tuple[SimulatedService, Dataset, LoadRequest]:
    """Return a simulated service and a root in which a load has reached this step."""
    content = Content([{"markdown": "x", "metadata": {"sourceURL": URL}}])
    world = SimulatedService(lambda urls: content, replay=True)
    dataset = open_dataset(f"memory://{uuid.uuid4().hex}/lake")
    request = load_request.batch([URL], Naming())
    with world.clock.installed():
        if step == ".done":
            load.land(SimulatedClient(world), dataset, request, Terms(timeout_s=60))
        else:
            load.start_load(SimulatedClient(world), dataset, request)
    if step == ".start-1":  # as left by a worker that dies before the job's id is recorded
        dataset.storage.delete(f"_weblake/ledger/{request.load_id}.job.json")
    return world, dataset, request


def damage(dataset: Dataset, name: str, made: Callable[[bytes], bytes]) -> bytes:
    whole = dataset.storage.read(name)
    assert whole is not None
    damaged = made(whole)
    dataset.storage.delete(name)
    assert dataset.storage.create(name, damaged)
    return damaged


@proves(
    "P13",
    at="src/weblake/dataset/ledger.py",
    line='            raise self._unknown(name, "it is damaged") from error',
    becomes="            return None",
    case="-cut off",
)
@proves(
    "P13",
    at="src/weblake/dataset/ledger.py",
    line='            raise self._unknown(name, f"it has version {version}, which this weblake does not know")',
    becomes="            return None",
    case=".job-another version",
)
@proves(
    "P13",
    at="src/weblake/dataset/ledger.py",
    line="        if record.load_id != load_id:",
    becomes="        if False:",
    case=".job-of another load",
)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("step", STEPS)
def test_p13_a_damaged_record_starts_no_job(step: str, kind: str) -> None:
    _check_no_second_start(step, lambda whole: DAMAGES[kind](whole, len(whole) // 2))


def _check_no_second_start(step: str, made: Callable[[bytes], bytes]) -> None:
    world, dataset, request = load_at_step(step)
    name = f"_weblake/ledger/{request.load_id}{step}.json"
    damaged, asked = damage(dataset, name, made), world.sent
    for _ in range(2):
        with world.clock.installed(), pytest.raises(StorageRefused, match="cannot be read") as caught:
            load.land(SimulatedClient(world), dataset, request, Terms(timeout_s=60))
        assert name in caught.value.message
        assert caught.value.hint
    assert (len(world.jobs), world.sent) == (1, asked), "a request was sent before the record was read"
    assert dataset.storage.read(name) == damaged, "the damaged record is gone"
