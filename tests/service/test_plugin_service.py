"""The fixtures of the pytest plugin: the service, in this process and in a separate one, and the webhook receiver."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from supervised_processes import is_alive

import weblake
from weblake.errors import CreditsExhausted
from weblake.testing import (
    WeblakeFaults,
    WeblakeService,
    WeblakeServiceProcess,
    WeblakeSite,
)

HOUR = 3600


def ended(client: weblake.Client, job: str) -> Any:
    deadline = time.monotonic() + 90
    while (status := client.get_batch_scrape(job)).status == "scraping":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return status


@pytest.mark.smoke
def test_an_asynchronous_client_uses_the_service(weblake_service: WeblakeService, weblake_site: WeblakeSite) -> None:
    async def main() -> int | None:
        async with weblake_service.async_client() as client:
            job = (await client.start_batch_scrape(weblake_site.urls("/guides/"))).id
            async with asyncio.timeout(90):
                while (status := await client.get_batch_scrape(job)).status == "scraping":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        return status.completed

    assert asyncio.run(main()) == 5


def test_the_environment_variables_name_the_service(
    weblake_environment: dict[str, str], weblake_service: WeblakeService, weblake_site: WeblakeSite, tmp_path: Path
) -> None:
    assert os.environ["WEBLAKE_BASE_URL"] == weblake_service.url == weblake_environment["WEBLAKE_BASE_URL"]
    assert weblake.land_batch(weblake_site.urls("/about"), to=tmp_path).stored == 1
    assert weblake_service.counts()["pages_billed"] == 1


@pytest.mark.weblake_service(plan_credits=3)
def test_a_marker_sets_limits(weblake_service: WeblakeService, weblake_site: WeblakeSite) -> None:
    client = weblake_service.client()
    with pytest.raises(CreditsExhausted):
        client.start_batch_scrape(weblake_site.urls())
    assert ended(client, client.start_batch_scrape(weblake_site.urls("/about")).id).completed == 1


def test_the_clock_is_advanced_and_reset(weblake_service: WeblakeService) -> None:
    begun = weblake_service.now()
    assert weblake_service.advance(24 * HOUR) - begun >= timedelta(days=1)
    weblake_service.reset()
    assert weblake_service.now() - begun < timedelta(minutes=1)
    with pytest.raises(ValueError, match="seconds"):
        weblake_service.advance(-1)


def test_a_rule_is_added_counted_and_removed(weblake_service: WeblakeService, weblake_faults: WeblakeFaults) -> None:
    client = weblake_service.client()
    rule = weblake_faults.add(status=503, path="/v2/crawl/active", times=2, retry_after=0)
    never = weblake_faults.add(status=500, path="/v2/map")
    assert client.list_active_crawls().crawls == []
    assert (rule.hits, never.hits, weblake_faults.hits()) == (2, 0, 2)
    assert [entry["fault"] for entry in weblake_service.requests()] == [rule.id, rule.id, None]
    assert f"rule {rule.id} applied 2 of 3 times" in weblake_service.report()
    rule.remove()
    rule.remove()
    assert [one["id"] for one in weblake_faults.rules()] == [never.id]
    with weblake_faults.add(status=402, path="/v2/crawl/active", times=None), pytest.raises(CreditsExhausted):
        client.list_active_crawls()
    client.list_active_crawls()
    weblake_faults.clear()
    assert weblake_faults.rules() == []
    with pytest.raises(ValueError, match=r"known are .*`stall_job`"):
        weblake_faults.add(stall_jobs=True)


@pytest.mark.system
@pytest.mark.smoke
def test_a_job_survives_a_crash_of_the_service(
    weblake_service_process: WeblakeServiceProcess, weblake_site: WeblakeSite, tmp_path: Path
) -> None:
    service = weblake_service_process
    client, url, first = service.client(), service.url, service.pid
    weblake_site.hold("/contact")
    job = client.start_batch_scrape(weblake_site.urls()).id
    deadline = time.monotonic() + 90
    while not weblake_site.requests("/contact"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    service.kill()
    assert service.pid is None
    with pytest.raises(RuntimeError, match=r"restart\(\)"):
        service.counts()
    assert "does not respond" in service.report()
    weblake_site.release()
    service.restart()
    assert (service.url, service.pid != first) == (url, True)
    receipt = weblake.land("batch", job, to=tmp_path, client=client)
    assert receipt.stored == len(weblake_site.urls())
    assert service.counts()["pages_billed"] == receipt.stored
    assert "The service listens on" in service.log
    service.stop()
    assert "Fatal Python error" not in service.log


@pytest.mark.system
def test_the_service_process_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from weblake.testing import WeblakeServiceProcess;"
        "print(WeblakeServiceProcess(Path(sys.argv[1]), {}).pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    deadline = time.monotonic() + 90
    while is_alive(child):
        assert time.monotonic() < deadline, "the job continues"
        time.sleep(0.02)
