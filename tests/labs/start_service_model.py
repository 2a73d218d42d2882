"""A model of a service for starts: jobs, idempotency keys, requests that arrive late."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from weblake.api.steps import Response

BEGAN = 1_800_000_000.0


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()


class Headers(dict[str, str]):
    """Headers as a part of a state."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def reply(status: int, body: object, now: float, **headers: str) -> Response:
    known = Headers({"content-type": "application/json"} | headers)
    return Response(status, known, json.dumps(body).encode(), received_at=now)


@dataclass(frozen=True)
class Service:
    """The state of a service."""

    #: Jobs with their times.
    jobs: tuple[tuple[str, float], ...] = ()
    #: Idempotency keys and the jobs that they made.
    keys: tuple[tuple[str, str], ...] = ()
    #: Requests that have yet to take effect: their times and keys.
    late: tuple[tuple[float, str], ...] = ()

    def at(self, now: float, kind: str) -> Service:
        """Return the state at a later time."""
        due, found = [each for each in self.late if each[0] <= now], self
        for when, key in due:
            found = found.start(key, when, kind)[0]
        return replace(found, late=tuple(each for each in self.late if each[0] > now))

    def start(self, key: str, now: float, kind: str) -> tuple[Service, str | None]:
        """Return the service after a start, and the job; None if the key is used up."""
        known = dict(self.keys).get(key)
        if known is not None and kind != "none":
            return self, known if kind == "replay" else None
        job = str(uuid.UUID(int=len(self.jobs) + 1, version=4))
        return replace(self, jobs=(*self.jobs, (job, now)), keys=(*self.keys, (key, job))), job
