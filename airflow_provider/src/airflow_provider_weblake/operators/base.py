"""The base classes of the operators: connection, retry policy and remedies; the dataset that is landed in."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_weblake import lineage
from airflow_provider_weblake.hooks.weblake import WeblakeHook
from airflow_provider_weblake.retry_policy import WeblakeRetryPolicy, policy_argument
from airflow_provider_weblake.storage import dataset_of_task
from weblake import options, orchestration
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context, ObjectStoragePath
    from openlineage.client.event_v2 import Dataset as LineageDataset
    from openlineage.client.facet_v2 import RunFacet

    from airflow_provider_weblake.features import RetryPolicy
    from weblake import Client
    from weblake.orchestration import Dataset


class WeblakeOperator(BaseOperator):
    """An operator that calls the service.

    :param weblake_conn_id: The connection (templated).
    :param retry_policy: The policy that decides which failures are retried; default :class:`WeblakeRetryPolicy`.
    """

    template_fields: Sequence[str] = ("weblake_conn_id",)
    ui_color = "#e5f1f4"

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        orchestration.document(cls)

    def __init__(
        self,
        *,
        weblake_conn_id: str = WeblakeHook.default_conn_name,
        retry_policy: RetryPolicy | None = None,
        **kwargs: object,
    ) -> None:
        policy = retry_policy or WeblakeRetryPolicy()
        super().__init__(**policy_argument(policy), **kwargs)  # type: ignore[arg-type]
        self.retry_policy = policy
        self.weblake_conn_id = weblake_conn_id

    @cached_property
    def hook(self) -> WeblakeHook:
        """Return the hook of the connection."""
        return WeblakeHook(self.weblake_conn_id)

    @contextmanager
    def service(self) -> Iterator[Client]:
        """Return a context manager for a client whose progress is logged."""
        with (
            self.hook.get_conn() as client,
            orchestration.observing(client, orchestration.ProgressLog(self.log.log)),
        ):
            yield client


class DatasetOperator(WeblakeOperator):
    """An operator that lands files of a dataset, and reports them to the task's assets and OpenLineage.

    :param to: The dataset's root: a local path, or a storage URL whose user part names an Airflow connection, as in
        `s3://aws_default@lake/web`, or an ObjectStoragePath (templated). Each try of a task needs the same value,
        because the records of its job are there.
    :param sync_tables: After the landing, also commits what has landed to the dataset's Delta Lake and Iceberg tables,
        as WeblakeTableSyncOperator does. The result and the events of outlet assets then have `tables`. If a table
        fails, the task succeeds with a warning, and they have `tables_error` too. Default False.
    :param catalog_conn_id: For `sync_tables`: the connection of the Iceberg catalog; see WeblakeTableSyncOperator
        (templated).
    """

    template_fields: Sequence[str] = (*WeblakeOperator.template_fields, "to", "catalog_conn_id")

    def __init__(
        self,
        *,
        to: str | ObjectStoragePath | None = None,
        sync_tables: bool = False,
        catalog_conn_id: str | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.to = to
        self.sync_tables = sync_tables
        self.catalog_conn_id = catalog_conn_id
        self.landed: dict[str, object] | None = None

    def dataset(self) -> Dataset:
        """Return the dataset that the task lands in, its root rendered."""
        if not self.to:
            raise InvalidOption("`to` is empty.", hint="Give the root of the dataset to land in.")
        refuse_none("`to`", self.to)
        return dataset_of_task(self.to)

    def hosts(self) -> Sequence[str]:
        """Return URLs whose hosts are the inputs of what has landed."""
        url = getattr(self, "url", None)
        return () if url is None else (url,)

    def report_landed(
        self, context: Context, landed: dict[str, object], partitions: Sequence[str] = ()
    ) -> dict[str, object]:
        """Sync the tables if the task does so; report what has landed to the task's assets, and return it for XCom."""
        if self.sync_tables and self.to:
            landed = {**landed, **self._synced(self.to)}
        self.landed = landed
        lineage.outlets_changed(context, landed, self.to, partitions=partitions)
        return landed

    def _synced(self, to: str | ObjectStoragePath) -> dict[str, object]:
        from airflow_provider_weblake.table_sync import sync_after_landing

        told = sync_after_landing(to, self.catalog_conn_id or None)
        if told:
            self.log.info("Tables up to date: %s", json.dumps(told["tables"]))
        if "tables_error" in told:
            self.log.warning(
                "What was landed is safe, but not all tables of the dataset are up to date: %s Sync them later with "
                "WeblakeTableSyncOperator; nothing is lost, doubled or paid again.",
                told["tables_error"],
            )
        return told

    def get_openlineage_facets_on_complete(
        self, task_instance: object
    ) -> OperatorLineage[LineageDataset, RunFacet] | None:
        """Return the OpenLineage metadata: files, rows, columns, hosts and the job."""
        if self.landed is None or self.to is None:
            return None
        return lineage.openlineage_of(self.landed, self.to, self.hosts())


def refuse_none(what: str, given: object) -> None:
    """Raise InvalidOption if an argument is the text that a template leaves where there is no value.

    As a path it would be a directory of the worker, and as a partition value that of every run without a value, each of
    which would replace the load of the one before.
    """
    if str(given).strip() == "None":
        raise InvalidOption(f"{what} is 'None'.", hint="Give a template that has a value in each run.")


def mapping_of(name: str, given: object) -> dict[str, Any]:
    """Return an argument as a dict, empty for None.

    Raises:
        InvalidOption: It is neither a mapping nor the text of one in JSON.
    """
    if isinstance(given, str):
        with suppress(ValueError):
            given = json.loads(given)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidOption(
            f"{name} is a {type(given).__name__}.",
            hint="Give a dict with templates in its values, or a template of JSON: {{ params.options | tojson }}.",
        )
    return dict(given)


def options_of(kind: type, given: object) -> dict[str, Any]:
    """Return options by name, checked; a template leaves numbers, booleans and lists as text."""
    return options.from_texts(kind, mapping_of("options", given))


def required_number(name: str, given: float | str | None) -> float:
    """Return an argument that has to be a number; raise InvalidOption as `number_of` does, also for no value."""
    found = number_of(name, given)
    if found is None:
        raise InvalidOption(f"{name} is {given!r}.", hint="Give a number.")
    return found


def number_of(name: str, given: float | str | None) -> float | None:
    """Return an argument as a number, or None; a template leaves a number as text.

    Raises:
        InvalidOption: It is not a number. This includes the text that a template leaves where there is no value: taken
            as "no limit", it would let a job cost any number of credits.
    """
    if given is None:
        return None
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        hint = "Give a number, or a template that renders to one in each run."
        raise InvalidOption(f"{name} is {given!r}.", hint=hint)
    return number
