"""Endpoints that batch scrapes and crawls share: status, errors, cancel."""

from __future__ import annotations

import asyncio
from sqlite3 import Connection

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from weblake_service.components import RouteGroup, requester
from weblake_service.jobs import job_records, job_status
from weblake_service.responses import ErrorResponse, encoded_json_response, json_response, read_integer, read_job_id

#: Seconds for which a read beyond the last document of a running job waits.
_HOLD_S = 0.25


class JobRoutes(RouteGroup):
    """The endpoints of one kind of job, which a subclass names."""

    kind: str
    path: str

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            WebSocketRoute(f"{self.path}/{{id}}", _end_connection),
            Route(f"{self.path}/{{id}}", self.status, methods=["GET"]),
            Route(f"{self.path}/{{id}}", self.cancel, methods=["DELETE"]),
            Route(f"{self.path}/{{id}}/errors", self.errors, methods=["GET"]),
        ]

    async def status(self, request: Request) -> Response:
        """Return the counters and one chunk of the documents.

        A read beyond the last document of a running job waits a moment: some clients follow `next` at once.
        """
        job, team, now = read_job_id(request), requester(request).team, self._parts.clock.now()
        skip = read_integer(request, "skip", minimum=0, maximum=None, default=0)
        limit = read_integer(request, "limit", minimum=1, maximum=None, default=None)
        assert skip is not None
        url = f"{job_address(request, self.path)}/{job}"

        def work(db: Connection) -> tuple[bytes, bool]:
            row = job_records.find(db, job, self.kind, team, now)
            more = row["status"] in job_records.ENDED or row["documents"] > skip
            return job_status.status_body(db, row, url, skip=skip, limit=limit, at=now), more

        body, more = await self._parts.store.read(work)
        if not more and "skip" in request.query_params:
            await asyncio.sleep(_HOLD_S)
            body, _ = await self._parts.store.read(work)
        return encoded_json_response(body)

    async def errors(self, request: Request) -> Response:
        """Return the failed pages, and those that robots.txt forbids."""
        job, team, now = read_job_id(request, unreadable=404), requester(request).team, self._parts.clock.now()

        def work(db: Connection) -> dict[str, object]:
            job_records.find(db, job, self.kind, team, now, tell=True)
            return job_records.errors(db, job)

        return json_response(await self._parts.store.read(work))

    async def cancel(self, request: Request) -> Response:
        """Cancel the job immediately; its documents stay available."""
        job, team, now = read_job_id(request, unreadable=404), requester(request).team, self._parts.clock.now()

        def work(db: Connection) -> None:
            row = job_records.find(db, job, self.kind, team, now, tell=True)
            if row["status"] in ("completed", "failed"):
                noun = "Crawl" if self.kind == "crawl" else "Batch scrape"
                raise ErrorResponse(409, f"{noun} is already {row['status']}")
            job_records.end(db, job, "cancelled", now, drained=False)

        await self._parts.jobs.cancel(job, work)
        return json_response({"status": "cancelled"})


async def _end_connection(socket: WebSocket) -> None:
    """Accept a watcher of a public SDK and close: it polls after that, while a refusal ends the one for JavaScript."""
    await socket.accept(subprotocol=next(iter(socket.scope["subprotocols"]), None))
    await socket.close()


def job_address(request: Request, path: str) -> str:
    """Return the URL of a kind of job, without an id, as the client reaches it; middleware.py has checked its host."""
    return f"{request.url.scheme}://{request.headers['host']}{path}"
