"""Tests of the warning before a crawl without a limit: given once, with the possible cost, before the start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from landing_lab import LandingLab, landing_lab

import weblake
from weblake import Client, Terms
from weblake.errors import CreditsExhausted, WeblakeError
from weblake.events import Event, LoadMessage
from weblake.jobs.retry import observing
from weblake.loads import load, load_request
from weblake.loads.intents import find_possible_cost
from weblake.loads.load_request import LoadRequest, Naming

SITE = "http://pages.test/"
FAST_POLLS = Terms(poll_s=0.2, timeout_s=60)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LandingLab]:
    with landing_lab(LandingLab, f"memory://costs-{tmp_path.name}") as made:
        yield made


def crawl(terms: Terms = FAST_POLLS, **given: object) -> LoadRequest:
    return load_request.crawl(SITE, Naming(), terms, **given)  # type: ignore[arg-type]


def test_only_a_crawl_that_nothing_limits_has_a_possible_cost(lab: LandingLab) -> None:
    found = find_possible_cost(lab.client, lab.dataset, crawl())
    assert found is not None
    assert "reach 10,000 pages and cost up to 10,000 credits" in found
    dear = crawl(scrape_options={"formats": [{"type": "json", "prompt": "The title."}]})
    found = find_possible_cost(lab.client, lab.dataset, dear)
    assert found is not None
    assert "reach 10,000 pages and cost up to 50,000 credits" in found
    limited = (crawl(limit=20_000), crawl(Terms(max_credits=20_000)), load_request.batch([SITE], Naming()))
    assert {find_possible_cost(lab.client, lab.dataset, request) for request in limited} == {None}


@pytest.mark.parametrize(("options", "reached"), [({"limit": 3}, True), ({"limit": 4}, False), ({}, False)])
@pytest.mark.parametrize("detached", [False, True])
def test_a_receipt_says_that_a_crawl_has_reached_its_limit(
    lab: LandingLab, options: dict[str, int], *, reached: bool, detached: bool
) -> None:
    """A page that robots.txt keeps from being fetched is not counted by the limit."""
    found = [f"{SITE}{name}" for name in ("blocked", "a", "b", *(["c"] if reached else []))]
    lab.web.links[SITE], lab.web.blocked = found, {found[0]}
    if detached:  # as tasks do that only know the load: the limit is on record
        request = load_request.crawl(SITE, Naming(), FAST_POLLS, **options)  # type: ignore[arg-type]
        _, job, _ = load.start_load(lab.client, lab.dataset, request)
        request = replace(request, start=None, job_id=job.job_id, page_limit=None)
        receipt = load.land(lab.client, lab.dataset, request, FAST_POLLS).receipt
    else:
        receipt = weblake.land_crawl(SITE, to=lab.root, client=lab.client, terms=FAST_POLLS, **options)  # type: ignore[arg-type]
    assert (receipt.complete, receipt.stored, receipt.robots_blocked) == (True, 3, 1)
    assert (receipt.limit_reached, receipt.to_dict()["limit_reached"]) == (reached, reached)


def test_the_embedded_service_costs_nothing(lab: LandingLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "service", property(lambda self: "embedded"))
    assert find_possible_cost(lab.client, lab.dataset, crawl()) is None


def test_an_unlimited_crawl_warns_before_its_start_and_not_after_it(
    lab: LandingLab, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[tuple[str, int]] = []

    def noted(event: Event) -> None:
        if isinstance(event, LoadMessage):
            said.append((event.text, sum(request["method"] == "POST" for request in lab.service.requests())))

    with observing(lab.client, noted):
        load.start_load(lab.client, lab.dataset, crawl())
    caplog.clear()
    ((message, starts),) = said
    assert "up to 10,000 credits. Give a `limit`, or `max_credits`." in message
    assert starts == 0
    for _ in range(2):  # a job that was started, and a load that has landed
        weblake.land_crawl(SITE, to=lab.root, client=lab.client, terms=FAST_POLLS)
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []
    weblake.land_crawl(SITE, to=lab.root, client=lab.client, terms=FAST_POLLS, key="another")
    assert "up to 10,000 credits" in caplog.text


def test_a_crawl_with_a_void_start_warns_again(lab: LandingLab, caplog: pytest.LogCaptureFixture) -> None:
    lab.service.faults({"match": {"method": "POST"}, "effect": {"status": 402}})
    with pytest.raises(WeblakeError):
        load.start_load(lab.client, lab.dataset, crawl())
    load.start_load(lab.client, lab.dataset, crawl())
    assert caplog.text.count("up to 10,000 credits") == 2


def test_a_load_whose_start_was_refused_is_not_started_for_more_than_a_new_limit(lab: LandingLab) -> None:
    request = load_request.batch([SITE, f"{SITE}2"], Naming())
    lab.service.faults({"match": {"method": "POST"}, "effect": {"status": 402}})
    for limit in (2, 1):  # the first start is refused by the service, the second one by the limit
        with pytest.raises(CreditsExhausted):
            load.start_load(lab.client, lab.dataset, request, max_credits=limit)
    assert lab.service.counts().get("batch_scrape_started", 0) == 0
    load.start_load(lab.client, lab.dataset, request, max_credits=2)
    load.start_load(lab.client, lab.dataset, request, max_credits=1)  # it is paid already
    assert lab.service.counts()["batch_scrape_started"] == 1
