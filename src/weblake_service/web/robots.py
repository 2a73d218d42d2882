"""Reads and applies robots.txt, by RFC 9309.

- No such file, or any other 4xx: everything is allowed (2.3.1.3).
- 5xx, 429, an incomplete response or a timeout: nothing is allowed (2.3.1.4), and the file is requested again after a
  minute.
- The site is unreachable or private: allowed, because the fetch of the page then reports the error.
- A file is cached for 24 hours (2.4), and its first 512 KiB are used (2.5). A missing file is cached for ten minutes,
  because a site under construction may add one.
- A file with many rules is applied in a converter process. If that takes too long, the file counts as unreadable.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from protego import Protego

from weblake_service.files.conversion_messages import ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.content_types import text_of
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import Fetcher

#: The user agent name for rules; the whole User-Agent would also match rules for "Mozilla".
USER_AGENT_NAME = "weblake"
#: Cache times in seconds: of a file, of its absence, and of a file that could not be read.
CACHE_S, ABSENT_S, UNREADABLE_S = 24 * 3600.0, 600.0, 60.0
_MAX_FILE_BYTES = 512 << 10
_MAX_ORIGINS = 1000
_TIMEOUT_S = 20.0
_DISALLOW_ALL = "User-agent: *\nDisallow: /\n"
#: Bounds for applying a file in this process, within some milliseconds: its lines, its lines times its user agents
#: (a rule is stored for each of them), and the characters of the URL.
_MAX_LINES, _MAX_STORED_RULES, _MAX_URL_CHARS = 3000, 200_000, 4096
#: Seconds for applying the other files to one URL.
_ASK_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class _Rules:
    #: The file in UTF-8.
    body: bytes
    #: None if the rules are applied in a converter process.
    parsed: Protego | None
    #: The reason why everything or nothing is allowed, if the site itself did not say so.
    note: str
    until: float


class RobotsRules:
    """The robots.txt files of the visited sites, read once per origin and day."""

    def __init__(
        self, fetcher: Fetcher, converters: ConverterPool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetcher = fetcher
        self._converters = converters or ConverterPool()
        self._clock = clock
        self._rules: OrderedDict[str, _Rules] = OrderedDict()
        self._reading: dict[str, asyncio.Task[_Rules]] = {}

    async def allowed(self, url: str, user_agent: str | None = None) -> bool:
        """Return whether a crawler with this name (default: weblake) may fetch the URL."""
        return bool(await self._ask("allowed", url, user_agent))

    async def crawl_delay(self, url: str, user_agent: str | None = None) -> float | None:
        """Return the site's crawl delay in seconds, or None."""
        delay: float | None = await self._ask("delay", url, user_agent)
        return delay

    async def sitemaps(self, url: str) -> list[str]:
        """Return the URLs of the sitemaps that the site lists."""
        return list(await self._ask("sitemaps", url))

    async def note(self, url: str) -> str:
        """Return the reason for the decision if robots.txt could not be read; otherwise empty."""
        return (await self._rules_for(url)).note

    async def aclose(self) -> None:
        """End the reads under way: they outlive the crawls that wait for them."""
        reading = list(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _ask(self, what: str, url: str, user_agent: str | None = None) -> Any:
        rules, agent = await self._rules_for(url), user_agent or USER_AGENT_NAME
        if rules.parsed is not None and len(url) <= _MAX_URL_CHARS:
            return ask(rules.parsed, what, url, agent)
        task = ConversionTask("robots", named=what, base=url, options={"agent": agent})
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                return (await self._converters.convert(task, rules.body)).document["answer"]
        except (TimeoutError, PageFailure, KeyError):
            note = f"The rules of {_origin(url)}/robots.txt cannot be applied within {_ASK_TIMEOUT_S:g} s."
            closed = parse_rules(_DISALLOW_ALL.encode())
            self._rules[_origin(url)] = _Rules(b"", closed, note, self._clock() + UNREADABLE_S)
            return ask(closed, what, url, agent)

    async def _rules_for(self, url: str) -> _Rules:
        origin = _origin(url)
        known = self._rules.get(origin)
        if known is not None and self._clock() < known.until:
            return known
        task = self._reading.get(origin)
        if task is None:
            # A separate task, so that the cancellation of one crawl does not cancel the read for the others that wait
            # for it.
            task = asyncio.create_task(self._read(origin))
            self._reading[origin] = task
            task.add_done_callback(lambda _: self._reading.pop(origin, None))
        rules = await asyncio.shield(task)
        self._rules[origin] = rules
        self._rules.move_to_end(origin)
        while len(self._rules) > _MAX_ORIGINS:
            self._rules.popitem(last=False)
        return rules

    async def _read(self, origin: str) -> _Rules:
        text, note, kept = "", "", CACHE_S
        try:
            fetched = await self._fetcher.get(
                f"{origin}/robots.txt", timeout_s=_TIMEOUT_S, max_body=_MAX_FILE_BYTES, cut=True
            )
        except PageFailure as failure:
            kept, note = UNREADABLE_S, failure.message
            if failure.reached:
                text = _DISALLOW_ALL
        else:
            if fetched.status >= 500 or fetched.status == 429:
                text, kept = _DISALLOW_ALL, UNREADABLE_S
                note = f"{origin}/robots.txt answered {fetched.status}, so nothing there is crawled for a minute."
            elif fetched.status >= 400:
                kept = ABSENT_S
            elif fetched.status < 300:
                text = text_of("text/plain; charset=utf-8", fetched.body)
        lines = len(text.splitlines())
        costly = lines > _MAX_LINES or lines * text.lower().count("agent") > _MAX_STORED_RULES
        parsed = None if costly else await asyncio.to_thread(Protego.parse, text)
        return _Rules(text.encode("utf-8", "replace"), parsed, note, self._clock() + kept)


@lru_cache(maxsize=8)
def parse_rules(body: bytes) -> Protego:
    """Return the rules of a file in UTF-8."""
    return Protego.parse(body.decode())


def ask(rules: Protego, what: str, url: str, user_agent: str) -> object:
    """Return what the rules say about a URL: whether it is `allowed`, the `delay` in seconds, or the `sitemaps`."""
    if what == "allowed":
        return rules.can_fetch(url, user_agent)
    return rules.crawl_delay(user_agent) if what == "delay" else list(dict.fromkeys(rules.sitemaps))


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"
