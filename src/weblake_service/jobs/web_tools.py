"""Web access for jobs of a language model: read a page, list a site, search scraped pages.

Each function reports its price, which is that of the same call to the API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sqlite3 import Connection, Row
from typing import Any

import msgspec

from weblake_service import ids
from weblake_service.fair_queue import NO_JOB
from weblake_service.jobs import job_records, model_job_records
from weblake_service.jobs.job_run import JobServices
from weblake_service.jobs.scraper import ScrapeContext
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse
from weblake_service.routes.target_urls import read_target_url
from weblake_service.store import search_index
from weblake_service.web.map_urls import Known, arrange, find_urls

#: Credits of one map, and of every ten results of a search or part of ten.
MAP_PRICE, SEARCH_PRICE, _RESULTS_PER_PRICE = 1, 2, 10

#: Stores the cache and search entries of a page.
Keep = Callable[[Connection, float], None]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result and its price."""

    text: str
    credits: int
    urls: tuple[str, ...] = ()
    #: The cache and search entries that are stored with it.
    keep: Keep | None = None


def search_price(results: int) -> int:
    """Return the credits of a search with so many results."""
    return -(-results // _RESULTS_PER_PRICE) * SEARCH_PRICE


async def list_site(
    tools: JobServices, team: str, url: str, options: Mapping[str, object], queue: str = NO_JOB
) -> tuple[list[dict[str, object]], str]:
    """Return the URLs of a site as a map has them, and a warning or an empty text; the options are those of a map.

    Raises:
        PageFailure: Neither its sitemaps nor its page can be read.
    """
    async with tools.scraper.slot(team, url, queue):
        found = await find_urls(tools.web, url, str(options.get("sitemap", "include")))
    known: Known = {}
    if options.get("ignore_cache") is not True:
        hosts = frozenset(found.hosts)
        known = await tools.store.read(lambda db: search_index.titles_of_hosts(db, team, hosts))
    return await arrange(found, known, options), found.warning


class ModelJob:
    """One job with its recorded steps, and its access to the web.

    Args:
        tools: The parts of the service.
        row: The job's row.
        model: The language model.
        steps: The steps that an earlier run recorded, by place.
        announce: Called after every change that may have queued a webhook.
    """

    def __init__(
        self,
        tools: JobServices,
        row: Row,
        model: OpenAIEndpoint,
        steps: dict[int, dict[str, Any]],
        announce: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._announce = announce
        self._id: str = row["id"]
        self._kind: str = row["kind"]
        self._team: str = row["team"]
        #: The job's own options and its scrape options, by snake_case name.
        self.plan: dict[str, Any] = job_records.decode_object(row["plan"])
        self.options = job_records.decode_object(row["options"])
        self.model = model
        self.steps = steps

    async def page(self, url: str, place: int, options: Mapping[str, object]) -> ToolResult:
        """Return a page as markdown; `place` is the position of the step in the job.

        Raises:
            PageFailure: The page could not be scraped.
        """
        url = read_target_url(url, allow_private=self._tools.config.allow_private)
        if await self._tools.faults.apply_to_page(url, self._kind, self._id):
            raise PageFailure("SCRAPE_SITE_ERROR", f"{url} was lost.")
        context = ScrapeContext(ids.scrape_id(self._id, place), self._id)
        scraped = await self._tools.scraper.get(url, {**options, "formats": ["markdown"]}, self._team, context)
        document = msgspec.json.decode(scraped.stored.body)
        text = document.get("markdown")
        return ToolResult(
            text if isinstance(text, str) else "", scraped.stored.credits, (scraped.stored.final_url,), scraped.keep
        )

    async def site(self, url: str, options: Mapping[str, object]) -> ToolResult:
        """Return the URLs of a site; the options are those of a map, snake_case.

        Raises:
            PageFailure: Neither its sitemaps nor its page can be read.
        """
        url = read_target_url(url, allow_private=self._tools.config.allow_private)
        links, _ = await list_site(self._tools, self._team, url, options, self._id)
        lines = [f"- {link['url']} {link.get('title', '')}".rstrip() for link in links]
        return ToolResult("\n".join(lines), MAP_PRICE, tuple(str(link["url"]) for link in links))

    async def search(self, words: str, limit: int) -> ToolResult:
        """Return matching pages that this service scraped for the team; the web is not searched.

        Raises:
            PageFailure: The words are not a valid query.
        """
        try:
            query = search_index.read_query(words[:500])
        except ErrorResponse as refusal:
            raise PageFailure("BAD_REQUEST", refusal.error, status=400) from None
        found, _ = await self._tools.store.read(lambda db: search_index.search(db, self._team, query, limit))
        lines = [f"- {one.url} {one.title}: {one.passage or one.description}" for one in found]
        return ToolResult("\n".join(lines), search_price(len(found)), tuple(one.url for one in found))

    async def check_credits(self, credits: int) -> None:
        """Check that the team has enough credits for the next step.

        Raises:
            PageFailure: Its credits of this month are used up.
        """
        await self._tools.scraper.check_credits(self._team, credits)

    async def record(self, place: int, step: dict[str, object], credits: int, keep: Keep | None) -> None:
        """Record and bill a step at a place, with the cache and search entries that are stored with it."""
        now = self._tools.clock.now()

        def work(db: Connection) -> None:
            if model_job_records.add_step(db, self._id, place, step, credits, now) and keep is not None:
                keep(db, now)

        await self._tools.store.write(work)
        self._announce()


@dataclass(frozen=True, slots=True)
class ModelJobResult:
    """The result of a successful job."""

    #: `data`, and the additional fields of the status.
    shown: dict[str, object]
    #: Credits in addition to those of the steps.
    credits: int
