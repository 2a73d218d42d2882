"""Every operation of the contract as a function that returns an `Operation` and sends nothing.

Each function checks its options and raises errors.InvalidOption. Options that are not given are not sent, except two
whose defaults differ between services: `ignore_invalid_urls` of a batch and `ttl` of a browser.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Unpack

from msgspec.structs import replace

from weblake.api import models as m
from weblake.api import options as o
from weblake.api.operation import Operation as Operation
from weblake.api.operation import (
    code_deadline,
    delete,
    page_deadline,
    post,
    read,
    start,
    upload,
    url_list,
)
from weblake.api.options.values import job_id as checked_job
from weblake.api.options.values import session_id as checked_session
from weblake.api.steps import Request


def scrape(url: str, **options: Unpack[o.ScrapeOptions]) -> Operation[m.ScrapeResponse]:
    """Scrape one page, within `timeout` (default 60 s)."""
    body = o.to_wire(o.ScrapeRequest, {"url": url, **options})
    return post("scrape", "/v2/scrape", m.ScrapeResponse.decode, body, page_deadline(body))


def get_scrape(job_id: str) -> Operation[m.ScrapeResponse]:
    """Read a scrape that has ended, by its scrape id."""
    return read("get_scrape", f"/v2/scrape/{checked_job(job_id)}", m.ScrapeResponse.decode)


def interact(job_id: str, **options: Unpack[o.InteractOptions]) -> Operation[m.ExecutionResult]:
    """Run `code` or a `prompt` in the browser of a scrape; `timeout` is in seconds (default 30)."""
    path = f"/v2/scrape/{checked_job(job_id)}/interact"
    body = o.to_wire(o.InteractOptions, options)
    # The first call loads the page of the scrape again, which may take as long as a scrape.
    deadline = code_deadline(body) + page_deadline({})
    operation = post("interact", path, m.ExecutionResult.decode, body, deadline)
    # The call costs money and its effect on the page cannot be queried later, so a lost response must be reported.
    return replace(operation, request=replace(operation.request, paid=True))


def stop_interact(job_id: str) -> Operation[m.SessionClosed]:
    """Close the browser of a scrape; it is billed at this time."""
    return delete("stop_interact", f"/v2/scrape/{checked_job(job_id)}/interact", m.SessionClosed.decode)


def parse_file(
    file: Path | str | bytes, *, filename: str | None = None, **options: Unpack[o.ParseOptions]
) -> Operation[m.ScrapeResponse]:
    """Convert a file of at most 50 MB: a path, or bytes with a `filename`, whose extension is the file type."""
    wire = o.to_wire(o.ParseOptions, options)
    request = Request("POST", "/v2/parse", upload=upload(file, filename, wire), deadline_s=page_deadline(wire))
    return Operation("parse_file", request, m.ScrapeResponse.decode, repeatable=False)


def create_browser(**options: Unpack[o.BrowserOptions]) -> Operation[m.BrowserSession]:
    """Open a remote browser for `ttl` seconds (default 300)."""
    body = {"ttl": 300, **o.to_wire(o.BrowserOptions, options)}
    return post("create_browser", "/v2/browser", m.BrowserSession.decode, body)


def list_browsers(**query: Unpack[o.BrowserFilter]) -> Operation[m.BrowserList]:
    """List the team's browsers, of one `status` if given."""
    return read("list_browsers", "/v2/browser", m.BrowserList.decode, o.to_wire(o.BrowserFilter, query))


def execute_in_browser(session_id: str, code: str, **options: Unpack[o.ExecuteOptions]) -> Operation[m.ExecutionResult]:
    """Run code in a remote browser; `timeout` is in seconds."""
    path = f"/v2/browser/{checked_session(session_id)}/execute"
    body = o.to_wire(o.ExecuteRequest, {"code": code, **options})
    return post("execute_in_browser", path, m.ExecutionResult.decode, body, code_deadline(body))


def delete_browser(session_id: str) -> Operation[m.SessionClosed]:
    """Close a remote browser."""
    return delete("delete_browser", f"/v2/browser/{checked_session(session_id)}", m.SessionClosed.decode)


def start_batch_scrape(
    urls: Iterable[str], *, idempotency_key: str | None = None, **options: Unpack[o.BatchScrapeOptions]
) -> Operation[m.JobStarted]:
    """Start a job that scrapes many pages.

    URLs that cannot be scraped are returned in `invalid_urls`; with `ignore_invalid_urls=False` the whole request is
    refused if there is one.
    """
    body = {"ignoreInvalidURLs": True, **o.to_wire(o.BatchScrapeRequest, {"urls": url_list(urls), **options})}
    return start("start_batch_scrape", "/v2/batch/scrape", m.JobStarted.decode, body, idempotency_key)


def get_batch_scrape(job_id: str, *, skip: int | None = None, limit: int | None = None) -> Operation[m.JobStatus]:
    """Read one chunk of a batch scrape: at most 10 MB, starting at result number `skip`."""
    return read(
        "get_batch_scrape", f"/v2/batch/scrape/{checked_job(job_id)}", m.JobStatus.decode, _chunk_query(skip, limit)
    )


def cancel_batch_scrape(job_id: str) -> Operation[m.Cancelled]:
    """Cancel a batch scrape; pages that it has scraped remain readable."""
    return delete("cancel_batch_scrape", f"/v2/batch/scrape/{checked_job(job_id)}", m.Cancelled.decode)


def get_batch_scrape_errors(job_id: str) -> Operation[m.JobErrors]:
    """List the pages of a batch scrape that failed or that robots.txt forbids."""
    return read("get_batch_scrape_errors", f"/v2/batch/scrape/{checked_job(job_id)}/errors", m.JobErrors.decode)


def start_crawl(
    url: str, *, idempotency_key: str | None = None, **options: Unpack[o.CrawlOptions]
) -> Operation[m.JobStarted]:
    """Start a job that follows the links of a site; `scrape_options` are the options of each page."""
    body = o.to_wire(o.CrawlRequest, {"url": url, **options})
    return start("start_crawl", "/v2/crawl", m.JobStarted.decode, body, idempotency_key)


def get_crawl(job_id: str, *, skip: int | None = None, limit: int | None = None) -> Operation[m.JobStatus]:
    """Read one chunk of a crawl: at most 10 MB, starting at result number `skip`."""
    return read("get_crawl", f"/v2/crawl/{checked_job(job_id)}", m.JobStatus.decode, _chunk_query(skip, limit))


def cancel_crawl(job_id: str) -> Operation[m.Cancelled]:
    """Cancel a crawl; pages that it has scraped remain readable."""
    return delete("cancel_crawl", f"/v2/crawl/{checked_job(job_id)}", m.Cancelled.decode)


def get_crawl_errors(job_id: str) -> Operation[m.JobErrors]:
    """List the pages of a crawl that failed or that robots.txt forbids."""
    return read("get_crawl_errors", f"/v2/crawl/{checked_job(job_id)}/errors", m.JobErrors.decode)


def list_active_crawls() -> Operation[m.ActiveCrawls]:
    """List the team's running crawls."""
    return read("list_active_crawls", "/v2/crawl/active", m.ActiveCrawls.decode)


def preview_crawl_params(url: str, prompt: str) -> Operation[m.CrawlParamsPreview]:
    """Return the crawl options that a prompt would be converted to; no crawl is started."""
    body = o.to_wire(o.CrawlParamsPreviewRequest, {"url": url, "prompt": prompt})
    return post("preview_crawl_params", "/v2/crawl/params-preview", m.CrawlParamsPreview.decode, body)


def map_site(url: str, **options: Unpack[o.MapOptions]) -> Operation[m.SiteMap]:
    """List the URLs of a site."""
    body = o.to_wire(o.MapRequest, {"url": url, **options})
    return post("map_site", "/v2/map", m.SiteMap.decode, body, page_deadline(body))


def search(query: str, **options: Unpack[o.SearchOptions]) -> Operation[m.SearchResponse]:
    """Search the web; with `scrape_options` the results are scraped as well."""
    body = o.to_wire(o.SearchRequest, {"query": query, **options})
    return post("search", "/v2/search", m.SearchResponse.decode, body, page_deadline(body))


def start_extract(
    urls: Iterable[str] | None = None, *, idempotency_key: str | None = None, **options: Unpack[o.ExtractOptions]
) -> Operation[m.JobStarted]:
    """Start an extraction from `urls`, which may hold globs, from pages that a `prompt` finds, or both."""
    more = {} if urls is None else {"urls": url_list(urls)}
    body = o.to_wire(o.ExtractRequest, {**more, **options})
    return start("start_extract", "/v2/extract", m.JobStarted.decode, body, idempotency_key)


def get_extract(job_id: str) -> Operation[m.ExtractStatus]:
    """Read an extract job, or an agent job."""
    return read("get_extract", f"/v2/extract/{checked_job(job_id)}", m.ExtractStatus.decode)


def start_agent(
    prompt: str, *, idempotency_key: str | None = None, **options: Unpack[o.AgentOptions]
) -> Operation[m.JobStarted]:
    """Start an agent that gathers the data that the prompt asks for."""
    body = o.to_wire(o.AgentRequest, {"prompt": prompt, **options})
    return start("start_agent", "/v2/agent", m.JobStarted.decode, body, idempotency_key)


def get_agent(job_id: str) -> Operation[m.AgentStatus]:
    """Read an agent job; for services without this path use get_extract."""
    return read("get_agent", f"/v2/agent/{checked_job(job_id)}", m.AgentStatus.decode)


def cancel_agent(job_id: str) -> Operation[m.Cancelled]:
    """Cancel an agent job."""
    return delete("cancel_agent", f"/v2/agent/{checked_job(job_id)}", m.Cancelled.decode)


def list_activity(**query: Unpack[o.ActivityOptions]) -> Operation[m.ActivityPage]:
    """List one page of the team's API calls of the last 24 hours, newest first."""
    return read("list_activity", "/v2/team/activity", m.ActivityPage.decode, o.to_wire(o.ActivityOptions, query))


def historical_credit_usage(**query: Unpack[o.UsageOptions]) -> Operation[m.HistoricalUsage]:
    """Return the credits used by month, and by API key with `by_api_key`."""
    wire = o.to_wire(o.UsageOptions, query)
    return read("historical_credit_usage", "/v2/team/credit-usage/historical", m.HistoricalUsage.decode, wire)


def historical_token_usage(**query: Unpack[o.UsageOptions]) -> Operation[m.HistoricalUsage]:
    """Return the tokens used by month, and by API key with `by_api_key`."""
    wire = o.to_wire(o.UsageOptions, query)
    return read("historical_token_usage", "/v2/team/token-usage/historical", m.HistoricalUsage.decode, wire)


def credit_usage() -> Operation[m.Usage]:
    """Return the remaining credits."""
    return read("credit_usage", "/v2/team/credit-usage", m.Usage.decode)


def token_usage() -> Operation[m.Usage]:
    """Return the remaining tokens."""
    return read("token_usage", "/v2/team/token-usage", m.Usage.decode)


def queue_status() -> Operation[m.QueueStatus]:
    """Return the number of queued and running jobs."""
    return read("queue_status", "/v2/team/queue-status", m.QueueStatus.decode)


def concurrency_check() -> Operation[m.ConcurrencyCheck]:
    """Return the team's concurrency limit and how much of it is in use."""
    return read("concurrency_check", "/v2/concurrency-check", m.ConcurrencyCheck.decode)


def _chunk_query(skip: int | None, limit: int | None) -> dict[str, object]:
    query = {"skip": skip, "limit": limit}
    return o.to_wire(o.ChunkQuery, {name: value for name, value in query.items() if value is not None})
