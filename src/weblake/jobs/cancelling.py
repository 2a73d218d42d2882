"""Cancel a job."""

from __future__ import annotations

from weblake.api.job_kinds import JOB_KINDS
from weblake.api.steps import Flow
from weblake.errors import RequestRejected
from weblake.jobs.polling import JobRef
from weblake.jobs.retry import Retry, RetryPolicy

#: HTTP status of a cancel: the job has already ended.
CONFLICT = 409


def cancel(job: JobRef, retry: Retry, policy: RetryPolicy | None = None) -> Flow[bool]:
    """Cancel a job and return True; return False if it has already ended, which leaves it unchanged."""
    try:
        yield from retry.call(JOB_KINDS[job.kind].cancel(job.job_id), policy)
    except RequestRejected as error:
        if error.status != CONFLICT:
            raise
        return False
    return True


def describe_cancel(job: JobRef, *, cancelled: bool) -> str:
    """Return a clause for a log: what became of a request to cancel a job; `cancelled` is the result of `cancel`."""
    return f"{job} was cancelled" if cancelled else f"{job} has already ended and was not cancelled"
