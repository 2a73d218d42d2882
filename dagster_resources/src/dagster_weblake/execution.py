"""The dispatch of a request to the function that lands it."""

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
    """Execute a request for each partition of the running step, and yield the results for Dagster.

    Args:
        context: The context of the step.
        weblake: The resource, initialised for this step.
        request: The request.
        key: The asset; needed if the step has several.
        to: The dataset's root; by default the resource's.

    Raises:
        dagster.Failure: The load failed; `allow_retries` says whether another try may help.
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
