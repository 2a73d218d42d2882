"""Tests of the URL behind the link to a job."""

from __future__ import annotations

import pytest

from weblake.errors import InvalidOption
from weblake.jobs.job_links import STATUS_PATHS
from weblake.orchestration import job_page

BASE, JOB = "https://api.example.com/team/", "11c67275-4db0-5dbd-8d9a-9f43e783aed8"


@pytest.mark.parametrize("kind", STATUS_PATHS)
def test_the_link_of_a_job_is_its_status_url_at_other_services(kind: str) -> None:
    assert job_page(BASE, kind, JOB) == f"https://api.example.com/team{STATUS_PATHS[kind]}/{JOB}"


def test_the_link_of_a_job_is_its_console_page_at_the_embedded_service() -> None:
    for kind in ("batch", "batch_scrape", "crawl"):
        assert (
            job_page("http://127.0.0.1:8080", kind, JOB, has_console=True)
            == f"http://127.0.0.1:8080/console/jobs/{JOB}"
        )
    assert job_page(BASE, "scrape", JOB, has_console=True) == job_page(BASE, "scrape", JOB)
    assert job_page(BASE, "parse", JOB, has_console=True) == ""


def test_a_configured_job_page_has_precedence_and_is_only_filled_in() -> None:
    page = "https://app.example.com/{kind}/{job_id}?of={job_id.__class__}"
    assert job_page(BASE, "batch", "a/b", template=page, has_console=True) == (
        "https://app.example.com/batch_scrape/a%2Fb?of={job_id.__class__}"
    )
    for bad in ("javascript:alert(1)", "{job_id}", "/jobs/{job_id}"):
        with pytest.raises(InvalidOption, match="http"):
            job_page(BASE, "crawl", JOB, template=bad)
    with pytest.raises(InvalidOption, match="no job id"):
        job_page(BASE, "crawl", "")
