"""What Airflow has depends on its release, 3.0 to 3.3: this module imports it, or defines what stands in for it.

Each feature is detected by its presence. No other module of the provider asks which release it runs on. The table in
`docs/site/airflow/deploy.md` lists the features by release.
"""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger

if TYPE_CHECKING:
    from airflow.sdk import DAG, BaseHook, Connection, ObjectStoragePath, RetryAction, RetryDecision, RetryPolicy, conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
    from airflow.sdk.io import has_fs
    from airflow.sdk.log import redact  # type: ignore[attr-defined]  # it imports it
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
    from pydantic import JsonValue
else:
    try:
        from airflow.sdk import BaseHook
        from airflow.sdk.io import has_fs
    except ImportError:  # Airflow 3.0
        from airflow.hooks.base import BaseHook
        from airflow.io import has_fs
    try:
        from airflow.sdk.log import redact
    except ImportError:  # Airflow 3.0, and 3.1 at first
        try:
            from airflow.sdk.execution_time.secrets_masker import redact
        except ImportError:
            from airflow.sdk._shared.secrets_masker import redact
    try:
        from airflow.sdk import conf
        from airflow.sdk.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowTaskTimeout,
            TaskDeferred,
        )
    except ImportError:  # Airflow 3.0 and 3.1
        from airflow.configuration import conf
        from airflow.exceptions import (
            AirflowException,
            AirflowFailException,
            AirflowNotFoundException,
            AirflowTaskTimeout,
            TaskDeferred,
        )
    try:
        from airflow.sdk import RetryAction, RetryDecision, RetryPolicy
    except ImportError:  # before Airflow 3.3
        from dataclasses import dataclass
        from datetime import timedelta
        from enum import Enum

        class RetryAction(str, Enum):
            """What a policy can decide."""

            RETRY = "retry"
            FAIL = "fail"
            DEFAULT = "default"

        @dataclass(frozen=True)
        class RetryDecision:
            """The decision about one error."""

            action: RetryAction
            retry_delay: timedelta | None = None
            reason: str | None = None

        class RetryPolicy:
            """The base class of policies."""

    try:
        from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
    except ImportError:  # before Airflow 3.3
        AdvanceItem = Any

        class SharedStreamProducer:
            """The base class of polls."""


__all__ = [
    "RETRY_POLICIES",
    "TASKS_IN_TRIGGERER",
    "TRIGGERS_HEAR_KILLS",
    "AdvanceItem",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowTaskTimeout",
    "BaseHook",
    "RetryAction",
    "RetryDecision",
    "RetryPolicy",
    "SharedStreamProducer",
    "TaskDeferred",
    "aextra_dejson",
    "aget_connection",
    "amask_secret",
    "conf",
    "conn_id_of",
    "dag_bag_in_database",
    "has_asset_partitions",
    "has_fs",
    "metrics",
    "redact",
]

#: Whether Airflow evaluates the `retry_policy` of an operator (3.3).
RETRY_POLICIES = RetryPolicy.__module__.startswith("airflow.")
#: Whether Airflow tells a trigger that a user marked or cleared its task (3.3); without it, it is only cancelled.
TRIGGERS_HEAR_KILLS = hasattr(BaseTrigger, "on_kill")
#: Whether a task can begin and end in the triggerer (3.3). Older releases render none of its templates there, or do not
#: start it there, and put its result into XCom as a text.
TASKS_IN_TRIGGERER = hasattr(BaseTrigger, "render_template_fields")


def conn_id_of(path: ObjectStoragePath) -> str | None:
    """Return the id of the connection that a path on object storage names; None if it names none."""
    found: str | None = getattr(path, "conn_id", None) or path.storage_options.get("conn_id")  # no attribute before 3.2
    return found


def has_asset_partitions() -> bool:
    """Return whether an asset's event can have partition keys (3.3)."""
    from airflow.sdk.execution_time.context import OutletEventAccessor

    return hasattr(OutletEventAccessor, "add_partitions")


def dag_bag_in_database(folder: str, *dags: DAG) -> Any:
    """Return the DAG bag of a folder and of further DAGs, written to the metadata database for `dag.test()`."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    module: Any
    try:
        from airflow.dag_processing import dagbag as module
    except ImportError:  # Airflow 3.0 and 3.1
        from airflow.models import dagbag as module
    named = {"bundle_name": "dags-folder"} if "bundle_name" in signature(module.DagBag).parameters else {}
    DagBundlesManager().sync_bundles_to_db()
    bag = module.DagBag(folder, **named)
    for dag in dags:
        dag.relative_fileloc = dag.relative_fileloc or Path(dag.fileloc).name  # Airflow 3.0 knows it of files only
        bag.bag_dag(dag)
    if not bag.import_errors:
        write = getattr(module, "sync_bag_to_db", None) or module.DagBag.sync_to_db
        write(bag, "dags-folder", None)
    return bag


def metrics() -> Any:
    """Return what counts and times for Airflow's metrics: a module since 3.3, a class before."""
    try:
        from airflow.sdk.observability import stats
    except ImportError:  # Airflow 3.0 and 3.1
        from airflow.stats import Stats

        return Stats
    return stats if hasattr(stats, "incr") else stats.Stats  # Airflow 3.2 has the class in the module


async def aget_connection(hook: BaseHook, conn_id: str) -> Connection:
    """Return a connection without blocking the event loop."""
    if hasattr(hook, "aget_connection"):  # since 3.1
        return await hook.aget_connection(conn_id)
    from asgiref.sync import sync_to_async

    # asyncio.to_thread would not do: what Airflow asks its supervisor in such a thread, it awaits on this event loop.
    return await sync_to_async(hook.get_connection)(conn_id)


async def amask_secret(secret: JsonValue) -> None:
    """Mask a secret in the logs of this process and of its supervisor, without blocking the event loop."""
    try:
        from airflow.sdk.log import amask_secret as mask
    except ImportError:  # before 3.3
        from airflow.sdk.log import mask_secret
        from asgiref.sync import sync_to_async

        await sync_to_async(mask_secret)(secret)
    else:
        await mask(secret)


async def aextra_dejson(connection: Connection) -> object:
    """Return a connection's decoded extra, masked in logs, without blocking the event loop."""
    if hasattr(connection, "aextra_dejson"):  # since 3.3; the property of older releases asks the supervisor and blocks
        return await connection.aextra_dejson()
    try:
        found: JsonValue = json.loads(connection.extra or "{}")
    except ValueError:
        return {}  # as Airflow has it
    await amask_secret(found)
    return found
