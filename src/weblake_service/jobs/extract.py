"""Runs an extract job: reads the pages, then has a model answer once about all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from weblake_service.jobs.web_tools import ModelJob, ModelJobResult, ToolResult
from weblake_service.llm.model_options import EXTRACTION_CREDITS
from weblake_service.llm.model_output import extract
from weblake_service.page_failure import PageFailure
from weblake_service.run_together import run_together
from weblake_service.web.redirect_chain import options_for

#: Default and maximum number of pages that are read.
DEFAULT_PAGES, MAX_PAGES = 10, 100
#: Number of planning steps of a job that precede the steps of its pages.
_PLANNING_STEPS = 1
_CONCURRENT_PAGES = 5
_TASK = "Extract data from the pages below as one JSON value. Use null, or leave a field out, where they do not tell."


async def extract_data(job: ModelJob) -> ModelJobResult:
    """Return the data, and with `show_sources` the pages that were read.

    Raises:
        PageFailure: No page could be read, or the model returned no data.
    """
    chosen = job.steps.get(_PLANNING_STEPS) or await _choose_urls(job)
    urls: list[str] = chosen["urls"]
    turns = asyncio.Semaphore(_CONCURRENT_PAGES)

    async def one(place: int, url: str) -> dict[str, Any]:
        async with turns:
            return job.steps.get(place) or await _read(job, place, url)

    # A locked database is not the page's fault: the error is re-raised and the job is retried.
    pages = await run_together(one(place, url) for place, url in enumerate(urls, _PLANNING_STEPS + 1))
    good = [page for page in pages if "text" in page]
    notes = [chosen["note"]] if chosen.get("note") else []
    if not good:
        why = pages[0]["error"] if pages else "There was nothing to read: " + (chosen.get("note") or "no URL.")
        raise PageFailure("SCRAPE_ALL_ENGINES_FAILED", str(why))
    if len(good) < len(pages):
        notes.append(f"{len(pages) - len(good)} of {len(pages)} pages could not be read.")
    room = max(1, job.model.page_chars // len(good))
    texts = [f"{page['url']}\n\n{page['text'][:room]}" for page in good]
    if any(len(page["text"]) > room for page in good):
        notes.append(f"The language model was given the first {room} characters of each page (WEBLAKE_LLM_PAGE_CHARS).")
    wish = "\n\n".join(str(job.plan[name]) for name in ("system_prompt", "prompt") if job.plan.get(name))
    wanted = {"schema": job.plan.get("schema"), "prompt": wish or "The main data of the pages."}
    shown: dict[str, object] = {"data": await extract(job.model, wanted, texts, _TASK)}
    if job.plan.get("show_sources"):
        shown["sources"] = {"urls": [page["url"] for page in good]}
    return ModelJobResult(shown | ({"warning": " ".join(notes)} if notes else {}), EXTRACTION_CREDITS)


async def _choose_urls(job: ModelJob) -> dict[str, Any]:
    """Return the pages to read: the given URLs, the URLs of a site that match a pattern, and search results."""
    limit = min(int(job.plan.get("limit", DEFAULT_PAGES)), MAX_PAGES)
    urls: list[str] = []
    notes: list[str] = []
    credits = 0
    for given in job.plan.get("urls", ()):
        if "*" not in given:
            urls.append(given)
            continue
        await job.check_credits(1)
        found = await _matching(job, given)
        credits += found.credits
        urls += found.urls
    if job.plan.get("prompt") and (job.plan.get("enable_web_search") or not job.plan.get("urls")):
        await job.check_credits(1)
        found = await job.search(str(job.plan.get("prompt", "")), limit)
        credits += found.credits
        urls += found.urls
        notes.append("Searched the pages that this service scraped for this team, not the web.")
    urls = list(dict.fromkeys(urls))
    named = sum("*" not in given for given in job.plan.get("urls", ()))
    max_pages = max(limit, min(named, MAX_PAGES))
    if len(urls) > max_pages:
        notes.append(f"{max_pages} of {len(urls)} pages were read; `limit` allows up to {MAX_PAGES}.")
    step: dict[str, Any] = {"urls": urls[:max_pages], "note": " ".join(notes)}
    await job.record(_PLANNING_STEPS, step, credits, None)
    return step


async def _matching(job: ModelJob, glob: str) -> ToolResult:
    """Return the URLs of a site that match a pattern with `*`, the most relevant first."""
    start = glob[: glob.index("*")]
    options = {
        "sitemap": "skip" if job.plan.get("ignore_sitemap") else "include",
        "include_subdomains": job.plan.get("include_subdomains", True),
        "ignore_query_parameters": False,
        "search": str(job.plan.get("prompt", "")),
    }
    found = await job.site(start, options)
    parts, home = glob.split("*"), start.rstrip("/")
    urls = tuple(url for url in found.urls if _fits(url, parts) or url.rstrip("/") == home)
    return ToolResult(found.text, found.credits, urls)


def _fits(url: str, parts: list[str]) -> bool:
    """Return whether a URL starts with the first part and contains the others after it, in order; in linear time."""
    if not url.startswith(parts[0]):
        return False
    at = len(parts[0])
    for part in parts[1:]:
        at = url.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


async def _read(job: ModelJob, place: int, url: str) -> dict[str, Any]:
    try:
        page = await job.page(url, place, options_for(url, job.options, job.plan.get("urls", ())))
    except PageFailure as failure:
        if failure.status == 402:
            raise
        step: dict[str, Any] = {"url": url, "error": failure.message}
        await job.record(place, step, 0, None)
        return step
    # The text is cut to the maximum that is sent to a model.
    step = {"url": url, "text": page.text[: job.model.page_chars]}
    await job.record(place, step, page.credits, page.keep)
    return step
