"""Landing of the service's reports on the team: usage by month and recent activity.

One report has every month, so a run over several partitions requests it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake import metadata
from dagster_weblake.failures import translate_errors
from dagster_weblake.step import Result, parts_of, result_of
from weblake import orchestration

if TYPE_CHECKING:
    from dagster_weblake.requests import UsageRequest
    from dagster_weblake.resource import WeblakeResource


def land_usage(
    context: dg.AssetExecutionContext, weblake: WeblakeResource, request: UsageRequest, key: dg.AssetKey, to: str | None
) -> Iterator[Result]:
    """Land the months of this step's partitions, or all that the service reports; each file is replaced whole.

    A month for which the service reports nothing keeps its file, if it has one.
    """
    with translate_errors(context):
        client, dataset, parts = weblake.client, weblake.dataset_of_step(context, to), parts_of(context, key)
        found = client.run(
            orchestration.report(request.report, client.retry, by_api_key=request.by_api_key, budget=request.budget)
        )
        if not found.split:
            context.log.warning("The service did not split the report by API key, although it was asked to.")
        months = None if parts[0].key is None else [str(part.month) for part in parts]
        files = orchestration.land_report(found, dataset, months)
        values = {
            part.key: metadata.usage_metadata(found, files, dataset, period=part.month, budget=request.budget)
            for part in parts
        }
    yield result_of(context, key, values)


def land_activity(
    context: dg.AssetExecutionContext, weblake: WeblakeResource, key: dg.AssetKey, to: str | None
) -> Iterator[Result]:
    """Merge the calls that the service lists (24 hours) into the files of their UTC days."""
    with translate_errors(context):
        client, dataset, parts = weblake.client, weblake.dataset_of_step(context, to), parts_of(context, key)
        entries = client.run(orchestration.activity(client.retry))
        files = orchestration.land_activity(entries, dataset)
        values = {part.key: metadata.activity_metadata(files, dataset, len(entries), date=part.day) for part in parts}
    yield result_of(context, key, values)
