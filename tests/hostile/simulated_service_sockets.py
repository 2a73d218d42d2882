"""A simulated service behind a real socket: the faults of the tape are missing, wrong or late bytes."""

from __future__ import annotations

import time

from scripted_service import Play, ReceivedRequest, ScriptedService, close, encoded, head, reply, reset
from simulated_service import Clock, SimulatedService

from weblake.steps import Request

#: What may happen to one request on a socket; `late`: it is performed, and its response is lost.
WIRE_FAULTS = [
    "429 after 0",
    "500",
    "503 after 0",
    "404",
    "reset",
    "reset in the head",
    "reset in the body",
    "closed",
    "closed in the body",
    "late",
    "cut",
    "html",
    "lag",
]


class WallClock(Clock):
    """A clock with the real wall time."""

    def wall(self) -> float:
        return time.time()


class SimulatedServiceOverSockets(ScriptedService):
    """Plays the responses of the simulation, with the faults of the tape."""

    def __init__(self, world: SimulatedService) -> None:
        super().__init__()
        world.clock = WallClock()
        self.world = world

    def _play_for(self, seen: ReceivedRequest) -> Play:
        query = tuple(pair.partition("=")[::2] for pair in seen.query.split("&") if pair)
        request = Request(seen.method, seen.path, query, seen.body, headers=tuple(seen.headers.items()))
        with self._lock:
            fault = self.world.fault(request) or ""
            if fault in ("reset", "closed"):
                return reset() if fault == "reset" else close()
            if fault == "reset in the head":
                return reset(b"HTTP/1.1 200 OK\r\ncontent-ty")
            if fault[:1].isdigit():
                status, _, after = fault.partition(" after ")
                told = {"retry_after": after} if after else {}
                return reply({"success": False, "error": fault}, int(status), **told)
            return self.damaged(encoded(self.world.answer(request, lag=fault == "lag")), fault)

    def damaged(self, body: bytes, fault: str) -> Play:
        """Return a complete or damaged response; the request has been performed."""
        declared = {"weblake_idempotency": "replay"} if self.world.replay else {}
        if fault == "late":
            return reset()
        if fault in ("reset in the body", "closed in the body"):
            part = head(200, length=len(body), content_type="application/json", **declared) + body[: len(body) // 2]
            return reset(part) if fault.startswith("reset") else close(part)
        if fault == "html":
            return reply("<html></html>", content_type="text/html", **declared)
        return reply(body[:-5] if fault == "cut" else body, **declared)
