"""The pytest plugin as a user would use it."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from weblake.errors import JobGone, ServiceUnavailable

SITE = "http://127.0.0.1:9/closed"


def ended(client: Any, job: str) -> Any:
    deadline = time.monotonic() + 90
    while (status := client.get_batch_scrape(job)).status == "scraping":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return status


def test_a_client_uses_the_service_fixture(weblake_service: Any) -> None:
    with weblake_service.client() as client:
        job = client.start_batch_scrape([SITE]).id
        assert ended(client, job).total == 1
        assert client.get_batch_scrape_errors(job).errors[0].url == SITE
        weblake_service.advance(25 * 3600)
        with pytest.raises(JobGone):
            client.get_batch_scrape(job)
    assert weblake_service.counts() == {"batch_scrape_started": 1}
    assert weblake_service.requests()[0]["path"] == "/v2/batch/scrape"


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_starts_with_an_empty_service(weblake_service: Any, turn: int) -> None:
    assert weblake_service.requests() == []
    assert weblake_service.counts() == {}
    with weblake_service.client() as client:
        client.start_batch_scrape([SITE])
        weblake_service.faults({"times": None, "effect": {"status": 503, "body": {"success": False, "error": "no"}}})
    assert weblake_service.counts() == {"batch_scrape_started": 1}


def test_faults_reach_the_client(weblake_service: Any) -> None:
    weblake_service.faults({"times": None, "effect": {"status": 503, "body": {"success": False, "error": "no"}}})
    from weblake.client import Client
    from weblake.jobs.retry import RetryPolicy

    environment = weblake_service.environment()
    once = RetryPolicy(tries=1)
    with (
        Client(environment["WEBLAKE_BASE_URL"], environment["WEBLAKE_API_KEY"], retry_policy=once) as client,
        pytest.raises(ServiceUnavailable),
    ):
        client.list_active_crawls()
    weblake_service.faults()
    with weblake_service.client() as client:
        assert client.list_active_crawls().crawls == []


def test_importing_the_plugin_imports_only_weblake() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import weblake.testing;"
        "print(sorted(m for m in set(sys.modules) - before if not m.startswith('weblake')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
