"""Tests of the number of requests to an object store that one landing sends, with a newly opened dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiobotocore.client import AioBaseClient
from task_lab import RETRY, TaskLab, task_lab

from weblake import Terms, orchestration
from weblake.dataset.root import open_dataset
from weblake.loads import load

MOST_REQUESTS = 44
FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        yield lab


def at_once(lab: TaskLab) -> None:
    load.land(lab.client, lab.dataset, lab.placed(RETRY, FAST_POLLS), FAST_POLLS)


def as_an_integration_does(lab: TaskLab) -> None:
    """The calls of an operator, and of an asset: the job is started and told of before it is waited for."""
    request = lab.placed(RETRY, FAST_POLLS)
    assert orchestration.find_landed(lab.dataset, request, FAST_POLLS) is None
    started_load = orchestration.start_load(lab.client, lab.dataset, request)
    orchestration.land(lab.client, lab.dataset, request, FAST_POLLS, started_load=started_load)


@pytest.mark.system
@pytest.mark.parametrize("way", [at_once, as_an_integration_does])
def test_a_landing_that_replaces_a_load_sends_few_requests(
    lab: TaskLab, s3_root: str, monkeypatch: pytest.MonkeyPatch, way: Callable[[TaskLab], None]
) -> None:
    sent: list[str] = []
    real = AioBaseClient._make_api_call

    async def counted(client: Any, operation: str, *args: Any) -> Any:
        sent.append(operation)
        return await real(client, operation, *args)

    monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)
    lab.keys = {"day": "2026-11-21"}

    def land(run: str, root: str) -> None:
        sent.clear()
        lab.run, lab.dataset = run, open_dataset(root)
        way(lab)

    def sent_few() -> None:
        assert 20 < len(sent) <= MOST_REQUESTS, sorted(sent)
        assert sent.count("ListObjectsV2") == 1, "of the loads that may replace each other"
        assert len(lab.dataset.storage.list("documents")) == 1

    for run in ("run-1", "run-2", "run-3"):
        land(run, s3_root)
    sent_few()
