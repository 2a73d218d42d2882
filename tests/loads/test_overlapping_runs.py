"""Tests of overlapping runs and tries of one task: rows O5 and O6 of the fault catalogue."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from catalogue import proves
from task_lab import CLEAR, RETRY, URLS, TaskLab, task_lab

from weblake import Client, Terms
from weblake.dataset import root
from weblake.dataset.root import open_dataset
from weblake.loads import load

#: The other run, what made it ask, its path keys and those of the first; how many are bought, and how many stay.
DAY, NEXT_DAY = {"day": "2026-11-20"}, {"day": "2026-11-21"}
OVERLAPS: dict[str, tuple[str, str, Mapping[str, str] | None, Mapping[str, str] | None, int, int]] = {
    "a backfill of the same day": ("backfill__1", RETRY, DAY, DAY, 2, 1),
    "a person who triggers the same day": ("manual__1", RETRY, DAY, DAY, 2, 1),
    "a backfill of another day": ("backfill__1", RETRY, DAY, NEXT_DAY, 2, 2),
    "a backfill without path keys": ("backfill__1", RETRY, None, None, 2, 2),
    "a backfill that takes the scheduled run again": ("scheduled__1", CLEAR, None, None, 2, 1),
    "a retry of the scheduled run": ("scheduled__1", RETRY, DAY, DAY, 1, 1),
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        yield lab


@pytest.mark.parametrize("name", OVERLAPS)
@proves(
    "O6",
    at="src/weblake/loads/load_request.py",
    line='return load_id_of("task", *self._whole(), self.run, generation)',
    becomes='return load_id_of("task", *self._whole(), generation)',
    case="a backfill of another day",
)
@proves(
    "O6",
    at="src/weblake/dataset/slots.py",
    line="return self.slot_has_partition and",
    becomes="return False and",
    case="a backfill of the same day",
)
def test_o6_a_backfill_that_overlaps_a_scheduled_run(lab: TaskLab, name: str) -> None:
    """Both have been started before either lands, and the one that began first is over last."""
    run, occasion, keys, other_keys, bought, stay = OVERLAPS[name]
    lab.run, lab.keys = "scheduled__1", keys
    first = lab.placed(RETRY)
    load.start_load(lab.client, lab.dataset, first)
    if occasion == CLEAR:
        load.land(lab.client, lab.dataset, first)  # Airflow takes a run again when it has ended
    lab.run, lab.keys = run, other_keys
    second = lab.placed(occasion)
    load.start_load(lab.client, lab.dataset, second)
    receipts = {load.land(lab.client, lab.dataset, request, Terms(poll_s=0.2)).receipt for request in (second, first)}
    assert (lab.started, len(receipts)) == (bought, bought)
    assert len(lab.visible) == stay
    assert second.load_id in lab.visible, "what was asked for last is there"


@proves(
    "O5",
    at="src/weblake/loads/load_request.py",
    line='return load_id_of("task", *self._whole(), self.run, generation)',
    becomes='return load_id_of("task", *self._whole(), self.run, generation, id(self))',
)
def test_o5_two_concurrent_tries_of_one_task_pay_once(lab: TaskLab) -> None:
    """A worker that nobody hears of any more, and the one that was started in its place, at the same moment."""
    lab.service.faults({"match": {"method": "POST"}, "times": None, "effect": {"latency_ms": 300}})
    together, landed = threading.Barrier(2), list[root.LandedLoad]()

    def one_try() -> None:
        with Client(lab.service.url, lab.service.key) as client:
            mine = replace(lab, client=client, dataset=open_dataset(lab.root))
            together.wait(20)
            landed.append(mine.land(RETRY))

    tries = [threading.Thread(target=one_try) for _ in range(2)]
    for each in tries:
        each.start()
    for each in tries:
        each.join(60)
    assert [each.receipt.stored for each in landed] == [len(URLS)] * 2
    assert landed[0].receipt == landed[1].receipt
    assert (lab.started, len(lab.visible)) == (1, 1)
