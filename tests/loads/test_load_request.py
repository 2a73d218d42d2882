"""Tests of the possible cost of a load request, before anything is sent."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from weblake.loads import load_request
from weblake.loads.load_request import Naming, Terms


@pytest.mark.parametrize(
    ("given", "price"),
    [
        ({}, 1),
        ({"zero_data_retention": True}, 2),
        ({"zero_data_retention": False}, 1),
        ({"scrape_options": {"formats": ["markdown"], "proxy": "enhanced"}}, 5),
        ({"scrape_options": {"formats": [{"type": "json", "prompt": "The title."}]}, "zero_data_retention": True}, 6),
    ],
)
@pytest.mark.parametrize("credits", [2, 5, 10, 10_000])
def test_a_crawl_asks_for_no_more_pages_than_its_credits_pay_for(
    given: dict[str, Any], price: int, credits: int
) -> None:
    request = load_request.crawl("http://pages.test/", Naming(), Terms(max_credits=credits), **given)
    assert request.price == price
    body = json.loads(request.start(str(uuid.uuid4())).request.body or b"{}")
    assert body.get("limit", load_request.CRAWL_LIMIT) == max(1, credits // price)
