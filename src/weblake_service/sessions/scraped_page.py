"""The scrape that an interactive session continues: its team, URL and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Connection, Row
from typing import NoReturn

import msgspec

from weblake_service.jobs import job_records
from weblake_service.responses import ErrorResponse, not_found
from weblake_service.web.redirect_chain import options_for

#: Kinds of jobs whose documents were scraped with the job's own options.
_PAGE_JOB_KINDS = ("scrape", "batch_scrape", "crawl")


@dataclass(frozen=True, slots=True)
class ScrapedPage:
    """A page that can be restored."""

    url: str
    #: The scrape options by snake_case name.
    options: Mapping[str, object]


def find(db: Connection, scrape_id: str, team: str, at: float) -> ScrapedPage:
    """Return the page of a scrape of the last day, from a single call, a batch or a crawl.

    Raises:
        ErrorResponse: 404 for an unknown scrape, 403 for another team's, 409 for one without a page to restore.
    """
    alive = at - job_records.JOB_LIFETIME_S
    job = db.execute(
        "SELECT jobs.*, documents.body FROM documents JOIN jobs ON jobs.id = job"
        " WHERE scrape_id = ? AND (ended IS NULL OR ended > ?)",
        (scrape_id, alive),
    ).fetchone()
    if job is not None:
        _require_same_team(job, team)
        if job["kind"] not in _PAGE_JOB_KINDS:
            _raise_gone("it was no scrape of a web page")
        url, options = _url(job), job_records.decode_object(job["options"])
        return ScrapedPage(url, options_for(url, options, [job["url"] if job["kind"] == "crawl" else url]))
    # A failed scrape, or one with zero data retention, has a record but no page.
    job = db.execute("SELECT * FROM jobs WHERE id = ? AND ended > ?", (scrape_id, alive)).fetchone()
    if job is not None and job["kind"] in ("scrape", "parse"):
        _require_same_team(job, team)
        _raise_gone("the scrape failed")
    known = db.execute(
        "SELECT team FROM activity WHERE id = ? AND endpoint = 'scrape' AND created > ?", (scrape_id, alive)
    ).fetchone()
    if known is not None:
        _require_same_team(known, team)
        _raise_gone("nothing of the scrape was kept")
    not_found("Scrape job not found")


def _url(job: Row) -> str:
    if job["kind"] == "scrape":
        return str(job["url"])
    metadata = msgspec.json.decode(job["body"]).get("metadata") or {}
    return str(metadata.get("sourceURL") or metadata.get("url"))


def _require_same_team(row: Row, team: str) -> None:
    if row["team"] != team:
        raise ErrorResponse(403, "Forbidden: the scrape belongs to another team.", code="FORBIDDEN")


def _raise_gone(why: str) -> NoReturn:
    raise ErrorResponse(
        409,
        f"Replay context unavailable: {why}. Rerun the scrape and try again.",
        code="REPLAY_CONTEXT_UNAVAILABLE",
    )
