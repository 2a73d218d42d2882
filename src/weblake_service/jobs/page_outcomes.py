"""The possible outcomes of a page in a job: stored, failed, blocked, dropped."""

from __future__ import annotations

from dataclasses import dataclass

from weblake_service.jobs import page_history


@dataclass(frozen=True, slots=True)
class Stored:
    """A page that became a document."""

    scrape_id: str
    body: bytes
    credits: int
    #: Where the page really was, after redirects.
    final_url: str = ""
    #: What later scrapes are compared with, where changes are tracked.
    version: page_history.PageVersion | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A page that could not be scraped."""

    code: str
    error: str
    #: What the attempt costs nevertheless: a lockdown miss does.
    credits: int = 0


@dataclass(frozen=True, slots=True)
class BlockedByRobots:
    """A page that the site's robots.txt keeps us from; `why` where the file itself did not say so."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A page that turned out to be one the job has already: it was fetched and counts, but nothing comes of it."""

    final_url: str


Outcome = Stored | Failed | BlockedByRobots | Dropped
