"""Records and answers calls for one page: scrape and parse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import NoReturn

import msgspec
from starlette.responses import Response

from weblake_service.components import ServiceComponents
from weblake_service.config import Access
from weblake_service.jobs import job_records
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.page_outcomes import Failed, Stored
from weblake_service.responses import ErrorResponse, encode, encoded_json_response
from weblake_service.routes.idempotency import IdempotencyTicket


@dataclass(frozen=True, slots=True)
class SinglePageCall:
    """One scrape or parse call; all of its records are written in one transaction."""

    access: Access
    #: `scrape` or `parse`.
    kind: str
    #: The URL, or the file's name.
    target: str
    id: str
    #: Whether nothing of the page may be stored.
    private: bool
    ticket: IdempotencyTicket
    #: The scrape options (snake_case), for a later interact call.
    options: Mapping[str, object] = field(default_factory=dict)

    async def record_success(
        self, parts: ServiceComponents, page: Stored, keep: Callable[[Connection, float], None] | None = None
    ) -> Response:
        """Record and bill the page and return its response; `keep` runs in the same transaction."""
        reply = encode({"success": True, "data": msgspec.Raw(page.body), "scrape_id": page.scrape_id})
        now = parts.clock.now()

        def work(db: Connection) -> None:
            if keep is not None:
                keep(db, now)
            if self.private:
                job_records.store_private(db, self.access, self.id, page.credits, now, self.kind)
                self.ticket.save_key_only(db)
                return
            job_records.store_single(db, self._job(now), page)
            self.ticket.save(db, 200, reply)

        await parts.store.write(work)
        return encoded_json_response(reply)

    async def record_failure(self, parts: ServiceComponents, refusal: ErrorResponse, failure: Failed) -> NoReturn:
        """Record and bill the failure, and raise the refusal."""
        now = parts.clock.now()

        def work(db: Connection) -> None:
            if self.private:
                job_records.store_private(db, self.access, self.id, failure.credits, now, self.kind)
                if failure.credits:
                    self.ticket.save_key_only(db)
                return
            job_records.store_failed(db, self._job(now), failure)
            self.ticket.save(db, refusal.status, encode(refusal.body()))

        await parts.store.write(work)
        raise refusal

    def _job(self, at: float) -> NewJob:
        return NewJob(self.id, self.kind, self.access, self.target, at, options=self.options, target=self.target)
