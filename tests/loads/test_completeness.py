"""Tests of when a staged load is too incomplete to be published, and which limit stopped its job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weblake.api.models import JobError, JobErrors
from weblake.arrow.parquet import Written
from weblake.dataset.identity import job_load_id
from weblake.dataset.root import LandedLoad
from weblake.errors import PYTHON, CreditsExhausted, DeadlineExceeded, JobEnded, JobGone, LoadIncomplete, WeblakeError
from weblake.loads.accounting import Account, Reconciler
from weblake.loads.completeness import (
    another_job_remedy,
    completeness_error,
    limit_error,
    require_documents,
    start_afresh_remedy,
)
from weblake.loads.load_request import Terms
from weblake.loads.staging import Staged
from weblake.receipt import Receipt

LOAD = "a" * 16

JOB = "4d8b6c1e-0000-4000-8000-000000000001"


def account(stored: int, *, failed: int = 0, missing: int = 0) -> Account:
    urls = [f"http://a.test/{n}" for n in range(stored + failed + missing)]
    reconciler = Reconciler(urls)
    for url in urls[:stored]:
        assert reconciler.document(url, url, url, b"")
    errors = [JobError(url=url, error="gone") for url in urls[stored : stored + failed]]
    return reconciler.close(JobErrors(errors=errors), {})


def error_of(
    counts: Account, terms: Terms, status: str = "completed", gone: JobGone | None = None
) -> WeblakeError | None:
    receipt = Receipt(load_id=LOAD, kind="batch_scrape", status=status, stored=counts.stored)
    return completeness_error(Staged(Written(Path("x"), 0, 0), counts, receipt, gone=gone), terms)


@pytest.mark.parametrize(
    ("ratio", "missing", "refused"), [(0.0, 0, False), (0.0, 1, True), (0.1, 1, False), (0.1, 2, True)]
)
def test_missing_pages_up_to_the_tolerance_are_accepted(ratio: float, missing: int, *, refused: bool) -> None:
    found = error_of(account(10 - missing, missing=missing), Terms(missing_ratio=ratio))
    assert isinstance(found, LoadIncomplete) is refused


@pytest.mark.parametrize(
    ("ratio", "failed", "refused"), [(1.0, 9, False), (0.5, 5, False), (0.5, 6, True), (0.0, 0, False), (0.0, 1, True)]
)
def test_failed_pages_up_to_the_share_of_the_submitted_ones_are_accepted(
    ratio: float, failed: int, *, refused: bool
) -> None:
    found = error_of(account(10 - failed, failed=failed), Terms(fail_ratio=ratio))
    assert isinstance(found, LoadIncomplete) is refused


def test_the_error_names_the_first_three_missing_pages() -> None:
    found = error_of(account(1, missing=3), Terms())
    assert "3 of 4 pages are missing: http://a.test/1, http://a.test/2, http://a.test/3;" in str(found)
    found = error_of(account(1, missing=4), Terms())
    assert "4 of 5 pages are missing: http://a.test/1, http://a.test/2, http://a.test/3, …;" in str(found)


def test_documents_of_other_pages_and_a_job_that_did_not_complete_are_refused() -> None:
    counts = Reconciler(["http://a.test/0"])
    counts.document("1", "http://b.test/", "http://b.test/", b"")
    terms = Terms(missing_ratio=1.0, fail_ratio=1.0)
    assert isinstance(error_of(counts.close(JobErrors(), {}), terms), LoadIncomplete)
    assert isinstance(error_of(account(1), terms, status="failed"), JobEnded)
    assert isinstance(error_of(account(1), terms, gone=JobGone("It expired.")), JobGone)
    assert error_of(account(1), terms) is None


def test_another_job_is_offered_only_if_the_load_has_started_its_job() -> None:
    """`weblake land` has no --new, and clearing the task that lands a job starts no other one."""
    own = Receipt(load_id=LOAD, kind="crawl", job_id=JOB, submitted=1, failed=1)
    elsewhere = replace(own, load_id=job_load_id("crawl", JOB))
    assert (another_job_remedy(elsewhere).template, start_afresh_remedy(elsewhere).template) == ("", "")
    assert another_job_remedy(own).text_for(PYTHON) == "If another job is to be paid, new=True starts one."
    assert start_afresh_remedy(own).text_for(PYTHON) == "Then start afresh with new=True."
    for receipt in (own, elsewhere):
        with pytest.raises(LoadIncomplete) as caught:
            require_documents(LandedLoad(receipt))
        assert ("new=True" in caught.value.hint) is (receipt is own)
        assert caught.value.receipt is receipt


@pytest.mark.parametrize(
    ("status", "used", "terms", "late", "kind"),
    [
        ("cancelled", 6.0, Terms(max_credits=5), False, CreditsExhausted),
        ("cancelled", 5.0, Terms(max_credits=5), False, None),
        ("cancelled", None, Terms(max_credits=0), False, None),
        ("completed", 6.0, Terms(max_credits=5), False, None),
        ("cancelled", 6.0, Terms(ends_job=True), True, DeadlineExceeded),
        ("cancelled", 6.0, Terms(ends_job=True), False, None),
        ("cancelled", 6.0, Terms(), True, None),
        ("completed", 6.0, Terms(ends_job=True), True, None),
    ],
)
def test_only_a_job_that_a_limit_has_cancelled_reports_that_limit(
    status: str, used: float | None, terms: Terms, kind: type[WeblakeError] | None, *, late: bool
) -> None:
    receipt = Receipt(load_id=LOAD, kind="crawl", status=status, credits_used=used)
    assert type(limit_error(receipt, terms, late=late)) is (kind or type(None))


@pytest.mark.parametrize("reported", [None, 4.0])
def test_credits_that_a_cancelled_job_no_longer_reports_have_passed_the_limit(reported: float | None) -> None:
    """Otherwise the job would count as ended by itself, and a retry of an orchestrator would buy another one."""
    receipt = Receipt(load_id=LOAD, kind="crawl", status="cancelled", credits_used=reported)
    error = limit_error(receipt, Terms(max_credits=5), late=False, used=6.5)
    assert isinstance(error, CreditsExhausted)
    assert "had used 6.5 credits" in error.message
