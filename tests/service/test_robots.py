"""robots.txt by RFC 9309: who may fetch what, and what applies if the file cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page_failure import PageFailure
from weblake_service.web import robots
from weblake_service.web.fetch import FetchedResponse, Fetcher
from weblake_service.web.robots import CACHE_S, UNREADABLE_S, RobotsRules

RULES = b"""
User-agent: *
Disallow: /private
Allow: /private/open$
Crawl-delay: 2.5

User-agent: weblake
Disallow: /not-for-us
Disallow: /*.cgi

Sitemap: https://site.example/a.xml
Sitemap: https://site.example/a.xml
Sitemap: /b.xml
"""


class Scripted(Fetcher):
    """A fetcher with responses from a table; everything else is the real fetcher."""

    def __init__(self, answers: Mapping[str, FetchedResponse | PageFailure]) -> None:
        super().__init__(allow_private=True)
        self.answers = dict(answers)
        self.asked: list[str] = []

    async def get(self, url: str, **options: Any) -> FetchedResponse:
        self.asked.append(url)
        await asyncio.sleep(0)
        answer = self.answers.get(url, FetchedResponse(url, 404))
        if isinstance(answer, PageFailure):
            raise answer
        return answer


def site(status: int = 200, body: bytes = RULES) -> Scripted:
    return Scripted(
        {"https://site.example/robots.txt": FetchedResponse("https://site.example/robots.txt", status, {}, body)}
    )


def asking(
    fetcher: Fetcher, work: Callable[[RobotsRules], Coroutine[Any, Any, Any]], clock: list[float] | None = None
) -> Any:
    async def main() -> Any:
        now = clock or [0.0]
        return await work(RobotsRules(fetcher, clock=lambda: now[0]))

    return asyncio.run(main())


def allowed(fetcher: Fetcher, path: str, user_agent: str | None = None) -> bool:
    return bool(asking(fetcher, lambda robots: robots.allowed(f"https://site.example{path}", user_agent)))


@pytest.mark.parametrize(
    ("path", "user_agent", "verdict"),
    [
        ("/", None, True),
        ("/not-for-us/a", None, False),
        ("/run.cgi?x=1", None, False),
        ("/private", None, True),
        ("/private", "otherbot", False),
        ("/private/open", "otherbot", True),
        ("/private/open/more", "otherbot", False),
        ("/not-for-us", "otherbot", True),
    ],
)
def test_rules_apply_to_the_named_user_agents(path: str, user_agent: str | None, verdict: bool) -> None:
    assert allowed(site(), path, user_agent) is verdict


def test_crawl_delay_and_sitemaps_are_read() -> None:
    url = "https://site.example/x"
    assert asking(site(), lambda robots: robots.crawl_delay(url, "otherbot")) == 2.5
    assert asking(site(), lambda robots: robots.crawl_delay(url)) is None
    assert asking(site(), lambda robots: robots.sitemaps(url)) == ["https://site.example/a.xml", "/b.xml"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_a_missing_robots_txt_allows_everything(status: int) -> None:
    assert allowed(site(status, b"User-agent: *\nDisallow: /"), "/private")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_unreadable_robots_txt_disallows_the_site_with_a_note(status: int) -> None:
    assert not allowed(site(status), "/")
    note = asking(site(status), lambda robots: robots.note("https://site.example/"))
    assert str(status) in note
    assert asking(site(), lambda robots: robots.note("https://site.example/")) == ""


@pytest.mark.parametrize(
    ("problem", "verdict"),
    [
        (PageFailure("SCRAPE_TIMEOUT", "slow", status=408), False),
        (PageFailure("SCRAPE_SITE_ERROR", "broke off"), False),
        (PageFailure("SCRAPE_DNS_RESOLUTION_ERROR", "no such name", reached=False), True),
        (PageFailure("unsafe_domain_blocked", "closed", status=403, reached=False), True),
    ],
)
def test_an_unreachable_site_is_reported_by_the_page_itself(problem: PageFailure, verdict: bool) -> None:
    assert allowed(Scripted({"https://site.example/robots.txt": problem}), "/") is verdict


def test_robots_txt_is_read_once_a_day_and_concurrent_reads_share_it() -> None:
    fetcher, clock = site(), [0.0]

    async def work(robots: RobotsRules) -> None:
        await asyncio.gather(*(robots.allowed(f"https://site.example/{n}") for n in range(20)))
        clock[0] = CACHE_S - 1
        await robots.allowed("https://USER@Site.example/again")
        assert len(fetcher.asked) == 1
        clock[0] = CACHE_S + 1
        await robots.allowed("https://site.example/again")
        assert len(fetcher.asked) == 2

    asking(fetcher, work, clock)


def test_an_unreadable_robots_txt_is_requested_again_after_a_minute() -> None:
    fetcher, clock = site(503), [0.0]

    async def work(robots: RobotsRules) -> None:
        assert not await robots.allowed("https://site.example/")
        fetcher.answers.clear()
        assert not await robots.allowed("https://site.example/")
        clock[0] = UNREADABLE_S + 1
        assert await robots.allowed("https://site.example/")

    asking(fetcher, work, clock)


def test_a_cancelled_reader_does_not_cancel_the_shared_request() -> None:
    fetcher = site()

    async def work(robots: RobotsRules) -> None:
        first = asyncio.create_task(robots.allowed("https://site.example/a"))
        second = asyncio.create_task(robots.allowed("https://site.example/not-for-us"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second is False
        assert len(fetcher.asked) == 1

    asking(fetcher, work)


def test_each_origin_has_its_own_file() -> None:
    fetcher = site()

    async def work(robots: RobotsRules) -> list[bool]:
        urls = (
            "https://site.example/not-for-us",
            "http://site.example/not-for-us",
            "https://site.example:8443/not-for-us",
        )
        return [await robots.allowed(url) for url in urls]

    assert asking(fetcher, work) == [False, True, True]
    assert len(set(fetcher.asked)) == 3


@pytest.mark.parametrize("body", [b"", b"\xff\xfe\x00nonsense", b"Disallow: /", b"<html>login</html>", b"a:" * 100_000])
def test_a_malformed_robots_txt_disallows_nothing(body: bytes) -> None:
    assert allowed(site(200, body), "/anything")


@pytest.mark.parametrize(
    "rules",
    [
        "User-agent: *\n" + "".join(f"Disallow: /*a{n}*b?c={n}\n" for n in range(18_000)),
        "".join(f"User-agent: a{n}\n" for n in range(450)) + "User-agent: *\n" + "Disallow: /c?\n" * 450,
    ],
    ids=["rules", "agents times rules"],
)
def test_many_rules_are_applied_in_a_process(rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots, "ask", None)

    async def work() -> list[object]:
        converters = ConverterPool()
        try:
            rules_of = RobotsRules(site(body=f"{rules}Crawl-delay: 3\nDisallow: /x/a7b?c=7".encode()), converters)
            base = "https://site.example"
            return [
                await rules_of.allowed(f"{base}/x/a7b?c=7"),
                await rules_of.allowed(base),
                await rules_of.crawl_delay(base),
            ]
        finally:
            await converters.aclose()

    assert asyncio.run(work()) == [False, True, 3.0]


def test_rules_that_cannot_be_applied_in_time_count_as_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots, "_ASK_TIMEOUT_S", 0.0)
    long_url, clock = "https://site.example/" + "a" * 5000, [0.0]

    async def work(rules: RobotsRules) -> list[object]:
        told: list[object] = [
            await rules.allowed(long_url),
            await rules.allowed(long_url[:30]),
            await rules.note(long_url),
        ]
        clock[0] += UNREADABLE_S
        return [*told, await rules.allowed(long_url[:30])]

    note = "The rules of https://site.example/robots.txt cannot be applied within 0 s."
    assert asking(site(), work, clock) == [False, False, note, True]


def test_a_read_under_way_ends_with_the_service() -> None:
    """The crawl that waited for it is cancelled before: without this, its error was printed as never retrieved."""

    class Held(Scripted):
        async def get(self, url: str, **options: Any) -> FetchedResponse:
            self.asked.append(url)
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    async def run() -> set[asyncio.Task[Any]]:
        fetcher = Held({})
        rules = RobotsRules(fetcher)
        crawl = asyncio.create_task(rules.allowed("https://site.example/a"))
        while not fetcher.asked:  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        crawl.cancel()
        await asyncio.gather(crawl, return_exceptions=True)
        await rules.aclose()
        return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(run()) == set()
