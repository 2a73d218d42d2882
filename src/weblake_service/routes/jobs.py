"""Endpoints that batch scrapes and crawls share: status, errors, cancel."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from sqlite3 import Connection

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from weblake_service.components import RouteGroup, ServiceComponents, requester
from weblake_service.jobs import job_records, job_status
from weblake_service.responses import ErrorResponse, encoded_json_response, json_response, read_integer, read_job_id

#: Maximum seconds for which a read beyond the last document of a running job waits.
_HOLD_S = 1.0
#: Maximum seconds for which a watcher may not read.
_SEND_TIMEOUT_S = 60.0


class JobRoutes(RouteGroup):
    """The endpoints of one kind of job."""

    def __init__(self, parts: ServiceComponents, kind: str, path: str) -> None:
        super().__init__(parts)
        self._kind = kind
        self._path = path

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            WebSocketRoute(f"{self._path}/{{id}}", self.watch),
            Route(f"{self._path}/{{id}}", self.status, methods=["GET"]),
            Route(f"{self._path}/{{id}}", self.cancel, methods=["DELETE"]),
            Route(f"{self._path}/{{id}}/errors", self.errors, methods=["GET"]),
        ]

    async def status(self, request: Request) -> Response:
        """Return the counters and one chunk of the documents.

        A read beyond the last document of a running job waits for another one: some clients follow `next` at once.
        """
        job, team, now = read_job_id(request), requester(request).team, self._parts.clock.now()
        skip = read_integer(request, "skip", minimum=0, maximum=None, default=0)
        limit = read_integer(request, "limit", minimum=1, maximum=None, default=None)
        assert skip is not None
        url = f"{job_address(request, self._path)}/{job}"

        def work(db: Connection) -> tuple[bytes, bool]:
            row = job_records.find(db, job, self._kind, team, now)
            more = row["status"] in job_records.ENDED or row["documents"] > skip
            return job_status.status_body(db, row, url, skip=skip, limit=limit, at=now), more

        changed = self._parts.jobs.next_change(job)
        body, more = await self._parts.store.read(work)
        if not more and "skip" in request.query_params:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HOLD_S):
                    await changed.wait()
            body, _ = await self._parts.store.read(work)
        return encoded_json_response(body)

    async def watch(self, socket: WebSocket) -> None:
        """Send a job's documents as they arrive, and its end, to a watcher of a public SDK."""
        protocols = socket.scope["subprotocols"]
        await socket.accept(subprotocol=protocols[0] if protocols else None)
        gone = asyncio.create_task(_until_gone(socket))
        try:
            await self._send_changes(socket, gone)
        except ErrorResponse as refusal:
            await _send(socket, "error", b"null", refusal.error)
        except (WebSocketDisconnect, RuntimeError, TimeoutError):
            # The client has left, or does not read.
            socket.scope["state"]["transport"].abort()
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
        if socket.application_state is socket.client_state is WebSocketState.CONNECTED:
            await socket.close(1000, '{"type":"done"}')

    async def _send_changes(self, socket: WebSocket, gone: asyncio.Task[None]) -> None:
        job, team = read_job_id(socket, unreadable=404), requester(socket).team
        url = f"{job_address(socket, self._path)}/{job}"

        async def read(skip: int) -> bytes:
            now = self._parts.clock.now()

            def work(db: Connection) -> bytes:
                row = job_records.find(db, job, self._kind, team, now)
                return job_status.status_body(db, row, url, skip=skip, limit=None, at=now)

            return await self._parts.store.read(work)

        sent, caught_up, ended = 0, False, False
        while not ended and not gone.done():
            changed = asyncio.ensure_future(self._parts.jobs.next_change(job).wait())
            body = await read(sent)
            status = msgspec.json.decode(body, type=_Status)
            ended = status.status in job_records.ENDED and status.next is None
            sent += len(status.data)
            # Clients stop at the first message with a final status, so earlier chunks of an ended job are sent singly.
            if not caught_up and (ended or status.status not in job_records.ENDED):
                await _send(socket, "catchup", body)
                caught_up = True
            else:
                for document in status.data:
                    await _send(socket, "document", document)
            if not status.data and not ended:
                await asyncio.wait({changed, gone}, timeout=_HOLD_S, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        if ended and status.status == "completed":
            # A client with a subprotocol, in contrast to the SDK for Python, does not collect the documents itself.
            await _send(socket, "done", await read(0 if socket.scope["subprotocols"] else sent))
        elif ended:
            kind = "error" if status.status == "failed" else "catchup"
            await _send(socket, kind, await read(sent), status.error or f"The job was {status.status}.")

    async def errors(self, request: Request) -> Response:
        """Return the failed pages, and those that robots.txt forbids."""
        job, team, now = read_job_id(request, unreadable=404), requester(request).team, self._parts.clock.now()

        def work(db: Connection) -> dict[str, object]:
            job_records.find(db, job, self._kind, team, now, tell=True)
            return job_records.errors(db, job)

        return json_response(await self._parts.store.read(work))

    async def cancel(self, request: Request) -> Response:
        """Cancel the job immediately; its documents stay available."""
        job, team, now = read_job_id(request, unreadable=404), requester(request).team, self._parts.clock.now()

        def work(db: Connection) -> None:
            row = job_records.find(db, job, self._kind, team, now, tell=True)
            if row["status"] in ("completed", "failed"):
                noun = "Crawl" if self._kind == "crawl" else "Batch scrape"
                raise ErrorResponse(409, f"{noun} is already {row['status']}")
            job_records.end(db, job, "cancelled", now, drained=False)

        await self._parts.jobs.cancel(job, work)
        return json_response({"status": "cancelled"})


class _Status(msgspec.Struct):
    """What a watcher needs of a status."""

    status: str
    data: list[msgspec.Raw]
    next: str | None = None
    error: str | None = None


async def _send(socket: WebSocket, kind: str, data: bytes | msgspec.Raw, error: str | None = None) -> None:
    message = {"type": kind, "data": msgspec.Raw(data)} | ({"error": error} if kind == "error" else {})
    async with asyncio.timeout(_SEND_TIMEOUT_S):
        await socket.send_text(msgspec.json.encode(message).decode())


async def _until_gone(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


def job_address(request: HTTPConnection, path: str) -> str:
    """Return the URL of a kind of job, without an id, as the client reaches it; middleware.py has checked its host."""
    return f"{request.url.scheme.replace('ws', 'http')}://{request.headers['host']}{path}"
