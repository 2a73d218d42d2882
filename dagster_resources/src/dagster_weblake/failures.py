"""Translation of errors to Dagster's: which failures of a step are retried, and after how long.

    a job that ended as failed or cancelled          the step's retry policy decides; the retry buys a new job
                                                     (and none follows in a step that only lands)
    429, network trouble, 5xx                        likewise, after the time that the service names, if it names one,
                                                     and up to a quarter more
    anything else (400, 401, 402, 403, an option     no retry: the same call would end the same way, or buy twice
    outside the contract, expired, incomplete, ...)

`Failure(allow_retries=False)` ends the step's own retries. A run retry is configured in the instance; it continues from
the ledger and does not buy again what has been bought.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial

import dagster as dg

from dagster_weblake.metadata.text_format import amount, typed
from weblake import orchestration
from weblake.errors import JobEnded, RetryLater, WeblakeError, in_terms_of

#: Dagster's terms for the core's remedies.
DAGSTER = orchestration.Interface(
    name="Dagster",
    run_again="Re-execute the run from failure",
    start_afresh="materialize the asset in a new run",
    another_job="a new run",
    cut_again="Cut it again with url_shards",
    timeout="deadline",
    base_url="the resource's base_url",
    api_key="the resource's api_key",
    insecure="WeblakeResource(insecure=True)",
    ca_bundle="the file that the resource's ca_bundle names",
    land="an asset of a JobRequest",
    in_activity="with an asset of an ActivityRequest",
)
#: A context manager in which errors of the core are worded for Dagster.
in_dagster_terms = partial(in_terms_of, DAGSTER)

#: The default retry policy of this package's assets: after 15 s, 30 s and 60 s, with jitter.
DEFAULT_RETRIES = dg.RetryPolicy(max_retries=3, delay=15, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)


@contextmanager
def translate_errors(context: dg.AssetExecutionContext, retried: type[WeblakeError] = RetryLater) -> Iterator[None]:
    """Translate an error of weblake in the block to Dagster's: a failure with metadata, or a request for a retry.

    `retried`: errors that the step's retry policy retries, besides those that pass by themselves.
    """
    try:
        with in_dagster_terms():
            yield
    except WeblakeError as error:
        raise as_failure(context, error, retried=retried) from error


def as_failure(
    context: dg.AssetExecutionContext,
    error: WeblakeError,
    text: str | None = None,
    *,
    owns_job: bool = True,
    job_url: str = "",
    retried: type[WeblakeError] = RetryLater,
) -> Exception:
    """Return the failure or the retry request for an error; an ended job is retried only by a step that `owns_job`."""
    pause = error.retry_after if isinstance(error, RetryLater) else None
    policy = context.op_def.retry_policy
    if pause is not None and policy is not None and context.retry_number < policy.max_retries:
        seconds = orchestration.named_pause(error)
        context.log.warning(f"{error} Again in {seconds:.0f} s.")
        return dg.RetryRequested(max_retries=policy.max_retries, seconds_to_wait=seconds)
    again = isinstance(error, (RetryLater, retried)) or (owns_job and isinstance(error, JobEnded))
    description = text or str(error)
    if isinstance(error, RetryLater) and (policy is None or context.retry_number >= policy.max_retries):
        description = f"{description} {_later(pause, retried=policy is not None)}"
    return dg.Failure(description=description, metadata=facts_of(error, job_url), allow_retries=again)


def _later(pause: float | None, *, retried: bool) -> str:
    """Return when and how the step may be tried again, if it is not retried by itself."""
    when = "later"
    if pause is not None:
        at = datetime.now(timezone.utc) + timedelta(seconds=pause)
        when = f"in {pause:.0f} s (at {at:%H:%M:%S} UTC)"
    why = "its retries are used up" if retried else "it has no retry_policy"
    return (
        f"It may work {when}. The step is not tried again by itself: {why}. Then re-execute the run from failure, "
        "which buys nothing twice; or give the asset a retry_policy that lasts as long, such as "
        "dagster_weblake.DEFAULT_RETRIES."
    )


def facts_of(error: WeblakeError, job_url: str = "") -> dict[str, dg.MetadataValue]:
    """Return the metadata of a failure."""
    receipt = error.receipt
    return typed(
        {
            "weblake/error": type(error).__name__,
            "weblake/what_to_do": error.hint or None,
            "weblake/http_status": error.status,
            "weblake/retry_after_s": amount(getattr(error, "retry_after", None)),
            "weblake/load_id": receipt and receipt.load_id,
            "weblake/receipt": receipt and dg.MetadataValue.json(receipt.to_dict()),
            "weblake/job_id": receipt and receipt.job_id,
            "weblake/job": dg.MetadataValue.url(job_url) if job_url else None,
        }
    )
