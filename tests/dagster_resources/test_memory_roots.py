"""Tests that a root in memory is refused before anything is paid if the data would end with a step's process."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import memory_jobs
import pytest
from gated_site import GatedSite
from in_process import Bench

import weblake
from dagster_weblake import BatchScrapeRequest, WeblakeResource, build_weblake_assets


@pytest.mark.parametrize(
    ("job", "steps"),
    [(memory_jobs.in_process, 3), pytest.param(memory_jobs.multiprocess, 1, marks=pytest.mark.system)],
)
def test_a_run_in_several_processes_refuses_a_memory_root_before_a_payment(
    bench: Bench, site: GatedSite, monkeypatch: pytest.MonkeyPatch, job: Callable[[], dg.JobDefinition], steps: int
) -> None:
    monkeypatch.setenv("WEBLAKE_BASE_URL", bench.service.url)
    monkeypatch.setenv("WEBLAKE_API_KEY", bench.service.key)
    monkeypatch.chdir(Path(__file__).parent)  # where the process of a step looks for the job
    monkeypatch.setenv("TEST_URLS", ",".join(site.pages(2)))
    with dg.execute_job(dg.reconstructable(job), instance=bench.instance) as result:
        assert not result.success
        failed = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    assert bench.started == 0
    assert len(failed) == steps
    for each in failed:
        assert each.user_failure_data is not None
        text = str(each.user_failure_data.description)
        assert "memory://lake-of-a-run" in text
        assert "gone" in text
        assert "s3://" in text
        assert "materialize" in text


def test_in_one_process_a_memory_root_is_accepted(bench: Bench, site: GatedSite) -> None:
    root = f"memory://{uuid.uuid4().hex}/lake"
    docs = build_weblake_assets("docs", BatchScrapeRequest(urls=site.pages(2)))
    resource = WeblakeResource(base_url=bench.service.url, api_key=bench.service.key, root=root)
    assert bench.run(docs, resources={"weblake": resource}).success
    assert weblake.read(root).to_table().num_rows == 2
    job = dg.Definitions(assets=docs, resources={"weblake": resource}).resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(instance=bench.instance).success
    assert weblake.read(root).to_table().num_rows == 4
