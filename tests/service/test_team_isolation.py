"""Costly pages, selectors, patterns, rules and sitemaps of one team do not delay the calls of another."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import loopback_site as loopback
import pytest

from weblake_service.browser.pool import ContextPool
from weblake_service.config import ServiceConfig, ServiceKey
from weblake_service.fair_queue import TEAM, SharedSlots
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.llm.schemas import checker, schema_problem
from weblake_service.page.change_tracking import TrackingOptions, compare
from weblake_service.page.formulas import Formulas
from weblake_service.page_failure import PageFailure
from weblake_service.server import LocalService
from weblake_service.web import path_patterns, robots
from weblake_service.web.addresses import resolve
from weblake_service.web.canonical_urls import url_to_visit
from weblake_service.web.decompression import BodyDecoder
from weblake_service.web.map_urls import _by_relevance
from weblake_service.web.redirect_chain import RedirectChain

Site, site = loopback.Site, loopback.site
#: Seconds that a small page of one team may take while another team's costly call runs, and milliseconds of that call.
MOST_WAIT, TIMEOUT = 1.0, 1500
NESTED, FLAT, COSTLY = "<div>" * 500 + "x", "<a href=/>x</a>" * 2000, "a:has(~ a:has(~ b))"

#: Each costly page and the options of its scrape; none of them can be converted in the time.
PAGES: dict[str, tuple[str, dict[str, object]]] = {
    "selected": (NESTED, {"includeTags": ["div:has(div div b)"]}),
    "excluded": (FLAT, {"excludeTags": [COSTLY]}),
    # The page is converted first, which takes longer than the other timeout on a busy machine.
    "attributes": (
        FLAT,
        {
            "timeout": 4000,
            "formats": [{"type": "attributes", "selectors": [{"selector": COSTLY, "attribute": "id"}]}],
        },
    ),
    "code in lists": ("<li><pre>x" * 2000, {}),
}

#: Each costly site: its files besides a start page, and the options of a crawl.
SITES: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "robots.txt": ({"/robots.txt": "User-agent: *\n" + "Disallow: /*a*b?c=\n" * 18_000}, {}),
    "patterns": ({}, {"includePaths": [f"^/a{n}" for n in range(1000)], "excludePaths": ["[ab]*b[ab]{900}b"] * 100}),
    "sitemap": (
        {"/sitemap.xml": "<urlset>" + "".join(f"<url><loc>/{n}/{'x' * 100}</loc></url>" for n in range(40_000))},
        {},
    ),
    "blank sitemap": ({"/sitemap.xml": "\v" * 40_000_000}, {}),
}


class Teams:
    """A service with two teams, and a site with costly pages."""

    def __init__(self, site: loopback.Site) -> None:
        keys = [ServiceKey("test-key-red", "one", "red"), ServiceKey("test-key-blue", "one", "blue")]
        self.site = site
        self.service = LocalService(":memory:", keys=keys, allow_private=True, config=ServiceConfig()).start()
        self.site.page("/small", b"<p>A small page.")

    def post(self, path: str, team: str, **body: object) -> httpx.Response:
        headers = {"Authorization": f"Bearer test-key-{team}"}
        url = self.service.url + path
        return httpx.post(url, json=body, headers=headers, timeout=120, trust_env=False, verify=False)

    def status(self, path: str) -> dict[str, Any]:
        headers = {"Authorization": "Bearer test-key-red"}
        reply = httpx.get(self.service.url + path, headers=headers, timeout=120, trust_env=False, verify=False)
        return dict(reply.json())

    def wait(self) -> float:
        """Return the seconds that a small page of the other team takes."""
        began = time.monotonic()
        reply = self.post("/v2/scrape", "blue", url=self.site.url("/small"), maxAge=0)
        assert reply.json()["data"]["markdown"] == "A small page."
        return time.monotonic() - began

    def beside(self, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make a costly call, and return its result if another team's pages did not wait for it.

        Make it again if one of them did: a costly call blocks the service each time, a busy machine does not.
        """
        longest: list[float] = []
        for _ in range(3):
            results: list[dict[str, Any]] = []
            costly = threading.Thread(target=lambda to=results: to.append(call()))
            costly.start()
            longest.append(0.0)
            while costly.is_alive():
                longest[-1] = max(longest[-1], self.wait())
                costly.join(0.05)
            if longest[-1] < MOST_WAIT:
                return results[0]
        raise AssertionError(f"a small page of another team waited {longest} s")


@pytest.fixture
def teams(site: loopback.Site) -> Iterator[Teams]:
    teams = Teams(site)
    yield teams
    teams.service.stop()


@pytest.mark.system
@pytest.mark.parametrize("name", ["selected", *(pytest.param(name, marks=pytest.mark.system) for name in [*PAGES][1:])])
def test_a_costly_page_ends_at_its_timeout_and_delays_no_other_team(teams: Teams, name: str) -> None:
    body, options = PAGES[name]
    request = {"url": teams.site.page("/costly", body.encode()), "maxAge": 0, "timeout": TIMEOUT, **options}
    told = teams.beside(lambda: dict(teams.post("/v2/scrape", "red", **request).json()))
    assert told["code"] == "SCRAPE_TIMEOUT", told
    seconds = int(str(request["timeout"])) / 1000
    assert told["error"].startswith(f"{request['url']} was not converted within {seconds:g} s. "), told
    selectors = [one for one in ("div:has(div div b)", COSTLY) if one in str(options)]
    assert all(repr(selector) in told["error"] for selector in selectors), told


@pytest.mark.system
@pytest.mark.parametrize(
    "name", ["patterns", *(pytest.param(name, marks=pytest.mark.system) for name in SITES if name != "patterns")]
)
def test_a_crawl_of_a_costly_site_delays_no_other_team(
    teams: Teams, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robots, "_ASK_TIMEOUT_S", 1.0)
    monkeypatch.setattr(path_patterns, "_TIMEOUT_S", 1.0)
    files, options = SITES[name]
    for path, text in {"/": "".join(f"<a href='/{'ab' * 500}{n}'>x</a>" for n in range(300)), **files}.items():
        teams.site.page(path, text.encode(), content_type="text/plain" if path == "/robots.txt" else "text/html")

    def crawl() -> dict[str, Any]:
        job = teams.post("/v2/crawl", "red", url=teams.site.url(), limit=3, **options).json()["id"]
        while (status := teams.status(f"/v2/crawl/{job}"))["status"] == "scraping":
            time.sleep(0.05)
        return status

    assert teams.beside(crawl)["status"] == "completed"


def check(schema: dict[str, object], values: int) -> Callable[[], object]:
    return lambda: checker({"items": schema})(list(range(3000, 3000 + values)))


def take_cookies() -> None:
    chain = RedirectChain("http://a.example/", {}, "test")
    for hop in range(10):
        cookies = [("set-cookie", f"name{hop}-{number}=value") for number in range(20_000)]
        assert chain.follow(302, httpx.Headers([("location", f"/{hop}"), *cookies]), allow_private=False)
        chain.request()


LINKS: list[dict[str, object]] = [{"url": f"https://a.example/{n}/page"} for n in range(20_000)]


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(
            lambda: url_to_visit(urlsplit(f"https://a.example/{' ' * 100_000}x"), ignore_query=False), id="url"
        ),
        pytest.param(check({"anyOf": [{"const": n} for n in range(2000)]}, 5000), id="errors of an answer"),
        pytest.param(check({"allOf": [{"not": {"const": n}} for n in range(1500)]}, 200_000), id="large answer"),
        pytest.param(lambda: _by_relevance(LINKS, " ".join(f"w{n}" for n in range(20_000))), id="map"),
        pytest.param(lambda: path_patterns._BEYOND_ASCII.sub("", "[" * 200_000), id="pattern"),
        pytest.param(lambda: [Formulas()._take(sign * 200_000) for sign in "$%"], id="formula"),
        pytest.param(take_cookies, id="cookies"),
    ],
)
def test_work_in_the_service_process_is_bounded(work: Callable[[], object]) -> None:
    began = time.thread_time()
    work()
    # Each took more than 10 s without its bound.
    assert time.thread_time() - began < 4


@pytest.mark.parametrize(
    "hold",
    [
        pytest.param(lambda: SharedSlots(1).hold, id="converters"),
        pytest.param(
            lambda: (
                OpenAIEndpoint(
                    ServiceConfig(llm_base_url="http://a.test/v1", llm_model="m", llm_concurrency=1)
                )._turns.hold
            ),
            id="language model",
        ),
        pytest.param(lambda: partial(ContextPool(max_pages=1, allow_private=True).slot, "a.test"), id="browser"),
    ],
)
def test_a_team_with_all_its_slots_delays_no_other(hold: Callable[[], Callable[[], Any]]) -> None:
    async def main() -> list[str]:
        slot, held, over = hold(), list[str](), asyncio.Event()

        async def work(team: str) -> None:
            TEAM.set(team)
            async with slot():
                held.append(team)
                await over.wait()

        async with asyncio.TaskGroup() as tasks:
            for team in ("red", "red", "red", "blue"):
                tasks.create_task(work(team))
            await asyncio.sleep(0.1)
            before = [*held]
            over.set()
        assert len(held) == 4
        return before

    assert asyncio.run(main()) == ["red", "blue"]


def test_names_that_do_not_resolve_delay_no_other_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, over = socket.getaddrinfo, threading.Event()

    def slow(host: str, *args: Any, **options: Any) -> Any:
        if host.endswith(".slow.test"):
            over.wait(120)
        return look_up("127.0.0.1", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def main() -> list[str]:
        waiting = [asyncio.create_task(resolve(f"{n}.slow.test", 80, allow_private=True)) for n in range(100)]
        try:
            async with asyncio.timeout(60):
                await asyncio.to_thread(int)
                return await resolve("fast.test", 80, allow_private=True)
        finally:
            over.set()
            await asyncio.gather(*waiting)

    assert asyncio.run(main()) == ["127.0.0.1"]


@pytest.mark.system
def test_a_request_with_many_parts_is_refused(teams: Teams) -> None:
    reply = teams.post("/v2/scrape", "red", url=teams.site.url("/small"), formats=[[] for _ in range(500_000)])
    assert (reply.status_code, reply.json()["error"]) == (
        400,
        "The body has more than 500000 objects, lists and fields. Send it in parts.",
    )


def test_a_gzip_body_with_many_members_is_refused() -> None:
    body = BodyDecoder("gzip", 1 << 20, "https://a.example/", cut=False)
    with pytest.raises(PageFailure, match="has more than 10000 members"):
        body.feed(gzip.compress(b"") * 10_001)


def test_a_schema_with_many_patterns_is_refused() -> None:
    properties = {f"p{n}": {"type": "string", "pattern": f"a{n}"} for n in range(100)}
    assert schema_problem({"properties": properties}) == ""
    assert schema_problem({"properties": properties, "pattern": "b"}) == "it has more than 100 patterns"


def test_large_versions_are_compared_without_lists_of_their_words() -> None:
    text = "word " * 100_000
    tracemalloc.start()
    same = compare(TrackingOptions(None, diff=False), text, f"{text}\n", 200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (same, peak < 5_000_000) == ({"changeStatus": "same"}, True)
    assert compare(TrackingOptions(None, diff=False), text, f"{text}x", 200) == {"changeStatus": "changed"}
