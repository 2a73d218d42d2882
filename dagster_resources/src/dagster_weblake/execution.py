"""From a request to what lands: which path it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import landing, reports
from dagster_weblake.failures import as_failure
from dagster_weblake.requests import ActivityRequest, LandingRequest, Request, UsageRequest
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from dagster_weblake.resource import WeblakeResource


def materialize(
    context: dg.AssetExecutionContext,
    weblake: WeblakeResource,
    request: Request,
    *,
    key: dg.AssetKey | None = None,
    to: str | None = None,
) -> Iterator[landing.Result]:
    """Does what a request asks, for each partition of the running step, and yields what Dagster is to know.

    Args:
        context: The step's.
        weblake: The resource, in a step of which this is.
        request: What is asked.
        key: The asset; needed where the step has several.
        to: The dataset's root; the resource's where it is not given.

    Raises:
        dagster.Failure: It did not come out; `allow_retries` says whether another try may help.
        dagster.RetryRequested: The service named a time to wait, and the step has a retry policy.
    """
    key = key or context.asset_key
    if isinstance(request, UsageRequest):
        return reports.land_usage(context, weblake, request, key, to)
    if isinstance(request, ActivityRequest):
        return reports.land_activity(context, weblake, key, to)
    if isinstance(request, LandingRequest):
        return landing.land(context, weblake, request, key, to)
    error = InvalidOption(
        f"A {type(request).__name__} is no request.", hint="Return a CrawlRequest, a BatchScrapeRequest or the like."
    )
    raise as_failure(context, error)
