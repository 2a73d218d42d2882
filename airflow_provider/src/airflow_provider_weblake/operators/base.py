"""The base class of all operators: connection, retry policy and remedies in Airflow's terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator

from airflow_provider_weblake.hooks.weblake import WeblakeHook
from airflow_provider_weblake.remedies import in_airflow_terms
from airflow_provider_weblake.retry_policy import WeblakeRetryPolicy

if TYPE_CHECKING:
    from airflow.sdk import RetryPolicy

    from weblake import Client


class WeblakeOperator(BaseOperator):
    """An operator that calls the service.

    :param weblake_conn_id: The connection (templated).
    :param retry_policy: The policy that decides which failures are retried; default :class:`WeblakeRetryPolicy`.
    """

    template_fields: Sequence[str] = ("weblake_conn_id",)
    ui_color = "#e5f1f4"

    def __init__(
        self,
        *,
        weblake_conn_id: str = WeblakeHook.default_conn_name,
        retry_policy: RetryPolicy | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(retry_policy=retry_policy or WeblakeRetryPolicy(), **kwargs)  # type: ignore[arg-type]
        self.weblake_conn_id = weblake_conn_id

    @cached_property
    def hook(self) -> WeblakeHook:
        """Return the hook of the connection."""
        return WeblakeHook(self.weblake_conn_id)

    @contextmanager
    def service(self) -> Iterator[Client]:
        """Return a context manager for a client, in which errors are worded for Airflow."""
        with in_airflow_terms(), self.hook.get_conn() as client:
            yield client
