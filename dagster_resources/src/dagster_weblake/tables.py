"""The asset that stands for a Delta Lake or Iceberg table of a dataset, downstream of the loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Unpack

import dagster as dg

from dagster_weblake.assets import AssetBuilder, WeblakeAsset, caller
from dagster_weblake.failures import translate_errors
from dagster_weblake.metadata.columns import column_schema
from dagster_weblake.requests import invalid
from dagster_weblake.resource import WeblakeResource
from dagster_weblake.secret_config import resolve, reveal
from dagster_weblake.specs import AssetOptions, Named, named_spec, split_options
from dagster_weblake.step import Result
from weblake import orchestration
from weblake.errors import AskPerson, InvalidOption, StorageRefused, WeblakeError, causes

if TYPE_CHECKING:
    from weblake.tables import SyncResult


@orchestration.document
def build_table_asset(
    asset: Named,
    *,
    to: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    table_format: Literal["delta", "iceberg"] | None = None,
    table_name: str | None = None,
    table_options: Mapping[str, str] | None = None,
    **options: Unpack[AssetOptions],
) -> WeblakeAsset:
    """Return an asset whose materialization commits to a table what has landed, each load exactly once.

    The table is registered once, with `weblake table add` or `weblake.tables.add`. Its metadata are the table's URI,
    name, version, number of rows and columns, and how many loads were added and taken out. Runs at the same time,
    retries and repetitions are harmless. An asset downstream reads the table with an IO manager of Delta Lake or
    Iceberg, which finds it by the asset's key: the last parts are the folder or namespace and the table.

    Args:
        asset: The key of the asset, or a spec.
        to: The dataset's root; by default the resource's.
        partitions_def: Partitions, such as those of the assets upstream; each materialization commits all loads.
        table_format: delta or iceberg; needed if the dataset has tables of both.
        table_name: The table's identifier, or the table of the dataset; needed if there are several of one format.
        table_options: Settings of the storage or the catalog for deltalake or pyiceberg; by default their environment.
        **options: As in `build_weblake_assets`; `deps` are the assets that land in the dataset.

    Raises:
        DagsterInvalidDefinitionError: There is no such table format, or `to` has a user name.
        TypeError: A keyword argument that does not exist.
    """
    of_spec, of_step = split_options(options)
    spec = named_spec(asset, to, partitions_def, of_spec)
    if table_format not in (None, "delta", "iceberg"):
        raise invalid(spec.key, InvalidOption(f"table_format is {table_format!r}.", hint="Give 'delta' or 'iceberg'."))
    spec = spec.replace_attributes(
        kinds=spec.kinds | {table_format or "table"},
        description=spec.description or f"A table {f'({table_format}) ' if table_format else ''}of what has landed.",
    )

    def sync(context: dg.AssetExecutionContext, resource: WeblakeResource, request: object) -> Iterator[Result]:
        from weblake import tables

        storage = resource.options_of_storage()
        root = to or str(reveal(resource.root))
        which: dict[str, Any] = {"format": table_format, "name": table_name, "storage_options": storage}
        with translate_errors(context):
            settings: Any = None if table_options is None else resolve(table_options)
            dataset = resource.dataset_of_step(context, to)
        with translate_errors(context, retried=StorageRefused):  # a retry is free, and a catalog may be up again
            with _secrets_hidden({**(storage or {}), **(settings or {})}):
                done = tables.sync(root, table_options=settings, **which)
            if len(done) > 1:
                named = ", ".join(f"{each.format} {each.name}" for each in done)
                raise AskPerson(
                    f"{dataset.url} has several tables ({named}); they are up to date now.",
                    hint="Give table_format and table_name, and an asset to each table.",
                )
            (result,) = done
            keys = orchestration.path_keys(dataset, result.table)
        context.log.info(
            "Loads added: %d (rows: %d); taken out: %d.", len(result.added), result.rows, len(result.removed)
        )
        yield dg.MaterializeResult(asset_key=spec.key, metadata=_metadata(result, keys))

    return AssetBuilder(None, [], {}, "step", to, None, of_step, caller(), sync).make([spec])


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
