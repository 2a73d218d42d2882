"""Notification of changed datasets to Airflow's assets and OpenLineage.

This runs after the pages are landed and paid for, so a dataset without an asset URI gives a warning and does not fail
the task.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_provider_weblake.assets.weblake import TABLES, asset_uri, openlineage_name, weblake_asset
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context, ObjectStoragePath
    from openlineage.client.event_v2 import Dataset, OutputDataset
    from openlineage.client.facet_v2 import RunFacet

    Root = str | os.PathLike[str] | ObjectStoragePath
    #: What a task returns; its `files` are dicts of path, rows and bytes.
    Receipt = Mapping[str, Any]

_LOG = logging.getLogger(__name__)
#: Hosts that are named as inputs at most: a batch may have a million.
MAX_HOSTS = 50
#: The separator between the values of a key that has several, as Airflow's own partition mappers write it.
_BETWEEN = "|"


def outlets_changed(
    context: Context,
    receipt: Receipt,
    root: Root | None = None,
    *,
    partitions: Sequence[str] = (),
) -> None:
    """Put the receipt on the event of each of the task's outlet assets.

    An outlet that is an AssetAlias gets an event for each table that has new files, and for each Delta Lake or Iceberg
    table that was changed. The event of an asset whose URI is the location of such a table names no other one.

    :param context: the context of the running task.
    :param receipt: the load's receipt as JSON values.
    :param root: the dataset's root; None if the receipt has no files of tables.
    :param partitions: partition keys of the events, for consumers with a partitioned timetable; see `partitions_of`.
        Airflow 3.3 starts no other consumer for an event that has one (a plain `schedule=[asset]` is not triggered), so
        the DAG's author has to ask for them.
    """
    extra = dict(receipt)
    for outlet in context["task"].outlets:
        try:
            if isinstance(outlet, AssetAlias):
                for table in tables_of(receipt):
                    context["outlet_events"][outlet].add(weblake_asset(root or "", table), extra=extra)
                for synced in receipt.get("tables", ()):
                    if synced["added"] or synced["removed"]:
                        context["outlet_events"][outlet].add(_asset_at(synced), extra={**extra, "tables": [synced]})
            elif isinstance(outlet, Asset | AssetRef):
                event = context["outlet_events"][outlet]
                event.extra = {**event.extra, **extra, **_own_table(outlet, receipt)}
                if partitions:
                    event.add_partitions(list(partitions))  # an operator refuses them where there are none
        except (ValueError, TypeError, AirflowRuntimeError) as error:
            _LOG.warning("The event of %r does not carry this load's receipt: %s", outlet, error)


def _own_table(outlet: Asset | AssetRef, receipt: Receipt) -> dict[str, Any]:
    """Return what differs on the event of an asset whose URI is the location of a table."""
    uri = getattr(outlet, "uri", None)
    own = [synced for synced in receipt.get("tables", ()) if _asset_at(synced).uri == uri]
    return {"tables": own} if own else {}


def _asset_at(table: Mapping[str, Any]) -> Asset:
    """Return the asset that is named by the location of a Delta Lake or Iceberg table, as other tools name it."""
    location = table["location"]
    return Asset(location if "://" in location else f"file://{location}")


def partitions_of(receipt: Receipt) -> list[str]:
    """Return the partition keys of a load, from the folders of its files: `2026-11-21`, or `de|2026-11-21`."""
    found: dict[str, None] = {}
    for file in receipt.get("files", ()):
        values = [unquote(part.partition("=")[2]) for part in file["path"].split("/")[1:-1] if "=" in part]
        if values:
            found[_BETWEEN.join(values)] = None
    return list(found)


def tables_of(receipt: Receipt) -> list[str]:
    """Return the tables for which this load has files, in the order of the layout."""
    touched = {file["path"].partition("/")[0] for file in receipt.get("files", ())}
    return [table for table in TABLES if table in touched]


def openlineage_of(
    receipt: Receipt, root: Root, hosts: Iterable[str] = ()
) -> OperatorLineage[Dataset, RunFacet] | None:
    """Return the OpenLineage metadata of a load, or None if its provider is not installed. Makes no network calls.

    :param receipt: the load's receipt; its `job_id` is the external query.
    :param root: the dataset's root.
    :param hosts: hosts or URLs that were read; the first 50 different hosts are the inputs.
    """
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset
        from openlineage.client.facet_v2 import external_query_run
    except ImportError:
        return None
    try:
        outputs: list[Dataset] = [_output(table, receipt, root) for table in tables_of(receipt)]
    except InvalidOption as error:
        _LOG.warning("OpenLineage is not told where this load lies: %s", error)
        outputs = []
    inputs: list[Dataset] = [InputDataset(namespace=f"https://{host}", name="/") for host in hosts_of(hosts)]
    facets: dict[str, RunFacet] = {}
    if receipt.get("job_id"):
        facets["externalQuery"] = external_query_run.ExternalQueryRunFacet(
            externalQueryId=receipt["job_id"], source="weblake"
        )
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=facets)


def hosts_of(urls: Iterable[str], limit: int = MAX_HOSTS) -> list[str]:
    """Return the first different hosts of these URLs, with a port if one is given; never a user or a path."""
    found: dict[str, None] = {}
    for url in urls:
        try:
            parts = urlsplit(url if "://" in url else f"//{url}")
            host, port = parts.hostname, parts.port
        except ValueError:
            continue
        if host:
            host = f"[{host}]" if ":" in host else host
            found[host if port is None else f"{host}:{port}"] = None
        if len(found) >= limit:
            break
    return list(found)


def _output(table: str, receipt: Receipt, root: Root) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset, schema_dataset

    from weblake import orchestration

    namespace, name = openlineage_name(asset_uri(root, table))
    mine = [file for file in receipt["files"] if file["path"].startswith(f"{table}/")]
    columns = schema_dataset.SchemaDatasetFacet(
        fields=[
            schema_dataset.SchemaDatasetFacetFields(name=column.name, type=str(column.type))
            for column in orchestration.table_schema(table)
        ]
    )
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=sum(file["rows"] for file in mine), size=sum(file["bytes"] for file in mine), fileCount=len(mine)
    )
    return OutputDataset(
        namespace=namespace, name=name, facets={"schema": columns}, outputFacets={"outputStatistics": statistics}
    )
