"""Airflow assets for the ends of jobs, with the URI `x-weblake://jobs/<conn_id>/<kind>`.

A watcher or a receiver of webhooks makes the events of these assets. A DAG that is scheduled on such an asset reads or
lands the job; docs/site/airflow/assets-and-webhooks.md shows one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Unpack

from airflow.sdk import Asset

from weblake.errors import InvalidOption
from weblake.orchestration import JOB_KINDS

if TYPE_CHECKING:
    from airflow_provider_weblake.assets.weblake import AssetOptions

#: A connection id that an asset's URI can hold as it is.
_CONN_ID = re.compile(r"[A-Za-z0-9_.\-]{1,200}")


def weblake_jobs_asset(
    kind: str = "batch_scrape",
    weblake_conn_id: str = "weblake_default",
    *,
    name: str | None = None,
    **options: Unpack[AssetOptions],
) -> Asset:
    """Return the asset that has an event for each job of a kind that has ended.

    An event's extra has `kind`, `job_id` and `status`; that of a watcher has them below `payload`.

    :param kind: `batch_scrape` (default) or `crawl`.
    :param weblake_conn_id: the connection to the service that has the jobs.
    :param name: the asset's name; by default its URI.
    :param options: further arguments of `Asset`: group, extra, watchers, access_control.

    Raises:
        InvalidOption: There is no such kind, or the connection id has other characters than letters, digits and `_.-`.
    """
    if kind not in JOB_KINDS:
        raise InvalidOption(f"kind is {kind!r}.", hint=f"Give one of {', '.join(JOB_KINDS)}.")
    if not _CONN_ID.fullmatch(weblake_conn_id):
        raise InvalidOption(
            f"weblake_conn_id is {weblake_conn_id!r}, which the URI of an asset cannot contain.",
            hint="Name the connection with letters, digits and _ . - only.",
        )
    uri = f"x-weblake://jobs/{weblake_conn_id}/{kind}"  # Airflow leaves the URI of a scheme with x- as it is
    return Asset(name or uri, uri, **options)
