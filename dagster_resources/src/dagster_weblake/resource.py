"""The resource: a connection, and the execution of a request in a step."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from dagster_weblake import landing
from dagster_weblake.connection import ServiceResource
from dagster_weblake.failures import as_failure
from dagster_weblake.requests import ActivityRequest, LandingRequest, Request, UsageRequest
from weblake.errors import InvalidOption


class WeblakeResource(ServiceResource):
    """The web data extraction service and the dataset in which its data land.

    Usable without assets: `weblake.client.scrape(url)` in an op, or `weblake.get_client()` anywhere.

    ```python
    defs = dg.Definitions(
        assets=docs,
        resources={"weblake": WeblakeResource(root="s3://lake/web")},  # WEBLAKE_BASE_URL and WEBLAKE_API_KEY
    )
    ```
    """

    def run(
        self,
        context: dg.AssetExecutionContext,
        request: Request,
        *,
        key: dg.AssetKey | None = None,
        to: str | None = None,
    ) -> Iterator[dg.MaterializeResult[None]]:
        """Execute a request for each partition of the running step: the body of a custom asset.

        Yield the result, and iterate to the end: if the body fails before that, Dagster does not have the
        materialization, and a re-execution of all steps returns the load and does not pay again.

        Example:
            .. code-block:: python

                @dg.multi_asset(specs=build_weblake_specs("docs", REQUEST), retry_policy=DEFAULT_RETRIES)
                def docs(context: dg.AssetExecutionContext, weblake: WeblakeResource):
                    yield from weblake.run(context, REQUEST)

        Args:
            context: The context of the step.
            request: The request.
            key: The asset; needed if the step has several.
            to: The dataset's root; by default the resource's.

        Raises:
            dagster.Failure: The load failed; `allow_retries` says whether another try may help.
            dagster.RetryRequested: The service named a time to wait, and the step has a retry policy.
        """
        key = key or context.asset_key
        if isinstance(request, UsageRequest):
            return landing.land_usage(context, self, request, key, to)
        if isinstance(request, ActivityRequest):
            return landing.land_activity(context, self, key, to)
        if isinstance(request, LandingRequest):
            return landing.land(context, self, request, key, to)
        raise as_failure(
            context,
            InvalidOption(
                f"A {type(request).__name__} is not a request.",
                hint="Return a request, such as CrawlRequest or BatchScrapeRequest.",
            ),
        )
