"""The asset that stands for a Delta Lake or Iceberg table of a dataset, downstream of the loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_weblake.failures import DEFAULT_RETRIES, translate_errors
from dagster_weblake.metadata.columns import column_schema
from dagster_weblake.secret_config import resolve, reveal
from weblake import orchestration
from weblake.errors import AskPerson, StorageRefused, WeblakeError, causes

if TYPE_CHECKING:
    from weblake.tables import SyncResult


def build_table_asset(
    name: str | dg.AssetSpec,
    *,
    deps: Sequence[dg.CoercibleToAssetDep],
    to: str | None = None,
    table_format: str | None = None,
    table_name: str | None = None,
    table_options: Mapping[str, str] | None = None,
    resource_key: str = "weblake",
    retry_policy: dg.RetryPolicy | None = DEFAULT_RETRIES,
) -> dg.AssetsDefinition:
    """Return an asset whose materialization commits to a table what has landed, each load exactly once.

    The table is registered once, with `weblake table add` or `weblake.tables.add`. Its metadata are the table's URI,
    name, version, number of rows and columns, and how many loads were added and taken out; of usage_periods and
    activity, how many files had their content added and taken out. Runs at the same time,
    retries and repetitions are harmless. An asset downstream reads the table with an IO manager of Delta Lake or
    Iceberg, which finds it by the asset's key: the last parts are the folder or namespace and the table.

    Args:
        name: The key of the asset, or a spec.
        deps: The assets that land in the dataset.
        to: The dataset's root; by default the resource's.
        table_format: delta or iceberg; needed if the dataset has tables of both.
        table_name: The table's identifier, or the table of the dataset; needed if there are several of one format.
        table_options: Settings of the storage or the catalog for deltalake or pyiceberg; by default their environment.
        resource_key: The key of the WeblakeResource.
        retry_policy: The retry policy of the step.

    Raises:
        dg.Failure: At a materialization: the dataset has no such table, or it cannot be read or written.
    """
    spec = name if isinstance(name, dg.AssetSpec) else dg.AssetSpec(name, kinds={"weblake", table_format or "table"})
    spec = spec.replace_attributes(deps=[*spec.deps, *deps])

    def sync(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
        from weblake import tables

        resource = getattr(context.resources, resource_key)
        storage = resource.options_of_storage()
        root = to or str(reveal(resource.root))
        chosen: dict[str, Any] = {"format": table_format, "name": table_name, "storage_options": storage}
        with translate_errors(context):
            options: Any = None if table_options is None else resolve(table_options)
        with translate_errors(context):
            dataset = resource.dataset_of_step(context, to)
        with translate_errors(context, retried=StorageRefused):  # a retry is free, and a catalog may be up again
            with _secrets_hidden({**(storage or {}), **(options or {})}):
                done = tables.sync(root, table_options=options, **chosen)
            if len(done) > 1:
                named = ", ".join(f"{each.format} {each.name}" for each in done)
                raise AskPerson(
                    f"{dataset.url} has several tables ({named}); they are up to date now.",
                    hint="Give table_format and table_name, and an asset to each table.",
                )
            (result,) = done
            keys = orchestration.path_keys(dataset, result.table) if result.format == "delta" else ()
        context.log.info("%d loads added (%d rows), %d taken out.", len(result.added), result.rows, len(result.removed))
        return dg.MaterializeResult(asset_key=spec.key, metadata=_metadata(result, keys))

    # Dagster reads the annotation, which is text here.
    sync.__annotations__ = {"context": dg.AssetExecutionContext}
    return dg.multi_asset(
        name=f"sync_{spec.key.to_python_identifier()}",
        specs=[spec],
        required_resource_keys={resource_key},
        retry_policy=retry_policy,
    )(sync)


@contextmanager
def _secrets_hidden(settings: Mapping[str, object]) -> Iterator[None]:
    """Remove secrets of the settings from errors, and their causes, which Dagster stores: catalogs may return them."""
    try:
        yield
    except Exception as error:
        secrets = list(orchestration.secrets_in(settings))
        if all(orchestration.without_secrets(str(each), secrets) == str(each) for each in causes(error)):
            raise
        if not isinstance(error, WeblakeError):
            text = orchestration.without_secrets(str(error), secrets)
            raise StorageRefused(f"{type(error).__name__}: {text}") from None
        error.message = orchestration.without_secrets(error.message, secrets)
        raise error from None


def _metadata(result: SyncResult, keys: Sequence[str]) -> dict[str, dg.RawMetadataValue]:
    return {
        "dagster/uri": dg.MetadataValue.text(result.location),
        "dagster/row_count": result.table_rows,
        "dagster/column_schema": column_schema(result.table, keys),
        "dagster/storage_kind": result.format,
        "dagster/table_name": result.name,
        # Versions of Iceberg are ids of 64 bits, more than a browser's numbers hold.
        "weblake/table_version": dg.MetadataValue.text(str(result.version)),
        "weblake/loads_added": len(result.added),
        "weblake/loads_removed": len(result.removed),
        "weblake/rows_added": result.rows,
    }
