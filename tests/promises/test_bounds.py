"""The bounds of time, tries, sizes and prices, as numbers: other tests use the constants or shorten them.

A change of one of them changes what the documentation says: promise.md, limits and errors of the pages, the contract.
"""

from __future__ import annotations

import importlib

import pytest

from weblake.jobs.retry import SINGLE, RetryBudget, RetryPolicy

MB = 1 << 20

BOUNDS: dict[str, dict[str, object]] = {
    "api.next_link": {"MAX_LINK_CHARS": 4096},
    "api.operation": {
        "START_DEADLINE_S": 30.0,
        "READ_DEADLINE_S": 120.0,
        "DEADLINE_MARGIN_S": 30.0,
        "DEFAULT_PAGE_MS": 60_000,
        "DEFAULT_CODE_S": 30.0,
    },
    "api.options.rules": {"DEFAULT_TIMEOUT_MS": 60_000},
    "api.options.values": {"MAX_FILE_BYTES": 50 * MB, "MAX_DEPTH": 100},
    "dataset.layout": {"MAX_VALUE": 200, "MAX_SEGMENT": 255},
    "embedded": {"FIND_TIMEOUT_S": 10.0},
    "http.transport": {"CONNECT_S": 10.0, "CONNECT_SHARE": 0.9, "MAX_POLLS": 64, "MAX_OTHERS": 100},
    "jobs.ended_jobs": {
        "PARALLEL_POLLS": 8,
        "ROUND_TRIES": 5,
        "GONE_POLLS": 3,
        "GONE_S": 30.0,
        "WINDOW_MS": 90_000_000,
    },
    "jobs.polling": {"UNSEEN_S": 10.0, "UNSEEN_TRIES": 8, "SEEN_TRIES": 20, "MAX_KEPT_BYTES": 32 * MB},
    "jobs.result_pages": {"MAX_CHUNK": 256 * MB, "MAX_STALE": 200, "MAX_CHUNKS": 100_000},
    "jobs.retry": {
        "MALFORMED_TRIES": 3,
        "MEAN_PAUSE_S": 10.0,
        "FIRST_PAUSE_S": 0.05,
        "PAUSE_GROWTH": 1.25,
        "LAST_PAUSE_S": 10.0,
    },
    "jobs.usage_reports": {"MAX_PAGES": 1000, "LISTING_S": 900.0},
    "loads.accounting": {"MAX_NAMELESS": 100_000},
    "loads.load": {"JUST_STARTED_S": 10.0, "ELSEWHERE_S": 3.0, "GRACE_S": 900.0},
    "loads.load_request": {"CRAWL_LIMIT": 10_000},
    "loads.lost_starts": {
        "CLOCK_SLACK_S": 2.0,
        "WINDOW_S": 23.5 * 3600,
        "MAX_ACTIVITY_PAGES": 500,
        "LISTING_S": 900.0,
    },
    "loads.prices": {
        "PAGE": 1.0,
        "JSON_EXTRACTION": 4.0,
        "ZERO_DATA_RETENTION": 1.0,
        "PROXY_ENHANCED": 5.0,
        "LOCKDOWN_HIT": 5.0,
    },
    "loads.starts": {
        "PROMPT_S": 5.0,
        "MARGIN_S": 5.0,
        "CLOCKS_S": 3600.0,
        "BETWEEN_S": 2.0,
        "MAX_STARTS": 20,
        "REPEATS": 6,
        # KEEP_STARTS_S and KEEP_SCRAPES_S of weblake_service, less an hour
        "REPLAYED_S": 2_588_400.0,
        "REPLAYED_PAGE_S": 82_800.0,
    },
    "loads.usage": {"ROUNDS": 50},
    "steps": {"MAX_BODY": 64 * MB},
    "storage.local": {"PATH_MAX": 4096},
    "storage.objects": {"TRIES": 3, "PART": 16 * MB, "PARALLEL": 4, "KEY_BYTES": 1024},
    "storage.scratch": {"ABANDONED_S": 24 * 3600.0},
    "tables.synchronization": {
        **{"TRIES": 30, "UNCHANGED_TRIES": 8, "PAUSE_S": 2.0},
        **{"LOADS_PER_COMMIT": 1000, "BYTES_PER_COMMIT": 64 * MB},
    },
    "urls.shards": {"DEFAULT_PER_SHARD": 5000, "MAX_SHARDS": 1024},
}


@pytest.mark.parametrize("module", BOUNDS)
def test_bounds_are_as_documented(module: str) -> None:
    found = importlib.import_module(f"weblake.{module}")
    assert {name: getattr(found, name) for name in BOUNDS[module]} == BOUNDS[module]


def test_a_call_waits_for_a_minute_and_an_outage_takes_a_hundred_retries() -> None:
    assert RetryPolicy(tries=15, wait_s=60.0, cap_s=20.0, timeouts=3, until=None) == SINGLE
    budget = RetryBudget()
    assert [budget.take() for _ in range(101)] == [True] * 100 + [False]
    for _ in range(5):
        budget.give()
    assert [budget.take(), budget.take()] == [True, False]
