"""A fake web that replaces the page half of the service, which has tests of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import httpx

from weblake_service.files.upload import Upload
from weblake_service.page.document import Page
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse
from weblake_service.web.frontier import Frontier


class FakeWeb:
    """Every URL is a page that contains its own name, unless the test sets something else."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}
        self.links: dict[str, list[str]] = {}
        self.finals: dict[str, str] = {}
        self.statuses: dict[str, int] = {}
        self.failures: dict[str, PageFailure] = {}
        self.blocked: set[str] = set()
        self.sitemaps: dict[str, list[str]] = {}
        self.delay: float | None = None
        self.note = ""
        #: URLs (or all, with "*"; all sitemaps, with "sitemap") that are not answered until they are removed.
        self.held: set[str] = set()
        self.asked: list[str] = []
        self.flying = 0
        self.most_flying = 0
        #: Sitemaps that are being read, and the maximum of it.
        self.reading = 0
        self.most_reading = 0

    async def scrape(self, url: str, options: Mapping[str, object]) -> Page:
        self.asked.append(url)
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        try:
            while url in self.held or "*" in self.held:  # noqa: ASYNC110 - the test's thread releases it
                await asyncio.sleep(0.002)
        finally:
            self.flying -= 1
        if url in self.failures:
            raise self.failures[url]
        body = self.bodies.get(url, f"# {url}").encode()
        fetched = FetchedResponse(self.finals.get(url, url), self.statuses.get(url, 200), body=body)
        return await self.remake(url, options, fetched)

    async def browse(self, url: str, options: Mapping[str, object], visitor: object) -> Page:
        return await self.scrape(url, options)

    def renders(self, page: Page, fetched: object) -> bool:
        return False

    async def remake(self, url: str, options: Mapping[str, object], fetched: FetchedResponse) -> Page:
        metadata = {
            "title": f"Title of {url}",
            "sourceURL": url,
            "url": fetched.url,
            "statusCode": fetched.status,
        }
        document = {"markdown": fetched.body.decode(), "metadata": metadata}
        return Page(document, fetched.url, self.links.get(url, []), fetched=fetched)

    async def parse(self, read: Callable[[], Upload], options: Mapping[str, object], timeout_s: float) -> Page:
        file = read()
        return Page({"markdown": f"# {file.name}", "metadata": {"sourceURL": f"file:///{file.name}"}}, "", [])

    async def allowed(self, url: str, user_agent: str | None) -> bool:
        return url not in self.blocked

    async def robots_note(self, url: str) -> str:
        return self.note

    async def crawl_delay(self, url: str, user_agent: str | None) -> float | None:
        return self.delay

    async def sitemap(self, url: str, limit: int) -> tuple[list[str], str]:
        self.reading += 1
        self.most_reading = max(self.most_reading, self.reading)
        try:
            while "sitemap" in self.held:  # noqa: ASYNC110 - the test's thread releases it
                await asyncio.sleep(0.002)
        finally:
            self.reading -= 1
        return self.sitemaps.get(url, [])[:limit], ""

    def frontier(self, url: str, options: Mapping[str, object]) -> Frontier:
        return Frontier(url, options)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            return (await client.post(url, content=body, headers=dict(headers))).status_code

    def clear_cache(self) -> None:
        pass

    async def aclose(self) -> None:
        pass
