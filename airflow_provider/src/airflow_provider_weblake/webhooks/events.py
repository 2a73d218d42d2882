"""Asset events of ended jobs, in Airflow's metadata database: one for each job and status."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow.assets.manager import asset_manager
from airflow.models.asset import AssetActive, AssetEvent, AssetModel
from airflow.utils.session import create_session
from sqlalchemy import Text, and_, cast, select, update

from airflow_provider_weblake.assets.jobs import jobs_asset_uri
from weblake import orchestration, webhooks
from weblake.errors import FixRequest

#: The webhooks that become events. `started` and `page` say nothing about a job's end.
ENDS = ("completed", "failed")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLAIN_TEXT = re.compile(r"[\x20-\x7e]{1,200}")


class NoAsset(Exception):
    """No DAG names the asset of the event."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A webhook that says that a job has ended."""

    kind: str
    job_id: str
    status: str
    success: bool | None
    webhook_id: str | None

    @classmethod
    def of(cls, event: webhooks.WebhookEvent) -> JobEnd | None:
        """Return what a webhook says about the end of a job; None if it is about something else.

        Raises:
            FixRequest: The job's id is not a UUID.
        """
        kind, _, status = (event.type or "").rpartition(".")
        if kind not in orchestration.JOB_KINDS or status not in ENDS:
            return None
        job_id = (event.id or "").lower()
        if not _UUID.fullmatch(job_id):
            raise FixRequest("The webhook's id is not a job id.", hint="A job id is a UUID.")
        webhook_id = event.webhook_id if _PLAIN_TEXT.fullmatch(event.webhook_id or "") else None
        return cls(kind, job_id, status, event.success, webhook_id)

    @property
    def type(self) -> str:
        """The type of the webhook, such as `crawl.completed`."""
        return f"{self.kind}.{self.status}"

    def extra(self) -> dict[str, Any]:
        """Return the extra of the asset event."""
        return {
            "kind": self.kind,
            "job_id": self.job_id,
            "status": self.status,
            "event": self.type,
            "success": self.success,
            "webhook_id": self.webhook_id,
        }


def record(conn_id: str, end: JobEnd) -> bool:
    """Make the asset event of a job's end, and queue the DAGs that are scheduled on the asset.

    Returns whether the event is new: False if the asset already has an event of this job and status, from whichever
    API server. All changes are in one transaction.

    Raises:
        NoAsset: No DAG names the asset.
        SQLAlchemyError: The database did not accept it; nothing has changed.
    """
    uri = jobs_asset_uri(end.kind, conn_id)
    with create_session(scoped=False) as session:
        # An update that changes nothing locks the asset's row in every database, and all of SQLite. It comes before any
        # reading, so that the next statement sees what the previous holder of the lock has committed.
        lock = update(AssetModel).where(AssetModel.uri == uri).values(updated_at=AssetModel.updated_at)
        session.execute(lock.execution_options(synchronize_session=False))
        active = and_(AssetActive.name == AssetModel.name, AssetActive.uri == AssetModel.uri)
        asset = session.scalar(select(AssetModel).join(AssetActive, active).where(AssetModel.uri == uri))
        if asset is None:
            raise NoAsset(f"No DAG names the asset {uri}.")
        # As text, because the type of the column differs between releases of Airflow.
        alike = cast(AssetEvent.extra, Text).like(f"%{end.job_id}%")
        extras = session.scalars(select(AssetEvent.extra).where(AssetEvent.asset_id == asset.id, alike))
        if any((extra.get("event"), extra.get("job_id")) == (end.type, end.job_id) for extra in extras):
            return False
        made = asset_manager.register_asset_change(asset=asset, extra=end.extra(), source_is_api=True, session=session)
        if made is None:
            raise NoAsset(f"No DAG names the asset {uri}.")
    return True
