"""Transports that report each request as an event."""

from __future__ import annotations

import time

from weblake.api.steps import AsyncTransport, NoResponse, Request, Response, Transport
from weblake.events import Observer, RequestFinished


class ObservedTransport:
    """A transport that sends with another one and reports each request to an observer."""

    def __init__(self, transport: Transport, observe: Observer) -> None:
        self._transport = transport
        self._observe = observe

    def send(self, request: Request) -> Response | NoResponse:
        """Send one request within its deadline and return its outcome."""
        begun = time.perf_counter()
        reply = self._transport.send(request)
        self._observe(_request_finished(request, reply, begun))
        return reply


class AsyncObservedTransport:
    """An ObservedTransport for an event loop."""

    def __init__(self, transport: AsyncTransport, observe: Observer) -> None:
        self._transport = transport
        self._observe = observe

    async def send(self, request: Request) -> Response | NoResponse:
        """Send one request within its deadline and return its outcome."""
        begun = time.perf_counter()
        reply = await self._transport.send(request)
        self._observe(_request_finished(request, reply, begun))
        return reply


def _request_finished(request: Request, reply: Response | NoResponse, begun: float) -> RequestFinished:
    status, size = (reply.status, len(reply.body)) if isinstance(reply, Response) else (None, 0)
    return RequestFinished(
        method=request.method,
        path=request.path,
        status=status,
        attempt=request.attempt,
        bytes=size,
        seconds=time.perf_counter() - begun,
    )
