"""Tests of a root that fails after its load was paid for: the remedy to choose another root must not be paid again."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from landing_lab import LandingLab, landing_lab

import weblake
from weblake import Terms
from weblake.dataset.ledger import Ledger
from weblake.errors import StorageRefused
from weblake.loads import intents, load, load_request
from weblake.loads.load_request import LoadRequest, Naming
from weblake.storage.rules import refusal

URLS = [f"http://pages.test/{n}" for n in range(3)]
FAST_POLLS = Terms(poll_s=0.1, timeout_s=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LandingLab]:
    with landing_lab(LandingLab, tmp_path / "lake") as made:
        yield made


def refuse(*args: object, **more: object) -> Any:
    raise refusal(OSError(errno.EROFS, os.strerror(errno.EROFS)), "write a file", "/lake")


def test_a_paid_job_lands_in_another_root_by_its_id(
    lab: LandingLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weblake.loads.publishing.publish", refuse)
    with pytest.raises(StorageRefused) as caught:
        weblake.land_batch(URLS, to=lab.root, client=lab.client, terms=FAST_POLLS)
    monkeypatch.undo()
    assert caught.value.receipt is not None
    job_id = str(caught.value.receipt.job_id)
    assert caught.value.hint == (
        "It is mounted read-only: choose another root, or have it mounted for writing. "
        f"Job {job_id} is paid for: to use another root, land it there by its id, with weblake.land."
    )
    receipt = weblake.land("batch", job_id, to=tmp_path / "other", client=lab.client, terms=FAST_POLLS)
    assert (receipt.stored, lab.service.counts()["batch_scrape_started"]) == (3, 1)


@pytest.mark.parametrize(
    ("request_", "step", "words"),
    [
        (load_request.batch(URLS, Naming()), "record_job", "in another root, the same request is paid again"),
        (load_request.scrape(URLS[0], Naming()), "record_job", "in another root, the same request is paid again"),
        (load_request.batch(URLS, Naming()), "record_start", ""),
    ],
)
def test_a_start_that_is_not_on_record_may_be_paid_for(
    lab: LandingLab, monkeypatch: pytest.MonkeyPatch, request_: LoadRequest, step: str, words: str
) -> None:
    monkeypatch.setattr(Ledger, step, refuse)
    for run in (intents.start_load, load.land):
        with pytest.raises(StorageRefused) as caught:
            run(lab.client, lab.dataset, request_)  # type: ignore[operator]
        assert caught.value.hint.count("paid") == bool(words) * 2
        assert words in caught.value.hint
