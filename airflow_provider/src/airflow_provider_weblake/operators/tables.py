"""The operator that keeps the Delta Lake and Iceberg tables of a dataset in step with its loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, ObjectStoragePath

from airflow_provider_weblake import lineage
from airflow_provider_weblake.remedies import in_airflow_terms
from airflow_provider_weblake.retry_policy import WeblakeRetryPolicy, policy_applied, policy_argument
from airflow_provider_weblake.storage import connection_of, root_path
from weblake import errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_weblake.features import RetryPolicy
    from weblake.tables import SyncResult

#: Maximum number of load ids of a table that go into XCom and asset events.
NAMED = 50


class WeblakeTableSyncOperator(BaseOperator):
    """Commits to the tables of a dataset what has landed, and takes out what was replaced; each load exactly once.

    The tables are registered once, with `weblake table add` or `weblake.tables.add`. Retries, Clears and several runs
    at the same time are harmless. The task needs `weblake[delta]` or `weblake[iceberg]` on its worker.

    Returns `{"tables": [{"format", "table", "identifier", "location", "version", "added", "removed", "rows",
    "table_rows", "load_ids"}, …]}`: `added` and `removed` are numbers of loads, `load_ids` the added ones, 50 at most.
    The events of the task's outlet assets carry the same.

    :param to: The dataset's root: a local path, or a storage URL whose user part names an Airflow connection, as in
        `s3://aws_default@lake/web`. For S3, the tables are then reached with the same connection (templated).
    :param table_format: Only tables of this format, `delta` or `iceberg`. Default: all (templated).
    :param table_name: Only the table with this identifier, or of this table of the dataset. Default: all (templated).
    :param catalog_conn_id: For Iceberg: the connection of the catalog. Its host is the `uri`, its login and password
        are the `credential`, its extra has any other property. Default: pyiceberg's own configuration (templated).
    :param everything: Looks at every load of the dataset, not only at those since the last sync.
    :param retry_policy: The policy that decides which failures are retried; default WeblakeRetryPolicy.
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
        policy = retry_policy or WeblakeRetryPolicy()
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

        with in_airflow_terms():
            if not self.to:
                raise errors.InvalidOption("`to` is empty.", hint="Give the root of the dataset.")
            root = root_path(self.to)
            done = tables.sync(
                root,
                format=self.table_format or None,
                name=self.table_name or None,
                everything=self.everything,
                table_options={**storage_settings(root), **catalog_settings(self.catalog_conn_id)},
            )
        for each in done:
            counts = len(each.added), each.rows, len(each.removed), each.version
            self.log.info("%s %s: %d loads added (%d rows), %d taken out, version %d.", each.format, each.name, *counts)
        told: dict[str, object] = {"tables": [_shown(each) for each in done]}
        lineage.outlets_changed(context, told)
        return told


def storage_settings(root: object) -> dict[str, str]:
    """Return the settings with which deltalake and pyiceberg reach a root on S3 through its Airflow connection."""
    if not isinstance(root, ObjectStoragePath) or not root.conn_id or root.protocol not in ("s3", "s3a"):
        return {}
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    hook: AwsGenericHook[Any] = AwsGenericHook(aws_conn_id=root.conn_id, client_type="s3")
    keys = hook.get_credentials()
    endpoint = hook.conn_config.get_service_endpoint_url("s3")
    found = {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_SESSION_TOKEN": keys.token,
        "AWS_REGION": hook.region_name,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true" if endpoint and endpoint.startswith("http://") else None,
        "s3.access-key-id": keys.access_key,
        "s3.secret-access-key": keys.secret_key,
        "s3.session-token": keys.token,
        "s3.region": hook.region_name,
        "s3.endpoint": endpoint,
    }
    return {name: value for name, value in found.items() if value}


def catalog_settings(conn_id: str | None) -> dict[str, str]:
    """Return the properties of an Iceberg catalog from its Airflow connection.

    Raises:
        AskPerson: There is no such connection.
    """
    if not conn_id:
        return {}
    connection = connection_of(conn_id, "catalog_conn_id", hint="Create it, or name another one.")
    found = {name: str(value) for name, value in connection.extra_dejson.items()}
    if connection.host:
        found.setdefault("uri", connection.host)
    if connection.login and connection.password:
        found.setdefault("credential", f"{connection.login}:{connection.password}")
    return found


def _shown(result: SyncResult) -> dict[str, object]:
    shown = result.to_dict()
    del shown["deleted_files"]
    return {
        **shown,
        "added": len(result.added),
        "removed": len(result.removed),
        "load_ids": list(result.added[-NAMED:]),
    }
