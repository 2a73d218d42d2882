"""Ids of jobs and of their scrapes, errors and webhooks.

Only the id of a start is generated: at random, or from a seed and the number of the start. Every other id is derived
from its job's id and a position in the job. A page that is fetched again after a crash therefore has the same scrape
id, and the receiver can recognise a repeated webhook.
"""

from __future__ import annotations

from sqlite3 import Connection
from uuid import UUID, uuid4, uuid5

from weblake_service.store.database import Store

_SEED_NAMESPACE = UUID("6c1f6f0e-3f3b-5c0a-9a51-8d5a9f0f7b11")


class Ids:
    """Generates the ids of jobs and of single calls; with a seed, the same ids for the same sequence of calls."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed

    def start(self, db: Connection) -> str:
        """Return the id of a new start; call it in the transaction that records it, so that a refused start uses no
        number.
        """
        if self._seed is None:
            return str(uuid4())
        (number,) = db.execute(
            "INSERT INTO meta VALUES ('starts', '1')"
            " ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1 RETURNING value"
        ).fetchone()
        return str(uuid5(_SEED_NAMESPACE, f"{self._seed}/{int(number)}"))

    async def draw(self, store: Store) -> str:
        """Return the id of a call whose response contains it, so that it is needed before the call is recorded."""
        return str(uuid4()) if self._seed is None else await store.write(self.start)


def scrape_id(job_id: str, place: int) -> str:
    """Return the id of the scrape of a job's page."""
    return _derive_id(job_id, f"page/{place}")


def error_id(job_id: str, place: int) -> str:
    """Return the id of the failure of a job's page."""
    return _derive_id(job_id, f"error/{place}")


def delivery_id(job_id: str, event: str, place: int) -> str:
    """Return the id of a webhook of a page (by its position) or of a job (by its number of attempted pages)."""
    return _derive_id(job_id, f"webhook/{event}/{place}")


def _derive_id(job_id: str, name: str) -> str:
    return str(uuid5(UUID(job_id), name))
