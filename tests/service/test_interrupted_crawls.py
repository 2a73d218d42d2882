"""Crawls of random sites that are stopped at random moments: no page is lost, repeated, or counted twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import fake_web
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake_service import ids
from weblake_service.clock import Clock
from weblake_service.config import Access, ServiceConfig
from weblake_service.faults import ActiveFaults
from weblake_service.jobs import job_records
from weblake_service.jobs.browser_profiles import BrowserProfiles
from weblake_service.jobs.job_manager import JobManager
from weblake_service.jobs.job_records import NewJob
from weblake_service.jobs.job_run import JobServices
from weblake_service.jobs.scraper import Scraper
from weblake_service.page_failure import PageFailure
from weblake_service.store.database import Store

JOB = ids.scrape_id("00000000-0000-4000-8000-000000000001", 1)


def url(number: int) -> str:
    return f"http://site.test/{number}" if number else "http://site.test/"


@dataclass
class CrawlPlan:
    """A site, a crawl of it, and the numbers of fetches after which the process stops."""

    links: dict[int, list[int]]
    redirects: dict[int, int]
    failing: set[int]
    blocked: set[int]
    listed: list[int]
    limit: int
    width: int
    seed: int | None
    stops: list[int]
    jitter: int


@st.composite
def plans(draw: Any) -> CrawlPlan:
    pages = draw(st.integers(1, 9))
    some = st.lists(st.integers(0, pages - 1), max_size=5)
    links = {number: draw(some) for number in range(pages)}
    odd = st.sets(st.integers(1, pages), max_size=4)
    redirects = {number: draw(st.integers(0, pages - 1)) for number in draw(odd) if number < pages}
    redirects = {start: end for start, end in redirects.items() if end not in redirects}
    free = set(range(pages)) - set(redirects.values())
    return CrawlPlan(
        links,
        redirects,
        draw(odd) & free,
        set(list(draw(odd) & free)[:2]),
        draw(some),
        draw(st.integers(1, pages + 2)),
        draw(st.integers(1, 4)),
        draw(st.one_of(st.none(), st.integers(0, 9))),
        draw(st.lists(st.integers(0, 5), max_size=5)),
        draw(st.integers(0, 10**6)),
    )


@dataclass
class CrawlResult:
    """The requests of all processes of a crawl, and the database that they left."""

    asked: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    documents: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)
    job: dict[str, Any] = field(default_factory=dict)
    billed: int = 0


class Site(fake_web.FakeWeb):
    def __init__(self, plan: CrawlPlan) -> None:
        super().__init__()
        self.links = {url(page): [url(to) for to in plan.links[plan.redirects.get(page, page)]] for page in plan.links}
        self.finals = {url(start): url(end) for start, end in plan.redirects.items()}
        self.failures = {url(page): PageFailure("SCRAPE_SITE_ERROR", "broken") for page in plan.failing}
        self.blocked = {url(page) for page in plan.blocked}
        self.sitemaps = {url(0): [url(page) for page in plan.listed]}
        self.random = random.Random(plan.jitter)
        self.fetched = asyncio.Condition()

    async def scrape(self, url: str, options: Mapping[str, object]) -> Any:
        for _ in range(self.random.randrange(6)):
            await asyncio.sleep(0)
        page = super().scrape(url, options)
        async with self.fetched:
            self.fetched.notify_all()
        return await page

    async def after(self, fetches: int) -> None:
        async with self.fetched:
            await self.fetched.wait_for(lambda: len(self.asked) >= fetches)


async def crawl(plan: CrawlPlan) -> CrawlResult:
    store, clock, seen = Store(), Clock(), CrawlResult()
    config = ServiceConfig(concurrency=plan.width, seed=plan.seed)
    new = NewJob(JOB, "crawl", Access("local", "default"), url(0), clock.now(), {"max_age": 0}, {"limit": plan.limit},
                 expected=plan.limit, target=url(0))  # fmt: skip
    await store.write(partial(job_records.create, job=new))
    try:
        for stop in [*plan.stops, None]:
            web = Site(plan)
            finished = await store.read(lambda db: {row[0] for row in db.execute("SELECT url FROM pages WHERE done")})
            scraper = Scraper(store, clock, config, web, BrowserProfiles(store, clock))
            jobs = JobManager(JobServices(store, clock, scraper, ActiveFaults()), web, config, lambda: None)
            await jobs.resume()
            running = asyncio.gather(*jobs._tasks.values())
            reached = asyncio.create_task(web.after(stop)) if stop is not None else running
            await asyncio.wait({running, reached}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert reached.done() or running.done()
            reached.cancel()
            await jobs.close()
            await asyncio.gather(running, reached, return_exceptions=True)
            seen.asked += web.asked
            seen.again += [one for one in web.asked if one in finished]
        await store.read(partial(look, seen=seen))
    finally:
        store.close()
    return seen


def look(db: Any, seen: CrawlResult) -> None:
    seen.documents = [tuple(row) for row in db.execute("SELECT scrape_id, url FROM documents ORDER BY position")]
    seen.errors = [tuple(row) for row in db.execute("SELECT id, url FROM page_errors ORDER BY rowid")]
    seen.blocked = [row[0] for row in db.execute("SELECT url FROM robots_blocked ORDER BY rowid")]
    seen.job = dict(db.execute("SELECT * FROM jobs").fetchone())
    seen.billed = db.execute("SELECT coalesce(sum(credits), 0) FROM usage").fetchone()[0]


def reachable(plan: CrawlPlan) -> tuple[set[str], set[str]]:
    """Return the final URLs of stored pages, and those of failed pages, of a crawl without a limit."""
    waiting, met, pages, failing = [0, *plan.listed], set(), set(), set()
    while waiting:
        page = waiting.pop()
        if page in met or page in plan.blocked:
            continue
        met.add(page)
        if page in plan.failing:
            failing.add(url(page))
            continue
        final = plan.redirects.get(page, page)
        pages.add(url(final))
        waiting += plan.links[final]
    return pages, failing


@settings(max_examples=examples(150))
@given(plans())
def test_a_stopped_and_resumed_crawl_returns_each_page_once(plan: CrawlPlan) -> None:
    seen = asyncio.run(crawl(plan))
    finals = [final for _, final in seen.documents]
    pages, failing = reachable(plan)
    assert seen.job["status"] == "completed"
    assert seen.again == [], "a completed page was fetched again"
    assert len(set(finals)) == len(finals), "a page is stored twice"
    assert len(set(seen.asked)) <= plan.limit
    assert (seen.billed, seen.job["credits"], seen.job["documents"]) == (len(finals),) * 3
    assert seen.job["failed"] == len(seen.errors) == len({one for _, one in seen.errors})
    assert len(finals) + len(seen.errors) <= plan.limit
    assert set(finals) <= pages
    assert {one for _, one in seen.errors} <= failing
    assert len(set(seen.asked)) + len(seen.asked) <= 2 * plan.limit + len(plan.stops) * plan.width
    if len(set(seen.asked)) < plan.limit:
        assert (set(finals), {one for _, one in seen.errors}) == (pages, failing)
        assert set(seen.blocked) <= {url(page) for page in plan.blocked}
