"""Typed views of single calls, sessions, jobs and webhook deliveries.

Times are unchanged texts; `parse_time` parses them.
"""

from __future__ import annotations

from datetime import datetime, timezone

from msgspec import field

from weblake.api.models.documents import Document
from weblake.api.models.lenient import Model, Number

#: Status words of jobs that do not change any more. Any other word means: not finished.
TERMINAL = frozenset({"completed", "failed", "cancelled"})


def is_terminal(status: object) -> bool:
    """Return whether a status word means that the job is over; False for unknown words."""
    return isinstance(status, str) and status.lower() in TERMINAL


def parse_time(text: object) -> datetime | None:
    """Return an ISO 8601 time in UTC, or None if invalid; a time without an offset is interpreted as UTC."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text.strip().replace("z", "Z"))
        return time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time.astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


class ErrorBody(Model, frozen=True):
    """The body of a response to a refused request."""

    success: bool | None = None
    error: str | None = None
    code: str | None = None
    #: A list of field issues, or hints for a retry.
    details: object = None


class ScrapeResponse(Model, frozen=True):
    """Response of scrape, get_scrape and parse_file."""

    success: bool | None = None
    data: Document = field(default_factory=Document)
    warning: str | None = None
    scrape_id: str | None = field(name="scrape_id", default=None)


class ExecutionResult(Model, frozen=True):
    """Response of interact and execute_in_browser; `success` can be true together with an `error`."""

    success: bool | None = None
    stdout: str | None = None
    result: str | None = None
    stderr: str | None = None
    #: 0 means success.
    exit_code: int | None = None
    #: Whether the timeout ended the execution.
    killed: bool | None = None
    error: str | None = None
    live_view_url: str | None = None
    interactive_live_view_url: str | None = None
    #: The agent's final answer to a prompt.
    output: str | None = None
    cdp_url: str | None = None


class SessionClosed(Model, frozen=True):
    """Response of stop_interact and delete_browser."""

    success: bool | None = None
    session_duration_ms: Number | None = None
    credits_billed: Number | None = None
    error: str | None = None


class BrowserSession(Model, frozen=True):
    """A remote browser: response of create_browser, and entry of list_browsers."""

    success: bool | None = None
    id: str | None = None
    #: active or destroyed.
    status: str | None = None
    cdp_url: str | None = None
    live_view_url: str | None = None
    interactive_live_view_url: str | None = None
    stream_web_view: bool | None = None
    created_at: str | None = None
    last_activity: str | None = None
    expires_at: str | None = None


class BrowserList(Model, frozen=True):
    """Response of list_browsers."""

    success: bool | None = None
    sessions: list[BrowserSession] = field(default_factory=list)


class JobStarted(Model, frozen=True):
    """Response of every start; `invalid_urls` are inputs that the job leaves out."""

    success: bool | None = None
    id: str | None = None
    #: URL of the job's status.
    url: str | None = None
    invalid_urls: list[str] = field(name="invalidURLs", default_factory=list)


class _Job(Model, frozen=True):
    """Fields of the status of every job."""

    success: bool | None = None
    #: A status word, see `finished`; the set of words is open.
    status: str | None = None
    error: str | None = None
    expires_at: str | None = None
    credits_used: Number | None = None

    @property
    def finished(self) -> bool:
        """Whether the job is over, successfully or not."""
        return is_terminal(self.status)


class JobStatus(_Job, frozen=True):
    """One chunk of a batch scrape or a crawl."""

    #: Pages attempted.
    total: int | None = None
    #: Pages scraped successfully.
    completed: int | None = None
    #: URL of the next chunk.
    next: str | None = None
    created_at: str | None = None
    completed_at: str | None = None
    #: Seconds.
    duration: Number | None = None
    warning: str | None = None
    data: list[Document] = field(default_factory=list)


class ExtractStatus(_Job, frozen=True):
    """An extract job."""

    #: The extracted object; may be an empty list before the job is done.
    data: object = None
    tokens_used: Number | None = None
    sources: dict[str, object] = field(default_factory=dict)
    model: str | None = None


class AgentStatus(_Job, frozen=True):
    """An agent job."""

    data: object = None
    model: str | None = None


class Cancelled(Model, frozen=True):
    """Response of the cancel operations; that of an agent has `success` and no status."""

    success: bool | None = None
    status: str | None = None


class JobError(Model, frozen=True):
    """A page that could not be scraped."""

    #: Scrape id of the page.
    id: str | None = None
    timestamp: str | None = None
    url: str | None = None
    code: str | None = None
    error: str | None = None


class JobErrors(Model, frozen=True):
    """Pages of a job that failed, and those that robots.txt forbids."""

    errors: list[JobError] = field(default_factory=list)
    robots_blocked: list[str] = field(default_factory=list)


class WebhookEvent(Model, frozen=True):
    """A delivery about a job; `data` holds the one document of a page event."""

    success: bool | None = None
    #: The event type, such as crawl.completed or batch_scrape.page.
    type: str | None = None
    #: The job's id.
    id: str | None = None
    #: The delivery's id; some services send none.
    webhook_id: str | None = None
    data: list[Document] = field(default_factory=list)
    #: Copy of the metadata that was configured.
    metadata: dict[str, object] = field(default_factory=dict)
    error: str | None = None
