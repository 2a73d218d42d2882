"""The bounds that docs/development/promises.md states as numbers: other tests use the constants or shorten them."""

from __future__ import annotations

import importlib

import pytest

BOUNDS: dict[str, dict[str, object]] = {
    "api.operation": {"START_DEADLINE_S": 30.0},
    "jobs.result_pages": {"MAX_STALE": 200, "MAX_CHUNKS": 100_000},
    "jobs.usage_reports": {"LISTING_S": 900.0},
    "loads.load": {"GRACE_S": 900.0},
    # A little less than the 24 hours of the service's activity list.
    "loads.lost_starts": {"WINDOW_S": 23.5 * 3600},
    # REPLAYED_S is KEEP_STARTS_S of weblake_service less an hour, and REPLAYED_PAGE_S is KEEP_SCRAPES_S less an hour.
    "loads.starts": {"PROMPT_S": 5.0, "MARGIN_S": 5.0, "REPLAYED_S": 2_588_400.0, "REPLAYED_PAGE_S": 82_800.0},
}


@pytest.mark.parametrize("module", BOUNDS)
def test_bounds_are_as_documented(module: str) -> None:
    found = importlib.import_module(f"weblake.{module}")
    assert {name: getattr(found, name) for name in BOUNDS[module]} == BOUNDS[module]
