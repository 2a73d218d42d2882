"""A service that repeats a cycle of behaviours for ever, on a virtual clock."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field

from simulated_service import Clock, Page

from weblake.api.steps import NoResponse, Request, Response

#: Refusals by name: the status, Retry-After, and the share of the request's deadline that they take.
REFUSALS = {
    "429": (429, "", 0.0),
    "429, 0": (429, "0", 0.0),
    "429, 1": (429, "1", 0.0),
    "429, 59": (429, "59", 0.0),
    "slow 429, 0": (429, "0", 0.9),
    "429, a day": (429, "86400", 0.0),
    "500": (500, "", 0.0),
    "slow 503": (503, "", 0.9),
    "503, 5": (503, "5", 0.0),
}
#: Missing responses by name: the share of the deadline that they take, and whether the request was sent.
SILENCE = {"timeout": (1.0, True), "reset": (0.0, True), "refused": (0.0, False)}
#: Job reads by name: the job's status, whether there are new documents, and whether `next` is set.
JOBS = {
    "runs": ("scraping", False, False),
    "ponders": ("pondering", False, False),
    "grows": ("scraping", True, True),
    "leads on": ("scraping", False, True),
    "ended, and grows": ("completed", True, True),
    "ended, and leads on": ("completed", False, True),
}
BEHAVIOURS = [*JOBS, *REFUSALS, *SILENCE, "html", "cut"]


class TooManyRequests(AssertionError):
    """The client sent more requests than any bound allows."""


@dataclass
class EndlessService:
    """The service; counts its requests and the time that they took."""

    behaviours: list[str]
    #: The number of requests after which TooManyRequests is raised.
    most: int = 20_000
    #: Seconds that every response takes.
    latency_s: float = 0.0
    replay: bool = False
    clock: Clock = field(default_factory=Clock)
    sent: int = 0
    starts: int = 0
    slept: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.clock.sleep(seconds)

    def send(self, request: Request) -> Response | NoResponse:
        self.sent += 1
        self.starts += request.method == "POST"
        if self.sent > self.most:
            raise TooManyRequests(f"{self.sent} requests, {self.slept:.0f} s of waits: {self.behaviours}")
        assert request.deadline_s > 0
        behaviour = self.behaviours[(self.sent - 1) % len(self.behaviours)]
        share = (
            SILENCE[behaviour][0] if behaviour in SILENCE else REFUSALS[behaviour][2] if behaviour in REFUSALS else 0.0
        )
        self.clock.passed += min(request.deadline_s, max(self.latency_s, share * request.deadline_s))
        if behaviour in SILENCE:
            _, sent = SILENCE[behaviour]
            return NoResponse(behaviour, sent=sent)
        if behaviour in REFUSALS:
            status, after, _ = REFUSALS[behaviour]
            return self.reply({"success": False, "error": behaviour}, status, {"retry-after": after} if after else {})
        body = self.answer(request, *JOBS.get(behaviour, ("completed", True, True)))
        if behaviour == "html":
            return self.reply("<html></html>")
        whole = self.reply(body)
        return Response(200, {}, bytes(whole.body[:-3]), received_at=whole.received_at) if behaviour == "cut" else whole

    def answer(self, request: Request, status: str, new: bool, more: bool) -> object:
        n = self.sent
        if request.method in ("POST", "DELETE"):
            return {"success": True, "id": str(uuid.UUID(int=n))}
        if request.path.startswith("/v2/team/activity"):
            entry = {"id": str(uuid.UUID(int=n)), "endpoint": "map", "created_at": "2026-11-21T00:00:00Z"}
            return {"success": True, "data": [entry], "cursor": f"after {n}" if more else None, "has_more": more}
        if request.path.startswith("/v2/team/"):
            return {"success": True, "periods": []}
        if request.path.endswith("/errors"):
            return {"errors": [], "robotsBlocked": []}
        page: Page = {"markdown": f"{n}", "metadata": {"sourceURL": f"https://site.test/page/{n}"}}
        link = f"https://service.test{request.path}?skip={n}" if more else None
        return {"status": status, "total": n, "completed": n, "next": link, "data": [page] if new else []}

    def reply(self, body: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        told = {"weblake-idempotency": "replay"} if self.replay else {}
        return Response(status, told | (headers or {}), json.dumps(body).encode(), received_at=self.clock.wall())
