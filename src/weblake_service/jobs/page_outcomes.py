"""The possible outcomes of a page in a job: stored, failed, blocked, dropped."""

from __future__ import annotations

from dataclasses import dataclass

from weblake_service.jobs import page_history


@dataclass(frozen=True, slots=True)
class Stored:
    """A page with a document."""

    scrape_id: str
    body: bytes
    credits: int
    #: The final URL after redirects.
    final_url: str = ""
    #: The version to compare later scrapes with, if changes are tracked.
    version: page_history.PageVersion | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A page that could not be scraped."""

    code: str
    error: str
    #: The price of the failed attempt: a lockdown miss is billed.
    credits: int = 0


@dataclass(frozen=True, slots=True)
class BlockedByRobots:
    """A page that robots.txt forbids; `why` gives the reason if the file itself does not."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A duplicate of another page of the job: it was fetched and counts towards the limit, but has no document."""

    final_url: str


Outcome = Stored | Failed | BlockedByRobots | Dropped
