"""What Airflow has depends on its release, 3.0 to 3.3: this module imports it, or defines what stands in for it.

Each feature is detected by its presence. No other module of the provider asks which release it runs on. The table in
`docs/airflow.md` lists the features by release.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, BaseTrigger

try:
    from airflow.sdk import BaseHook
except ImportError:  # Airflow 3.0
    from airflow.hooks.base import BaseHook  # type: ignore[no-redef, assignment]
try:
    from airflow.sdk import conf
except ImportError:  # Airflow 3.0 and 3.1
    from airflow.configuration import conf  # type: ignore[no-redef, assignment]
try:
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
except ImportError:  # Airflow 3.0 and 3.1
    from airflow.exceptions import (  # type: ignore[no-redef, assignment]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowTaskTimeout,
        TaskDeferred,
    )
try:
    from airflow.sdk.io import has_fs
except ImportError:  # Airflow 3.0
    from airflow.io import has_fs  # type: ignore[no-redef, assignment]
try:
    from airflow.sdk import RetryDecision, RetryPolicy
    from airflow.sdk.definitions.retry_policy import RetryAction

    #: Whether an operator has a `retry_policy`, which Airflow evaluates (3.3).
    RETRY_POLICIES = True
except ImportError:
    RETRY_POLICIES = False

    class RetryAction(str, Enum):  # type: ignore[no-redef]
        """What a policy decides, as in Airflow 3.3."""

        RETRY = "retry"
        FAIL = "fail"
        DEFAULT = "default"

    @dataclass(frozen=True)
    class RetryDecision:  # type: ignore[no-redef]
        """The decision of a policy, as in Airflow 3.3."""

        action: RetryAction
        retry_delay: timedelta | None = None
        reason: str | None = None

        @classmethod
        def retry(cls, delay: timedelta | None = None, reason: str | None = None) -> RetryDecision:
            """Return the decision to retry after a time."""
            return cls(RetryAction.RETRY, delay, reason)

        @classmethod
        def fail(cls, reason: str | None = None) -> RetryDecision:
            """Return the decision to fail without a retry."""
            return cls(RetryAction.FAIL, reason=reason)

        @classmethod
        def default(cls) -> RetryDecision:
            """Return the decision to do as the task is configured."""
            return cls(RetryAction.DEFAULT)

    class RetryPolicy:  # type: ignore[no-redef]
        """The base of policies, as in Airflow 3.3."""


try:
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

    #: Whether watchers share a poll, and are told when their events are stored (3.3).
    SHARED_STREAMS = True
except ImportError:
    SHARED_STREAMS = False
    AdvanceItem = Any  # type: ignore[misc, assignment]

    class SharedStreamProducer:  # type: ignore[no-redef]
        """The base of polls, as in Airflow 3.3."""


if TYPE_CHECKING:
    from airflow.sdk import DAG, Connection

__all__ = [
    "RETRY_POLICIES",
    "SHARED_STREAMS",
    "TEMPLATES_IN_TRIGGERS",
    "TRIGGERS_HEAR_KILLS",
    "AdvanceItem",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowRescheduleException",
    "AirflowTaskTimeout",
    "BaseEventTrigger",
    "BaseHook",
    "BaseTrigger",
    "RetryAction",
    "RetryDecision",
    "RetryPolicy",
    "SharedStreamProducer",
    "TaskDeferred",
    "aextra_dejson",
    "aget_connection",
    "amask_secret",
    "conf",
    "dag_bag_in_database",
    "has_asset_partitions",
    "has_fs",
]

#: Whether Airflow tells a trigger that a user marked or cleared its task (3.3); without it, it is only cancelled.
TRIGGERS_HEAR_KILLS = hasattr(BaseTrigger, "on_kill")
#: Whether a triggerer renders the templates of a task that starts in it (3.3).
TEMPLATES_IN_TRIGGERS = hasattr(BaseTrigger, "render_template_fields")


def has_asset_partitions() -> bool:
    """Return whether an asset's event can have partition keys (3.3)."""
    from airflow.sdk.execution_time.context import OutletEventAccessor

    return hasattr(OutletEventAccessor, "add_partitions")


def dag_bag_in_database(folder: str, *dags: DAG) -> Any:
    """Return the DAG bag of a folder and of further DAGs, written to the metadata database for `dag.test()`."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    try:
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    except ImportError:  # Airflow 3.0 and 3.1
        from airflow.models import dagbag

        DagBag = dagbag.DagBag
        sync_bag_to_db = getattr(dagbag, "sync_bag_to_db", None) or DagBag.sync_to_db
    named = {"bundle_name": "dags-folder"} if "bundle_name" in signature(DagBag).parameters else {}
    DagBundlesManager().sync_bundles_to_db()
    bag = DagBag(folder, **named)
    for dag in dags:
        dag.relative_fileloc = dag.relative_fileloc or Path(dag.fileloc).name  # Airflow 3.0 knows it of files only
        bag.bag_dag(dag)
    if not bag.import_errors:
        sync_bag_to_db(bag, "dags-folder", None)
    return bag


async def aget_connection(hook: BaseHook, conn_id: str) -> Connection:
    """Return a connection without blocking the event loop."""
    if hasattr(hook, "aget_connection"):  # since 3.1
        found: Connection = await hook.aget_connection(conn_id)
        return found
    from asgiref.sync import sync_to_async

    # asyncio.to_thread would not do: what Airflow asks its supervisor in such a thread, it awaits on this event loop.
    return await sync_to_async(hook.get_connection)(conn_id)


async def amask_secret(secret: object) -> None:
    """Mask a secret in the logs of this process and of its supervisor, without blocking the event loop."""
    try:
        from airflow.sdk.log import amask_secret as mask
    except ImportError:  # before 3.3
        from airflow.sdk.log import mask_secret
        from asgiref.sync import sync_to_async

        await sync_to_async(mask_secret)(secret)
    else:
        await mask(secret)  # type: ignore[arg-type]


async def aextra_dejson(connection: Connection) -> object:
    """Return a connection's decoded extra, masked in logs, without blocking the event loop."""
    if hasattr(connection, "aextra_dejson"):  # since 3.3; the property of older releases asks the supervisor and blocks
        return await connection.aextra_dejson()
    try:
        found: object = json.loads(connection.extra or "{}")
    except ValueError:
        return {}  # as Airflow has it, with a log entry that a worker writes, too
    await amask_secret(found)
    return found
