"""Airflow assets for the ends of jobs, with the URI `x-weblake://jobs/<conn_id>/<kind>`.

The webhook receiver of the API server makes the events of these assets, one for each job that has ended. DAGs that are
scheduled on such an asset read or land the job; docs/webhooks-to-assets.md shows one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow.sdk import Asset
from typing_extensions import Unpack

from weblake.errors import InvalidOption
from weblake.orchestration import JOB_KINDS

if TYPE_CHECKING:
    from airflow_provider_weblake.assets.weblake import AssetOptions

#: A connection id that the path of a webhook and an asset's URI can hold as it is.
CONN_ID = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
#: What the URIs of these assets begin with. Airflow leaves the URI of a scheme with x- as it is.
JOBS_URI = "x-weblake://jobs/"


def weblake_jobs_asset(
    kind: str = "batch_scrape",
    weblake_conn_id: str = "weblake_default",
    *,
    name: str | None = None,
    **options: Unpack[AssetOptions],
) -> Asset:
    """Return the asset that has an event for each job of a kind whose end the service announces by a webhook.

    An event's extra is `kind`, `job_id`, `status` (`completed` or `failed`), `event` (the webhook's type, such as
    `crawl.completed`), `success` and `webhook_id` (None if the service sends none).

    :param kind: `batch_scrape` (default) or `crawl`.
    :param weblake_conn_id: the connection whose id is in the webhook's path.
    :param name: the asset's name; by default its URI.
    :param options: further arguments of `Asset`: group, extra, watchers, access_control.

    Raises:
        InvalidOption: There is no such kind, or the connection id has other characters than letters, digits and `_.-`.
    """
    uri = jobs_asset_uri(kind, weblake_conn_id)
    return Asset(name or uri, uri, **options)


def jobs_asset_uri(kind: str, weblake_conn_id: str) -> str:
    """Return the URI of the asset of a connection's jobs of a kind; raise as `weblake_jobs_asset` does."""
    if kind not in JOB_KINDS:
        raise InvalidOption(f"kind is {kind!r}.", hint=f"Give one of {', '.join(JOB_KINDS)}.")
    if not CONN_ID.fullmatch(weblake_conn_id):
        raise InvalidOption(
            f"weblake_conn_id is {weblake_conn_id!r}, which the path of a webhook cannot contain.",
            hint="Name the connection with letters, digits and _ . - only.",
        )
    return f"{JOBS_URI}{weblake_conn_id}/{kind}"
