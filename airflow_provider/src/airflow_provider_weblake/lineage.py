"""Notification of changed datasets to Airflow's assets, lineage collectors and OpenLineage.

This runs after the pages are landed and paid for, so a dataset without an asset URI gives a warning and does not fail
the task.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote, urlsplit

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef
from airflow.sdk.lineage import get_hook_lineage_collector

from airflow_provider_weblake.assets.weblake import TABLES, asset_uri, openlineage_name, weblake_asset
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context, ObjectStoragePath
    from openlineage.client.event_v2 import Dataset, OutputDataset
    from openlineage.client.facet_v2 import RunFacet
    from pydantic.types import JsonValue

    Root = str | os.PathLike[str] | ObjectStoragePath

_LOG = logging.getLogger(__name__)
#: Bytes of JSON that an asset event may carry: the metadata database stores them once for each event.
EXTRA_BYTES = 2000
#: Hosts that are named as inputs at most: a batch may have a million.
MAX_HOSTS = 50
#: The separator between the values of a key that has several, as Airflow's own partition mappers write it.
_BETWEEN = "|"
_PRODUCER = "weblake"


def outlets_changed(
    context: Context,
    receipt: Mapping[str, object],
    *,
    root: Root | None = None,
    partitions: Sequence[str] = (),
) -> None:
    """Put the receipt on the event of each of the task's outlet assets, and notify lineage collectors.

    An outlet that is an AssetAlias gets an event for each table that has new files.

    :param context: the context of the running task.
    :param receipt: the load's receipt as JSON values; values beyond 2 KB are left out and named under `omitted`.
    :param root: the dataset's root; by default the task's rendered `to`.
    :param partitions: partition keys of the events, for consumers with a partitioned timetable; see `partitions_of`.
        Airflow 3.3 starts no other consumer for an event that has one (a plain `schedule=[asset]` is not triggered), so
        the DAG's author has to ask for them.
    """
    extra = small(receipt)
    root = _root_of(context, root)
    for outlet in context["task"].outlets:
        try:
            if isinstance(outlet, AssetAlias):
                _through_alias(context, outlet, receipt, extra, root)
            elif isinstance(outlet, Asset | AssetRef):
                event = context["outlet_events"][outlet]
                event.extra = {**event.extra, **extra}
                if partitions:
                    event.add_partitions(list(partitions))
        except (ValueError, TypeError) as error:
            _LOG.warning("The event of %r does not carry this load's receipt: %s", outlet, error)
    _tell_collectors(context, receipt, root)


def partitions_of(receipt: Mapping[str, object]) -> list[str]:
    """Return the partition keys of a load, from the folders of its files: `2026-11-21`, or `de|2026-11-21`."""
    found: dict[str, None] = {}
    for path in _paths(receipt):
        values = [unquote(part.partition("=")[2]) for part in path.split("/")[1:-1] if "=" in part]
        if values:
            found[_BETWEEN.join(values)] = None
    return list(found)


def tables_of(receipt: Mapping[str, object]) -> list[str]:
    """Return the tables for which this load has files, in the order of the layout."""
    touched = {path.partition("/")[0] for path in _paths(receipt)}
    return [table for table in TABLES if table in touched]


def small(receipt: Mapping[str, object]) -> dict[str, JsonValue]:
    """Return the part of a mapping that fits into 2 KB of JSON; `omitted` holds the names of the values left out."""
    kept = cast("dict[str, JsonValue]", json.loads(json.dumps(dict(receipt), default=str)))
    by_size = sorted(kept, key=lambda name: len(json.dumps(kept[name])))
    omitted: list[JsonValue] = []
    while by_size and len(json.dumps({**kept, "omitted": omitted})) > EXTRA_BYTES:
        name = by_size.pop()
        del kept[name]
        omitted.append(name[:80])
    return {**kept, "omitted": omitted} if omitted else kept


def openlineage_of(
    receipt: Mapping[str, object],
    root: Root,
    job_id: str | None,
    hosts: Iterable[str] = (),
    *,
    service: str = "",
) -> OperatorLineage[Dataset, RunFacet] | None:
    """Return the OpenLineage metadata of a load, or None if its provider is not installed. Makes no network calls.

    :param receipt: the load's receipt.
    :param root: the dataset's root.
    :param job_id: the service's job, as the external query.
    :param hosts: hosts or URLs that were read; the first 50 different hosts are the inputs.
    :param service: the name of the service, as a tag.
    """
    try:
        from airflow.providers.openlineage.extractors import OperatorLineage
        from openlineage.client.event_v2 import InputDataset
    except ImportError:
        return None
    try:
        outputs: list[Dataset] = [_output(table, receipt, root) for table in tables_of(receipt)]
    except InvalidOption as error:
        _LOG.warning("OpenLineage is not told where this load lies: %s", error)
        outputs = []
    inputs: list[Dataset] = [InputDataset(namespace=f"https://{host}", name="/") for host in hosts_of(hosts)]
    return OperatorLineage(inputs=inputs, outputs=outputs, run_facets=_run_facets(receipt, job_id, service))


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


def _root_of(context: Context, root: Root | None) -> Root | None:
    return root if root is not None else getattr(context["task"], "to", None)


def _through_alias(
    context: Context, alias: AssetAlias, receipt: Mapping[str, object], extra: dict[str, JsonValue], root: Root | None
) -> None:
    if root is None:
        raise InvalidOption("an alias needs to know the dataset's root.", hint="Give the task a `to`.")
    for table in tables_of(receipt):
        context["outlet_events"][alias].add(weblake_asset(root, table), extra=extra)


def _tell_collectors(context: Context, receipt: Mapping[str, object], root: Root | None) -> None:
    """Notify collectors of hook lineage; OpenLineage uses this only if the operator has no metadata for it."""
    hook = getattr(context["task"], "hook", None)
    if root is None or hook is None:
        return
    for table in tables_of(receipt):
        try:
            get_hook_lineage_collector().add_output_asset(context=hook, uri=asset_uri(root, table))
        except InvalidOption as error:
            _LOG.debug("No hook lineage: %s", error)
            return


def _files(receipt: Mapping[str, object]) -> list[Mapping[str, object]]:
    files = receipt.get("files")
    listed = files if isinstance(files, list | tuple) else []
    return [file for file in listed if isinstance(file, Mapping)]


def _paths(receipt: Mapping[str, object]) -> list[str]:
    return [str(file.get("path", "")) for file in _files(receipt)]


def _output(table: str, receipt: Mapping[str, object], root: Root) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset, schema_dataset

    from weblake import orchestration

    namespace, name = openlineage_name(asset_uri(root, table))
    mine = [file for file in _files(receipt) if str(file.get("path", "")).startswith(f"{table}/")]
    columns = schema_dataset.SchemaDatasetFacet(
        fields=[
            schema_dataset.SchemaDatasetFacetFields(name=column.name, type=_type(column.type))
            for column in orchestration.table_schema(table)
        ]
    )
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=_sum(mine, "rows"), size=_sum(mine, "bytes"), fileCount=len(mine)
    )
    return OutputDataset(
        namespace=namespace, name=name, facets={"schema": columns}, outputFacets={"outputStatistics": statistics}
    )


def _type(kind: object) -> str:
    """Return Arrow's name of a type without the name of a list's element, which differs between writers."""
    return re.sub(r"\blist<\w+: ", "list<", str(kind))


def _sum(files: Sequence[Mapping[str, object]], name: str) -> int | None:
    numbers = [file.get(name) for file in files]
    return sum(n for n in numbers if isinstance(n, int)) if all(isinstance(n, int) for n in numbers) else None


def _run_facets(receipt: Mapping[str, object], job_id: str | None, service: str) -> dict[str, RunFacet]:
    from openlineage.client.facet_v2 import external_query_run, tags_run

    facets: dict[str, RunFacet] = {}
    if job_id:
        facets["externalQuery"] = external_query_run.ExternalQueryRunFacet(externalQueryId=job_id, source=_PRODUCER)
    said = {"load_id": receipt.get("load_id"), "credits_used": receipt.get("credits_used"), "service": service}
    tags = [
        tags_run.TagsRunFacetFields(key=f"{_PRODUCER}.{name}", value=str(value), source="WEBLAKE")
        for name, value in said.items()
        if value not in (None, "")
    ]
    if tags:
        facets["tags"] = tags_run.TagsRunFacet(tags=tags)
    return facets
