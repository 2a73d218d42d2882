"""Syncs the Delta Lake and Iceberg tables of a dataset for the operators.

The settings of storage and catalog come from Airflow connections. Their secrets are masked in every log, and error
texts for XCom and asset events contain none.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import ObjectStoragePath
from airflow.sdk.log import mask_secret

from airflow_provider_weblake.features import AirflowTaskTimeout, conn_id_of, redact
from airflow_provider_weblake.storage import LakePath, connection_of, root_path
from weblake import orchestration
from weblake.errors import DeadlineExceeded, WeblakeError

if TYPE_CHECKING:
    from weblake.tables import RegisteredTable, SyncResult

T = TypeVar("T")
#: Settings of deltalake or pyiceberg. The values are text; pyiceberg's `auth` is a dict.
Settings = dict[str, Any]

#: Maximum number of load ids of a table that go into XCom and asset events; and with a receipt, which stays small.
NAMED, NAMED_IN_RECEIPT = 50, 10
#: Maximum number of characters of an error in XCom and asset events.
MAX_ERROR_CHARS = 500
#: Seconds that a landing task waits for its tables. pyiceberg sends requests to a REST catalog without a timeout.
WAIT_S = 600.0
#: The field of a connection's extra that holds settings for deltalake and pyiceberg.
TABLE_OPTIONS = "table_options"


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """What came of a sync: the tables that are up to date now, and the errors of the others."""

    tables: list[dict[str, object]] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)


def sync(
    root: LakePath,
    *,
    table_format: str | None = None,
    table_name: str | None = None,
    catalog_conn_id: str | None = None,
    everything: bool = False,
) -> SyncOutcome:
    """Sync each of the chosen tables of a dataset, also if another one fails; without tables, the result is empty.

    Raises:
        StorageRefused: The records of the tables cannot be read.
        AskPerson: There is no such connection.
    """
    from weblake import tables

    wanted = [
        each
        for each in tables.list_tables(root)
        if table_format in (None, each.format) and table_name in (None, each.name, each.table)
    ]
    if not wanted:
        return SyncOutcome()
    storage = storage_settings(root)
    catalog: list[Settings] = []  # read once, if a table needs it

    def options_of(table: RegisteredTable) -> Settings:
        if table.format != "iceberg":
            return storage
        if not catalog:
            catalog.append(catalog_settings(catalog_conn_id))
        return {**storage, **catalog[0]}

    done, failures = orchestration.sync_each(
        orchestration.open_dataset(root), wanted, options_of, everything=everything
    )
    secrets = [secret for settings in (storage, *catalog) for secret in orchestration.secrets_in(settings)]
    for failure in failures:
        if isinstance(failure, WeblakeError):
            failure.message = orchestration.without_secrets(failure.message, secrets)
    return SyncOutcome([_xcom_summary(each) for each in done], failures)


def sync_after_landing(to: LakePath, catalog_conn_id: str | None = None) -> dict[str, object]:
    """Sync the tables of a dataset in which a load has landed, and return what goes onto its receipt; never raise.

    Returns `{"tables": […]}`, with `tables_error` if not all of them are up to date; `{}` if the dataset has no tables.
    """
    try:
        found = _run_within(WAIT_S, lambda: sync(root_path(to), catalog_conn_id=catalog_conn_id))
    except AirflowTaskTimeout:
        found = SyncOutcome(errors=[DeadlineExceeded("The task's execution_timeout ended the sync.")])
    except Exception as error:  # noqa: BLE001  # no error of a table may fail a task that has landed
        found = SyncOutcome(errors=[error])
    told: dict[str, object] = {}
    if found.tables or found.errors:
        told["tables"] = [
            {name: value[:NAMED_IN_RECEIPT] if isinstance(value, list) else value for name, value in table.items()}
            for table in found.tables
        ]
    if found.errors:
        told["tables_error"] = " ".join(dict.fromkeys(error_text(each) for each in found.errors))
    return told


def error_text(error: Exception) -> str:
    """Return the text of an error in one line, without secrets of the connections that were used."""
    text = " ".join(f"{error}".split())
    if not isinstance(error, WeblakeError):
        text = f"{type(error).__name__}: {text}"
    return str(redact(text))[:MAX_ERROR_CHARS]


def storage_settings(root: object) -> Settings:
    """Return the settings with which deltalake and pyiceberg reach a root through its Airflow connection.

    For S3 they are made of the connection's fields. `table_options` in the connection's extra adds settings, or
    replaces them, on any storage.
    """
    conn_id = conn_id_of(root) if isinstance(root, ObjectStoragePath) else None
    if not isinstance(root, ObjectStoragePath) or not conn_id:
        return {}
    found = _s3_settings(conn_id) if root.protocol in ("s3", "s3a") else {}
    connection = connection_of(conn_id, "the path", hint="Create it, or name another one.")
    given = connection.extra_dejson.get(TABLE_OPTIONS)
    if isinstance(given, Mapping):
        found.update(_as_settings(given))
    _mask(found)
    return found


def catalog_settings(conn_id: str | None) -> Settings:
    """Return the properties of an Iceberg catalog from its Airflow connection.

    They are those that Airflow's IcebergHook makes of it: the host is the `uri`, the extra has other properties, the
    `type` is rest unless the extra says otherwise, and login and password are the `credential` of a REST catalog.

    Raises:
        AskPerson: There is no such connection.
    """
    if not conn_id:
        return {}
    connection = connection_of(conn_id, "catalog_conn_id", hint="Create it, or name another one.")
    found = _as_settings(connection.extra_dejson)
    if connection.host:
        found["uri"] = connection.host.rstrip("/")
    kind = found.setdefault("type", "rest") if "py-catalog-impl" not in found else None
    if kind == "rest" and connection.login and connection.password:
        found["credential"] = f"{connection.login}:{connection.password}"
    _mask(found)
    return found


def _s3_settings(conn_id: str) -> Settings:
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    hook: AwsGenericHook[Any] = AwsGenericHook(aws_conn_id=conn_id, client_type="s3")
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


def _as_settings(given: Mapping[str, object]) -> Settings:
    """Return settings with text as values, but for nested ones such as pyiceberg's `auth`."""
    return {
        name: dict(value) if isinstance(value, Mapping) else str(value)
        for name, value in given.items()
        if value is not None
    }


def _mask(settings: Mapping[str, object]) -> None:
    """Have Airflow mask the secrets of settings in all logs; it knows some names of secrets by itself, not all."""
    for secret in dict.fromkeys(orchestration.secrets_in(settings)):
        mask_secret(secret)


def _run_within(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns, within some time; it runs in a thread, so that the task's own time limit ends it.

    After that the thread is left alone: a sync that ends at any point commits each load once.

    Raises:
        DeadlineExceeded: It has not ended in time.
    """
    done: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            done.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001  # it is raised in the waiting thread
            done.set_exception(error)

    threading.Thread(target=run, name="weblake-table-sync", daemon=True).start()
    wait([done], seconds)
    if not done.done():
        raise DeadlineExceeded(f"The sync has not ended within {seconds:.0f} seconds.")
    return done.result()


def _xcom_summary(result: SyncResult) -> dict[str, object]:
    return {
        **result.to_dict(),
        "added": len(result.added),
        "removed": len(result.removed),
        "load_ids": list(result.added[-NAMED:]),
    }
