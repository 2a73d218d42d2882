"""Whether a staged load is complete enough to be published, under the terms of the caller."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from weblake.credentials import one_line
from weblake.dataset.identity import job_load_id
from weblake.dataset.records import LimitReached
from weblake.dataset.root import Dataset, LandedLoad
from weblake.errors import (
    CreditsExhausted,
    DeadlineExceeded,
    JobEnded,
    JobGone,
    LoadIncomplete,
    Remedy,
    StorageRefused,
    WeblakeError,
)
from weblake.loads.accounting import PageError
from weblake.loads.load_request import Terms
from weblake.loads.staging import Staged
from weblake.receipt import Receipt

#: Maximum number of missing URLs that a message names.
NAMED = 3


def another_job_remedy(receipt: Receipt) -> Remedy:
    """Return the remedy that another job is started and paid; empty for a job that was started elsewhere."""
    if _was_started_elsewhere(receipt):
        return Remedy("")
    return Remedy("If another job is to be paid, {another_job} starts one.")


def start_afresh_remedy(receipt: Receipt) -> Remedy:
    """Return the same for a caller whose repeated call would continue with this job."""
    return Remedy("") if _was_started_elsewhere(receipt) else Remedy("Then {start_afresh}.")


def _publish_remedy(receipt: Receipt) -> Remedy:
    return Remedy("{run_again}, with {allow_partial}, to publish them.") if receipt.stored else Remedy("")


def _was_started_elsewhere(receipt: Receipt) -> bool:
    return receipt.job_id is not None and receipt.load_id == job_load_id(receipt.kind, receipt.job_id)


def record_stopped(dataset: Dataset, load_id: str, terms: Terms, used: float = 0.0) -> None:
    """Record the limit that a job has passed: that of its credits, of which it has `used`, or the time limit.

    A retry then does not take it for a job that somebody else has cancelled, for which it would pay again.
    """
    with suppress(StorageRefused):  # cancelling it matters more
        dataset.ledger.record_stopped(load_id, used=used, timeout_s=None if used else terms.timeout_s)


def stopped_at(stopped: LimitReached | None, terms: Terms) -> tuple[bool, float]:
    """Return whether a run has cancelled the job at the time limit of these terms, and its credits, or 0."""
    if stopped is None:
        return False, 0.0
    late = terms.ends_job and stopped.timeout_s is not None and terms.timeout_s <= stopped.timeout_s
    return late, stopped.used


def limit_error(receipt: Receipt, terms: Terms, *, late: bool, used: float = 0.0) -> WeblakeError | None:
    """Return the error of the limit that stopped the job, or None.

    `used` has the credits of the last poll before the job was cancelled: the receipt may have fewer.
    """
    if receipt.status != "cancelled":
        return None  # a job that ended by itself is paid for: a limit cannot save anything, so it lands
    kept = Remedy("What it had scraped is kept. {run_again}, with {allow_partial}, to publish it.")
    used = max(used, receipt.credits_used or 0.0)
    if terms.max_credits is not None and used > terms.max_credits:
        return CreditsExhausted(
            f"Job {receipt.job_id} had used {used:g} credits, more than the limit of "
            f"{terms.max_credits:g}, and was cancelled.",
            hint=kept,
        )
    if late and terms.ends_job:
        return DeadlineExceeded(
            f"The time limit passed before job {receipt.job_id} ended, with {receipt.stored} documents; "
            "it was cancelled.",
            hint=kept,
        )
    return None


def completeness_error(staged: Staged, terms: Terms) -> WeblakeError | None:
    """Return the error of a load that is too incomplete to publish, or None."""
    receipt, account = staged.receipt, staged.account
    if staged.gone is not None:
        return JobGone(
            f"Job {receipt.job_id} expired while it was read, after {receipt.stored} documents. {staged.gone.message}",
            hint=Remedy("What had been read is kept. {run_again}, with {allow_partial}, to publish it.").followed_by(
                another_job_remedy(receipt)
            ),
            status=staged.gone.status,
            code=staged.gone.code,
        )
    if receipt.status != "completed":
        return JobEnded(
            f"Job {receipt.job_id} ended as {receipt.status!r} with {receipt.stored} documents."
            + (f" The service says: {staged.service_message}" if staged.service_message else ""),
            hint=_publish_remedy(receipt).followed_by(another_job_remedy(receipt)),
            job_status=receipt.status,
        )
    if account.foreign:
        return LoadIncomplete(
            f"Job {receipt.job_id} holds {account.foreign} documents of pages that were not submitted, "
            f"and {account.missing} that were are missing; nothing was published.",
            hint=Remedy(
                "It may be another job than the one that was meant. {run_again}, with {allow_partial}, to publish it."
            ),
        )
    if account.missing > terms.missing_ratio * account.submitted:
        names = account.missing_urls()
        named = f": {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}" if names else ""
        return LoadIncomplete(
            f"{account.missing} of {account.submitted} pages are missing{named}; nothing was published.",
            hint=Remedy(
                "{run_again}, with {allow_partial} to publish what there is, or with a larger {missing_ratio}."
            ),
        )
    if account.failed > terms.fail_ratio * account.submitted:
        return LoadIncomplete(
            f"{account.failed} of {account.submitted} pages failed, more than the tolerance of {terms.fail_ratio:g}; "
            "nothing was published.",
            hint=Remedy("{run_again}, with {allow_partial}, to publish what there is."),
        )
    return None


def _first_reason(rows: Iterable[PageError]) -> str:
    """Return a sentence with the first page without a document whose reason is known; empty if there is none."""
    for row in rows:
        reason = one_line(": ".join(filter(None, (row.code, row.error)))).rstrip(".")
        if reason and row.url:
            return f" {one_line(row.url)}: {reason}."
    return ""


def require_documents(landing: LandedLoad, rows: Iterable[PageError] = ()) -> LandedLoad:
    """Return the load if it has at least one document, else raise LoadIncomplete with the first reason in `rows`."""
    receipt = landing.receipt
    if receipt.stored == 0:
        error = LoadIncomplete(
            f"None of the {receipt.submitted} pages could be stored: {receipt.failed} failed, "
            f"{receipt.robots_blocked} blocked by robots.txt, {receipt.rejected} rejected, {receipt.missing} missing."
            f"{_first_reason(rows)}",
            hint=Remedy("The reasons are in page_errors.").followed_by(another_job_remedy(receipt)),
        )
        error.receipt = receipt
        raise error
    return landing
