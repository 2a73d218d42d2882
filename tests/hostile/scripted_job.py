"""A job of a scripted service, chunk by chunk, every part of which a test can change."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence

from scripted_service import Play, ScriptedService, each, reply

JOB = "0b8f3c52-6f0d-4a41-9d1c-3f5a7e9b2c11"
OTHER = "1c9a4d63-7a1e-4b52-8e2d-4a6b8fac3d22"
PATHS = {"batch": "/v2/batch/scrape", "crawl": "/v2/crawl"}
ACTIVITY = "GET /v2/team/activity"

Page = dict[str, object]


def url_of(n: int) -> str:
    return f"https://site.test/page/{n}"


def page(n: int, **more: object) -> Page:
    """Return page N as a document, equal each time."""
    metadata = {
        "sourceURL": url_of(n),
        "url": url_of(n),
        "statusCode": 200,
        "scrapeId": str(uuid.uuid5(uuid.NAMESPACE_URL, url_of(n))),
        "title": f"Page {n}",
    }
    return {"markdown": f"# Page {n}", "metadata": metadata} | more


def pages(count: int, first: int = 0) -> list[Page]:
    return [page(n) for n in range(first, first + count)]


class Job:
    """A job of a scripted service; `chunks` and `errors` may be changed until they are read.

    Args:
        service: The service that has the job.
        documents: The documents of the job.
        cut: Documents per chunk.
        word: The status of the job.
        head: Further fields of every chunk, or other values for them.
    """

    def __init__(
        self,
        service: ScriptedService,
        documents: Sequence[object],
        *,
        cut: int = 100,
        kind: str = "batch",
        job_id: str = JOB,
        word: str = "completed",
        **head: object,
    ) -> None:
        self.service, self.kind, self.job_id = service, kind, job_id
        self.path = f"{PATHS[kind]}/{job_id}"
        self.chunks: dict[int, dict[str, object]] = {}
        self.errors: object = {"errors": [], "robotsBlocked": []}
        self._head = {
            "success": True,
            "status": word,
            "total": len(documents),
            "completed": len(documents),
            "creditsUsed": len(documents),
            "expiresAt": "2099-01-01T00:00:00.000Z",
        } | head
        for start in range(0, max(1, len(documents)), cut):
            end = start + cut
            self.chunk(start, documents[start:end], end if end < len(documents) else None)
        service.on(f"GET {self.path}/errors", each(lambda _: reply(self.errors)))

    @property
    def read(self) -> str:
        """Return the name of its status request."""
        return f"GET {self.path}"

    def chunk(self, skip: int, documents: Sequence[object], following: int | None) -> dict[str, object]:
        """Set the documents of the chunk at this offset, and return the chunk."""
        link = None if following is None else f"{self.service.url}{self.path}?skip={following}"
        self.chunks[skip] = {**self._head, "next": link, "data": list(documents)}
        self.service.on(self.at(skip), each(lambda _: reply(self.chunks[skip])))
        return self.chunks[skip]

    def at(self, skip: int) -> str:
        return f"{self.read}?skip={skip}" if skip else self.read

    def first(self, skip: int, *plays: Play) -> None:
        """Play these responses at this offset before its chunk."""
        self.service.first(self.at(skip), *plays)

    def before(self, **head: object) -> Play:
        """Return a poll's response while the job runs: no documents, and a `next` link to the first chunk."""
        link = f"{self.service.url}{self.path}?skip=0"
        return reply(self._head | {"status": "scraping", "completed": 0, "next": link, "data": []} | head)

    def raw(self, *documents: str, **head: object) -> bytes:
        """Return a chunk with these documents, given as JSON text."""
        front = json.dumps({**self._head, "next": None, "total": len(documents), "completed": len(documents), **head})
        return f'{front[:-1]}, "data": [{",".join(documents)}]}}'.encode("utf-8", "surrogateescape")

    def always(self, skip: int, play: Play) -> None:
        """Play only this response at this offset."""
        self.service.on(self.at(skip), play)


def activity(*entries: Mapping[str, object], **more: object) -> Play:
    """Return a response with these jobs in the activity list."""
    return reply({"success": True, "data": list(entries), "cursor": None, "has_more": False} | more)
