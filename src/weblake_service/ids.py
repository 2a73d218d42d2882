"""Ids of jobs and of what belongs to them: scrapes, errors and webhooks.

Only the id of a start is drawn: at random, or from a seed and the number of the start. Every other id follows from its
job's id and its place there. A page that is fetched again after a crash has the scrape id that it would have had
without one, and a webhook that is made again is known by its receiver.
"""

from __future__ import annotations

from sqlite3 import Connection
from uuid import UUID, uuid4, uuid5

from weblake_service.store.database import Store

_SEEDS = UUID("6c1f6f0e-3f3b-5c0a-9a51-8d5a9f0f7b11")


class Ids:
    """Draws the ids of jobs and of single calls; with a seed, the same ids for the same calls in the same order."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed

    def start(self, db: Connection) -> str:
        """Return the id of a new start; called in the transaction that records it, so that a refused one takes no
        number.
        """
        if self._seed is None:
            return str(uuid4())
        (number,) = db.execute(
            "INSERT INTO meta VALUES ('starts', '1')"
            " ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1 RETURNING value"
        ).fetchone()
        return str(uuid5(_SEEDS, f"{self._seed}/{int(number)}"))

    async def drawn(self, store: Store) -> str:
        """Return the id of a call whose reply holds it, so that it is needed before anything is recorded."""
        return str(uuid4()) if self._seed is None else await store.write(self.start)


def scrape_id(job_id: str, place: int) -> str:
    """Return the id of the scrape of a job's page."""
    return _under(job_id, f"page/{place}")


def error_id(job_id: str, place: int) -> str:
    """Return the id of the failure of a job's page."""
    return _under(job_id, f"error/{place}")


def delivery_id(job_id: str, event: str, place: int) -> str:
    """Return the id of a webhook: of the page at a place, or of a job that had attempted so many pages then."""
    return _under(job_id, f"webhook/{event}/{place}")


def _under(job_id: str, name: str) -> str:
    return str(uuid5(UUID(job_id), name))
