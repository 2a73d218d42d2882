"""Tests that a load is accounted for by the list of URLs that its job was started with."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from catalogue import proves
from msgspec.structs import replace as replace_fields
from task_lab import CLEAR, RETRY, URLS, TaskLab, task_lab

import weblake
from weblake import Terms, errors
from weblake.dataset import layout
from weblake.dataset.ledger import Ledger
from weblake.dataset.records import StartAttempt
from weblake.loads import load, load_request, sent_lists, starts
from weblake.loads.load_request import LoadRequest, Naming

FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)
KEY = "6f1c2a52-8a57-4f0e-9a3c-5d0a3c6f7b11"
LONGER = [*URLS, "http://pages.test/new"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TaskLab]:
    with task_lab(tmp_path) as lab:
        yield lab


def kept(lab: TaskLab) -> list[str]:
    return lab.dataset.storage.list(layout.SUBMITTED)


@proves(
    "2.9",
    at="src/weblake/loads/load.py",
    line="        reconciler = Reconciler(sent, original.rejected)",
    becomes="        reconciler = Reconciler(request.submitted, original.rejected)",
    case="one more",
)
@pytest.mark.parametrize("later", [LONGER, URLS[:1], ["http://other.test/"]], ids=["one more", "fewer", "others"])
def test_a_load_whose_list_has_changed_lands_the_list_that_was_sent(
    lab: TaskLab, later: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    lab.start(RETRY)
    assert len(kept(lab)) == 1
    lab.urls = later
    with caplog.at_level(logging.WARNING, "weblake.landing"):
        receipt = lab.land(RETRY).receipt
    assert (receipt.submitted, receipt.stored, receipt.missing, lab.started) == (3, 3, 0, 1)
    assert "the list has changed since the job was started; landing what was sent" in caplog.text
    assert kept(lab) == []
    lab.urls = LONGER
    assert lab.land(RETRY).receipt == receipt, "a second run of the same load"
    assert lab.land(CLEAR).receipt.stored == 4, "asked anew, the new list is bought"
    assert (lab.started, kept(lab)) == (2, [])


def test_an_unchanged_list_gives_no_message(lab: TaskLab, caplog: pytest.LogCaptureFixture) -> None:
    lab.start(RETRY)
    lab.land(RETRY)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []


def test_changed_options_are_reported(lab: TaskLab, caplog: pytest.LogCaptureFixture) -> None:
    first = lab.placed(RETRY)
    load.start_load(lab.client, lab.dataset, first)
    other = replace(load_request.batch(URLS, Naming(), formats=["html"]), load_id=first.load_id, slot=first.slot)
    assert load.land(lab.client, lab.dataset, other, FAST_POLLS).receipt.stored == 3
    assert "the request has changed since the job was started; landing what was sent" in caplog.text
    assert lab.started == 1


def other_list(lab: TaskLab, first: LoadRequest, urls: list[str]) -> LoadRequest:
    return replace(load_request.batch(urls, Naming()), load_id=first.load_id, slot=first.slot)


@pytest.mark.parametrize("replays", [True, False])
def test_a_start_without_an_answer_is_resolved_by_the_request_that_was_sent(
    lab: TaskLab, monkeypatch: pytest.MonkeyPatch, replays: bool
) -> None:
    """The first run dies before it has heard of its job, and the next one comes with another list."""
    monkeypatch.setattr(starts, "PROMPT_S", 0.5)
    monkeypatch.setattr(starts, "MARGIN_S", 0.5)
    first = lab.placed(RETRY)
    with (
        mock.patch.object(Ledger, "record_job", side_effect=KeyboardInterrupt),
        mock.patch.object(Ledger, "claim_job", side_effect=lambda kind, job_id, load_id: load_id),
        pytest.raises(KeyboardInterrupt),
    ):
        load.start_load(lab.client, lab.dataset, first)
    if not replays:
        name = f"{layout.LEDGER}/{first.load_id}.json"
        intent = msgspec.json.decode(lab.dataset.storage.read(name) or b"")
        lab.dataset.storage.delete(name)
        lab.dataset.storage.create(name, msgspec.json.encode(intent | {"replay": False}))
        start = f"{layout.LEDGER}/{first.load_id}.start-1.json"
        record = msgspec.json.decode(lab.dataset.storage.read(start) or b"")
        lab.dataset.storage.delete(start)
        lab.dataset.storage.create(start, msgspec.json.encode(record | {"at": "2026-11-21T06:00:00+00:00"}))
    changed = other_list(lab, first, ["http://pages.test/first-of-another", *LONGER])
    receipt = load.land(lab.client, lab.dataset, changed, FAST_POLLS).receipt
    assert (receipt.submitted, receipt.stored, lab.started) == (3, 3, 1)


def test_a_start_with_other_options_is_not_repeated_under_its_key(lab: TaskLab) -> None:
    """The request that was sent cannot be rebuilt, so the activity list decides, also at a service that replays."""
    first = lab.placed(RETRY)
    with (
        mock.patch.object(Ledger, "record_job", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        load.start_load(lab.client, lab.dataset, first)
    other = replace(load_request.batch(URLS, Naming(), formats=["html"]), load_id=first.load_id, slot=first.slot)
    start = lab.dataset.ledger.starts(first.load_id)[0]
    intent = lab.dataset.ledger.intent(first.load_id)
    assert intent is not None
    theirs = replace_fields(start, request_sha256="of the run that sent the start")
    for request, sent, same in ((other, start, False), (first, start, True), (first, theirs, False)):
        starter = starts.JobStarter(request, intent, lab.dataset.ledger, lab.client.retry)
        assert (starter._rebuild(sent) is not None) == same
    starter = starts.JobStarter(other_list(lab, first, LONGER), intent, lab.dataset.ledger, lab.client.retry)
    rebuilt = starter._rebuild(start)
    assert rebuilt is not None
    assert rebuilt.request.body == first.start(KEY).request.body  # type: ignore[misc]


def test_of_two_kept_lists_the_one_that_was_sent_is_used(lab: TaskLab) -> None:
    """Two processes with different lists come to the start at the same moment."""
    first = lab.placed(RETRY)
    second = other_list(lab, first, LONGER)
    real = Ledger.record_start

    def other_first(ledger: Ledger, start: StartAttempt) -> bool:
        if start.urls == sent_lists.digest_of(URLS):
            with mock.patch.object(Ledger, "record_start", real):
                load.start_load(lab.client, lab.dataset, second)
        return real(ledger, start)

    with mock.patch.object(Ledger, "record_start", other_first):
        receipt = load.land(lab.client, lab.dataset, first, FAST_POLLS).receipt
    assert (receipt.submitted, receipt.stored, lab.started) == (4, 4, 1)


def test_a_list_left_by_a_run_that_died_after_landing_is_removed_by_the_next(lab: TaskLab) -> None:
    with mock.patch.object(sent_lists, "drop", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        lab.land(RETRY)
    assert len(kept(lab)) == 1
    lab.land(RETRY)
    assert kept(lab) == []


def test_a_list_that_another_process_removes_when_it_lands_is_no_failure(lab: TaskLab) -> None:
    request = lab.placed(RETRY)
    load_id = request.load_id
    load.start_load(lab.client, lab.dataset, request)
    begin, others = load.start_load, list[object]()

    def other_lands(*args: Any, **more: Any) -> Any:
        found = begin(*args, **more)
        if not others:
            others.append(None)
            others.append(load.collect(lab.client, lab.dataset, load_id, FAST_POLLS))
        return found

    with mock.patch.object(load, "start_load", other_lands):
        mine = load.collect(lab.client, lab.dataset, load_id, FAST_POLLS)
    assert (mine.receipt.stored, lab.started, kept(lab)) == (3, 1, [])


def test_a_job_landed_by_its_id_is_accounted_for_by_the_list_of_the_load_that_started_it(lab: TaskLab) -> None:
    request = load_request.batch([*URLS, "ftp://pages.test/no"], Naming())
    _, job, _ = load.start_load(lab.client, lab.dataset, request)
    receipt = weblake.land("batch", job.job_id, to=lab.root, client=lab.client, terms=FAST_POLLS)
    assert (receipt.submitted, receipt.stored) == (4, 3)


def test_a_long_list_is_kept_small(lab: TaskLab) -> None:
    urls = [f"https://site.test/page/{n}" for n in range(100_000)]
    digest = sent_lists.keep(lab.dataset.storage, "0" * 16, urls)
    assert sent_lists.read(lab.dataset.storage, "0" * 16, digest) == tuple(urls)
    assert lab.dataset.storage.find_size(kept(lab)[0]) < 1_000_000


def test_a_crawl_and_a_single_page_keep_no_list(lab: TaskLab) -> None:
    load.start_load(lab.client, lab.dataset, load_request.crawl("http://pages.test/", Naming(), limit=1))
    load.start_load(lab.client, lab.dataset, load_request.scrape("http://pages.test/", Naming()))
    assert kept(lab) == []


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_a_job_whose_list_is_gone_or_damaged_lands_by_its_id(
    lab: TaskLab, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The remedy of the error."""
    job = lab.start(RETRY)
    (name,) = kept(lab)
    lab.dataset.storage.delete(name)
    if damage == "damaged":
        lab.dataset.storage.create(name, b"{")
    lab.urls = LONGER
    with pytest.raises(errors.StorageRefused, match=r"by its id, with weblake\.land"):
        lab.land(RETRY)
    receipt = weblake.land("batch", job.job_id, to=lab.root, client=lab.client, terms=FAST_POLLS)
    assert (receipt.stored, receipt.complete, lab.started) == (3, True, 1)
    assert "The job is accounted for by what the service attempted." in caplog.text
    assert (lab.land(RETRY).receipt, lab.started) == (receipt, 1), "the task returns the load"


@pytest.mark.parametrize("dies_in", ["record_start", "keep"])
def test_a_run_that_died_before_its_start_leaves_no_list(lab: TaskLab, dies_in: str) -> None:
    """The next one comes with another list, starts the job, and lands: nothing of the first one is left."""
    where = Ledger if dies_in == "record_start" else sent_lists
    with mock.patch.object(where, dies_in, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        lab.land(RETRY)
    assert len(kept(lab)) == (dies_in == "record_start")
    lab.urls = LONGER
    receipt = lab.land(RETRY).receipt
    assert (receipt.submitted, receipt.stored, lab.started) == (4, 4, 1)
    assert kept(lab) == []
