"""Tests of a load that one process starts and another one lands, with the list that was sent on record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from catalogue import proves
from landing_lab import LandingLab, landing_lab

from weblake import Terms, errors
from weblake.api import operations
from weblake.api.operation import Operation
from weblake.dataset import layout
from weblake.loads import load, load_request
from weblake.loads.load_request import LoadRequest, Naming

URLS = [f"http://pages.test/{n}" for n in range(4)]
FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)


class Lab(LandingLab):
    def batch(self, urls: list[str], key: str = "a") -> LoadRequest:
        return load_request.batch(urls, Naming(key=key))

    def named(self, urls: list[str], load_id: str) -> LoadRequest:
        request = self.batch(urls)
        return LoadRequest(**{name: getattr(request, name) for name in LoadRequest.__slots__} | {"load_id": load_id})

    @property
    def started(self) -> int:
        return self.service.counts().get("batch_scrape_started", 0)

    def kept(self) -> list[str]:
        return self.dataset.storage.list(layout.SUBMITTED)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with landing_lab(Lab, tmp_path / "lake") as made:
        yield made


def test_a_detached_load_has_the_list_that_was_sent(lab: Lab) -> None:
    request = lab.batch([*URLS, URLS[0], "ftp://pages.test/no"])
    intent, job, _ = load.start_load(lab.client, lab.dataset, request)
    assert (intent.load_id, job.load_id, len(lab.kept())) == (request.load_id, request.load_id, 1)
    receipt = load.collect(lab.client, lab.dataset, request.load_id, FAST_POLLS).receipt
    assert (receipt.submitted, receipt.stored, receipt.rejected, receipt.duplicates) == (6, 4, 1, 1)
    assert lab.kept() == []
    again = load.collect(lab.client, lab.dataset, request.load_id, FAST_POLLS)
    assert again.receipt == receipt
    assert again.landed_at is not None
    assert lab.started == 1


def test_a_url_that_stands_several_times_in_a_list_is_bought_once(lab: Lab) -> None:
    """Exact repetitions count as duplicates, also of pages that failed; another spelling is another page."""
    listed = [URLS[0], *URLS, URLS[0], URLS[1], f"{URLS[0]}#part", "ftp://pages.test/no", "ftp://pages.test/no"]
    request = lab.batch(listed)
    receipt = load.land(lab.client, lab.dataset, request, FAST_POLLS).receipt
    sent = len(set(listed))
    assert (receipt.submitted, receipt.rejected, receipt.complete) == (len(listed), 1, True)
    assert receipt.stored + receipt.failed + receipt.rejected + receipt.duplicates == len(listed)
    assert receipt.duplicates >= len(listed) - sent
    assert lab.service.counts()["pages_billed"] <= sent - 1
    assert (request.pages, request.load_id) == (sent, lab.batch(list(dict.fromkeys(listed))).load_id)
    assert load.land(lab.client, lab.dataset, lab.batch(listed), FAST_POLLS).receipt == receipt
    assert lab.started == 1


@proves(
    "3.6",
    at="src/weblake/loads/sent_lists.py",
    line="    return read(dataset.storage, job.load_id, job.urls)",
    becomes="    return urls",
)
def test_a_repeated_detached_start_returns_the_same_job_and_list(lab: Lab) -> None:
    first = lab.batch(URLS)
    _, job, _ = load.start_load(lab.client, lab.dataset, first)
    other = lab.named(URLS[:1], first.load_id)
    assert load.start_load(lab.client, lab.dataset, other)[1].job_id == job.job_id
    assert load.land(lab.client, lab.dataset, other, FAST_POLLS).receipt.submitted == len(URLS)


def test_a_list_whose_start_was_refused_gives_way_to_the_next(lab: Lab) -> None:
    first = lab.batch(URLS)
    lab.service.faults({"match": {"method": "POST"}, "effect": {"status": 402}})
    with pytest.raises(errors.CreditsExhausted):
        load.start_load(lab.client, lab.dataset, first)
    load.start_load(lab.client, lab.dataset, lab.named(URLS[:2], first.load_id))
    assert load.collect(lab.client, lab.dataset, first.load_id, FAST_POLLS).receipt.submitted == 2


def test_missing_pages_of_a_detached_load_are_determined_from_its_list(lab: Lab) -> None:
    request = lab.batch([*URLS, "http://pages.test/lost"])

    def loses_a_page(key: str) -> Operation[object]:
        """The start as a service takes it that loses a page: one more was sent than it knows of."""
        return load_request.with_key(operations.start_batch_scrape(URLS), key)

    load.start_load(lab.client, lab.dataset, replace(request, start=loses_a_page))
    with pytest.raises(errors.LoadIncomplete, match=r"1 of 5 pages are missing: http://pages\.test/lost"):
        load.collect(lab.client, lab.dataset, request.load_id, FAST_POLLS)
    assert len(lab.kept()) == 1  # for the one who allows it
    partial = Terms(allow_partial=True)
    assert load.collect(lab.client, lab.dataset, request.load_id, partial).receipt.missing == 1
    assert lab.kept() == []


@proves(
    "3.6",
    at="src/weblake/loads/sent_lists.py",
    line='layout.submitted_path(load_id, digest), "gone"',
    becomes='layout.submitted_path(load_id, digest), "damaged"',
    case="gone",
)
@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_the_error_names_a_list_that_is_gone_or_damaged(lab: Lab, damage: str) -> None:
    request = lab.batch(URLS)
    load.start_load(lab.client, lab.dataset, request)
    (name,) = lab.kept()
    path = lab.root / name
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(errors.StorageRefused, match=f"is {damage}") as caught:
        load.collect(lab.client, lab.dataset, request.load_id, FAST_POLLS)
    assert "weblake.land" in caught.value.hint


def test_a_load_that_was_never_started_cannot_be_collected(lab: Lab) -> None:
    with pytest.raises(errors.AskPerson, match="has no record") as caught:
        load.collect(lab.client, lab.dataset, "0" * 16, FAST_POLLS)
    assert caught.value.hint == (
        "Give the root that it was started in. If its record is lost, land its job by its id, with weblake.land; "
        "starting it again is paid again."
    )
