"""The operator that keeps the Delta Lake and Iceberg tables of a dataset up to date with its loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator, ObjectStoragePath

from airflow_provider_weblake import lineage
from airflow_provider_weblake.retry_policy import TableSyncRetryPolicy, policy_applied, policy_argument
from airflow_provider_weblake.storage import connection_of, root_path
from airflow_provider_weblake.table_sync import error_text, sync
from weblake import errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_weblake.features import RetryPolicy


class WeblakeTableSyncOperator(BaseOperator):
    """Commits to the tables of a dataset what has landed, and takes out what was replaced; each load exactly once.

    The tables are registered once, with `weblake table add` or `weblake.tables.add`. Retries, Clears and several runs
    at the same time are harmless. The task needs `weblake[delta]` or `weblake[iceberg]` on its worker. If a table
    fails, the others are synced before the task fails.

    Returns `{"tables": [{"format", "table", "identifier", "location", "version", "added", "removed", "rows",
    "table_rows", "load_ids"}, …]}`: `added` and `removed` are numbers of loads, `rows` the rows of the added ones,
    `load_ids` their ids, 50 at most. The event of an outlet asset carries the same; if the asset's URI is
    the location of one of the tables, it carries that table only. An AssetAlias gets an event for each table that has
    changed.

    :param to: The dataset's root: a local path, or a storage URL whose user part names an Airflow connection, as in
        `s3://aws_default@lake/web`. For S3, the tables are then reached with the same connection; `table_options` in
        its extra has other settings for deltalake and pyiceberg, on any storage (templated).
    :param table_format: Only tables of this format, `delta` or `iceberg`. Default: all (templated).
    :param table_name: Only the table with this identifier, or of this table of the dataset. Default: all (templated).
    :param catalog_conn_id: For Iceberg: the connection of the catalog, of the type *iceberg* or any other. Its host is
        the `uri`, its extra has other properties (`type` is rest by default), its login and password are the
        `credential` of a REST catalog. Default: pyiceberg's own configuration (templated).
    :param everything: Looks up every load in the table's log, not only those since the last sync. Default False.
    :param retry_policy: The policy that decides which failures are retried; default TableSyncRetryPolicy.
    """

    template_fields: Sequence[str] = ("to", "table_format", "table_name", "catalog_conn_id")
    ui_color = "#e5f1f4"

    def __init__(
        self,
        *,
        to: str | ObjectStoragePath,
        table_format: str | None = None,
        table_name: str | None = None,
        catalog_conn_id: str | None = None,
        everything: bool = False,
        retry_policy: RetryPolicy | None = None,
        **kwargs: object,
    ) -> None:
        policy = retry_policy or TableSyncRetryPolicy()
        super().__init__(**policy_argument(policy), **kwargs)  # type: ignore[arg-type]
        self.retry_policy = policy
        self.to = to
        self.table_format = table_format
        self.table_name = table_name
        self.catalog_conn_id = catalog_conn_id
        self.everything = everything

    @policy_applied
    def execute(self, context: Context) -> dict[str, object]:
        """Sync the tables, and report their versions to the task's assets."""
        from weblake import tables

        chosen = {"table_format": self.table_format or None, "table_name": self.table_name or None}
        if not self.to:
            raise errors.InvalidOption("`to` is empty.", hint="Give the root of the dataset.")
        root = root_path(self.to)
        if self.catalog_conn_id:
            connection_of(self.catalog_conn_id, "catalog_conn_id", hint="Create it, or name another one.")
        found = sync(root, catalog_conn_id=self.catalog_conn_id or None, everything=self.everything, **chosen)
        if not found.tables and not found.errors:  # this raises the error that says so
            tables.sync(root, format=chosen["table_format"], name=chosen["table_name"])
        for table in found.tables:
            self.log.info(
                "%s %s: %d loads added (%d rows), %d taken out, version %d.",
                *(table["format"], table["identifier"] or table["table"], table["added"], table["rows"]),
                *(table["removed"], table["version"]),
            )
        for error in found.errors[1:]:
            self.log.error("Another table could not be synced: %s", error_text(error))
        if found.errors:
            raise found.errors[0]
        told: dict[str, object] = {"tables": found.tables}
        lineage.outlets_changed(context, told)
        return told
