"""Fetching over real sockets on loopback: responses, redirects, deadlines, and the codes of failures."""

from __future__ import annotations

import asyncio
import time

import httpcore
import loopback_site as loopback
import pytest
from converted_pages import scrape

from weblake_service.web import connection_pools
from weblake_service.web.fetch import Fetcher
from weblake_service.web.streams import wait_closed

Site, Handler, site = loopback.Site, loopback.Handler, loopback.site
fetching, get, failure = loopback.fetching, loopback.get, loopback.failure


def test_a_page_is_returned_with_status_headers_and_body(site: Site) -> None:
    fetched = get(site.page("/a", "Grüße".encode(), X_Test="1"))
    assert (fetched.status, fetched.reason, fetched.body.decode()) == (200, "OK", "Grüße")
    assert fetched.headers["x-test"] == "1"
    assert fetched.content_type == "text/html; charset=utf-8"
    _, sent = site.requests[0]
    assert sent["accept-encoding"] == "gzip"
    assert "weblake" in sent["user-agent"]
    assert sent["host"] == f"127.0.0.1:{site.server_port}"


def test_the_values_of_a_repeated_header_are_joined(site: Site) -> None:
    def reply(handler: loopback.Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Way: a\r\nContent-Length: 0\r\nx-way: b\r\n\r\n")

    site.pages["/twice"] = reply
    assert get(site.url("/twice")).headers["x-way"] == "a, b"


@pytest.mark.parametrize(("status", "words"), [(404, "Not Found"), (500, "Internal Server Error"), (403, "Forbidden")])
def test_an_error_status_of_the_target_is_a_document(site: Site, status: int, words: str) -> None:
    url = site.page("/gone", b"<title>T</title><p>Sorry.</p>", status)
    page = fetching(lambda fetcher: scrape(url, {}, fetcher=fetcher))
    assert page.document["markdown"] == "Sorry."
    assert page.document["metadata"]["statusCode"] == status
    assert page.document["metadata"]["error"] == words


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_cancelled_fetch_leaves_no_expired_connection_open(site: Site, turns: int) -> None:
    url = site.page("/a", b"x")

    async def story() -> None:
        pool = httpcore.AsyncConnectionPool(network_backend=connection_pools.PinnedBackend(allow_private=True))
        await asyncio.gather(*(pool.request("GET", url) for _ in range(4)))
        assert len(pool.connections) == 4
        kept = [each._connection for each in pool._connections]  # type: ignore[attr-defined]
        sockets = [each._network_stream.get_extra_info("socket") for each in kept]
        assert all(each.fileno() >= 0 for each in sockets)
        for each in kept:
            each._expire_at = 0.0
        task = asyncio.create_task(pool.request("GET", url))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await wait_closed()
        await asyncio.sleep(0)  # in which asyncio closes aborted connections
        assert [each for each in sockets if each.fileno() >= 0] == []
        await pool.aclose()
        await wait_closed()

    asyncio.run(story())


def test_connections_are_reused_and_a_dropped_one_is_replaced(site: Site) -> None:
    site.page("/a", b"x")

    def rude(handler: Handler) -> None:
        handler.reply(200, b"y", {})
        handler.close_connection = True

    site.pages["/rude"] = rude

    async def work(fetcher: Fetcher) -> None:
        for path in ("/a", "/a", "/rude", "/a", "/a"):
            assert (await fetcher.get(site.url(path))).status == 200

    fetching(work)
    assert site.connections == 2


def test_custom_headers_are_sent_and_connection_headers_are_not(site: Site) -> None:
    get(site.page("/a"), headers={"User-Agent": "mine", "X-Own": "ü", "Host": "other", "Accept-Encoding": "br"})
    _, sent = site.requests[0]
    assert (sent["user-agent"], sent["x-own"]) == ("mine", "ü")
    assert sent["host"] != "other"
    assert sent["accept-encoding"] == "gzip"


def test_an_invalid_header_is_a_bad_request(site: Site) -> None:
    problem = failure(site.page("/a"), headers={"X-Bad": "a\r\nInjected: 1"})
    assert (problem.code, problem.status) == ("BAD_REQUEST", 400)
    assert site.requests == []


def test_credentials_in_the_url_are_sent_and_not_returned(site: Site) -> None:
    site.page("/a")
    fetched = get(f"http://user:p%40ss@127.0.0.1:{site.server_port}/a")
    assert site.requests[0][1]["authorization"] == "Basic dXNlcjpwQHNz"
    assert fetched.url == site.url("/a")


def test_a_post_is_sent_once_and_its_redirect_is_not_followed(site: Site) -> None:
    status = fetching(
        lambda fetcher: fetcher.post(site.url("/hook"), b'{"a":1}', headers={"Content-Type": "application/json"})
    )
    assert status == 302
    assert [(path, sent["body"]) for path, sent in site.requests] == [("/hook", '{"a":1}')]


def test_redirects_are_followed_and_listed(site: Site) -> None:
    site.page("/one", status=301, Location="/two?x=1#part")
    site.page("/two", status=302, Location="three")
    site.page("/three", b"end")
    fetched = get(site.url("/one"))
    assert fetched.body == b"end"
    assert fetched.redirects == (site.url("/one"), site.url("/two?x=1#part"))
    assert fetched.url.partition("#")[0] == site.url("/three")


def test_credentials_are_sent_to_their_host_only(site: Site) -> None:
    secret = {"Authorization": "Bearer test-key", "Cookie": "a=1", "X-Api-Key": "test-key", "Accept-Language": "de"}
    site.page("/away", status=302, Location=site.url("/end", "localhost"))
    site.page("/near", status=302, Location="/end")
    site.page("/end")
    get(site.url("/away"), headers=secret)
    get(site.url("/near"), headers=secret)
    away, near = site.requests[1][1], site.requests[3][1]
    assert away.keys().isdisjoint({"authorization", "cookie", "x-api-key"})
    assert away["accept-language"] == "de"
    assert (near["authorization"], near["cookie"], near["x-api-key"]) == ("Bearer test-key", "a=1", "test-key")


def test_cookies_last_for_one_redirect_chain(site: Site) -> None:
    site.page("/wall", status=302, Location="/inside", Set_Cookie="seen=yes; Path=/")
    site.page("/inside")

    async def work(fetcher: Fetcher) -> None:
        await fetcher.get(site.url("/wall"), headers={"Cookie": "own=1"})
        await fetcher.get(site.url("/inside"))

    fetching(work)
    assert [sent.get("cookie") for _, sent in site.requests] == ["own=1", "own=1; seen=yes", None]


def test_a_redirect_loop_is_a_failure(site: Site) -> None:
    problem = failure(site.page("/loop", status=302, Location="/loop"))
    assert (problem.code, problem.status) == ("SCRAPE_SITE_ERROR", 500)
    assert len(site.requests) == 11


META = '<meta http-equiv="refresh" content="{}">'
LONG = "A page that has text of its own, which stays for some seconds. " * 20


@pytest.mark.parametrize(
    ("head", "rest", "target"),
    [
        (META.format("0; url=/end"), "Redirecting", "/end"),
        ("<meta content='0;URL=&quot;/end&quot;' HTTP-EQUIV=Refresh>", LONG, "/end"),
        (META.format("0, '/end' and more"), "", "/end"),
        (META.format("0.5;/end"), "", "/end"),
        (META.format(" 0  /end"), "", "/end"),
        ("<base href='/deep/'>" + META.format("0; url=end"), "", "/deep/end"),
        ("<title>x</title><body>" + META.format("0; url=/end"), "", "/end"),
        (META.format("5; url=/end"), "You are redirected in 5 seconds.", "/end"),
        (META.format("5; url=/end"), LONG, None),
        (META.format("30; url=/end"), "", None),
        (META.format("0"), "", None),
        (META.format("0; url="), "", None),
        (META.format("url=/end"), "", None),
        (META.format("0; url=/page#part"), "", None),
        (META.format("0; url=javascript:alert(1)"), "", None),
        (META.format("0; url=mailto:a@b.test"), "", None),
        (f"<noscript>{META.format('0; url=/end')}</noscript>", "text", None),
        (f"<!-- {META.format('0; url=/end')} -->", "text", None),
        (f"<script>'{META.format('0; url=/end')}'</script>", "text", None),
        (f"<template>{META.format('0; url=/end')}</template>", "text", None),
    ],
)
def test_a_page_that_only_redirects_is_followed_as_a_browser_does(
    site: Site, head: str, rest: str, target: str | None
) -> None:
    for path in ("/end", "/deep/end"):
        site.page(path, b"end")
    start = site.page("/page", f"<!doctype html><html><head>{head}</head><body>{rest}".encode())
    fetched = get(start, refresh=True)
    assert fetched.url == (start if target is None else site.url(target))
    assert fetched.redirects == (() if target is None else (start,))
    assert get(start).url == start


def test_a_refresh_follows_the_rules_of_a_redirect(site: Site) -> None:
    """Cookies and headers are sent as after a redirect; the header, other encodings and 404 pages are respected."""
    site.page("/a", META.format("0; url=/b").encode(), Set_Cookie="seen=yes; Path=/")
    site.page("/b", Refresh=f"0; url={site.url('/c', 'localhost')}")
    site.page("/c", META.format("0; url=/d").encode("utf-16"), content_type="text/html; charset=utf-16")
    site.page("/d", META.format("0; url=/e").encode(), 404)
    fetched = get(site.url("/a"), refresh=True, headers={"X-Token": "t"})
    assert (fetched.url, fetched.status) == (site.url("/d", "localhost"), 404)
    assert [(sent.get("x-token"), sent.get("cookie")) for _, sent in site.requests] == [
        ("t", None), ("t", "seen=yes"), (None, None), (None, None),
    ]  # fmt: skip


def test_refreshes_without_end_give_the_last_page(site: Site) -> None:
    site.page("/a", META.format("0; url=/b").encode())
    site.page("/b", META.format("0; url=/a").encode())
    assert get(site.url("/a"), refresh=True).url == site.url("/b")
    for number in range(20):
        site.page(f"/{number}", META.format(f"0; url=/{number + 1}").encode())
    assert get(site.url("/0"), refresh=True).url == site.url("/10")


@pytest.mark.parametrize(
    "location", ["ftp://example.org/a", "javascript:alert(1)", "file:///etc/passwd", "http://[::1", "http://"]
)
def test_a_redirect_to_another_scheme_is_a_failure(site: Site, location: str) -> None:
    assert failure(site.page("/out", status=302, Location=location)).code == "SCRAPE_SITE_ERROR"


def test_a_redirect_without_a_target_is_returned(site: Site) -> None:
    assert get(site.page("/r", b"see there", 302)).body == b"see there"


def test_an_unknown_host_is_a_failure() -> None:
    problem = failure("http://no-such-host.invalid/")
    assert (problem.code, problem.status) == ("SCRAPE_DNS_RESOLUTION_ERROR", 500)


def test_a_refused_connection_is_a_failure(site: Site) -> None:
    spare = Site()
    url = spare.url()
    spare.server_close()
    problem = failure(url)
    assert (problem.code, problem.reached) == ("SCRAPE_SITE_ERROR", False)


def test_the_deadline_covers_the_whole_body(site: Site) -> None:
    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        while not handler.server.stop.wait(0.05):
            handler.wfile.write(b".")
            handler.wfile.flush()

    site.pages["/drip"] = drip
    began = time.monotonic()
    problem = failure(site.url("/drip"), timeout_s=0.5)
    assert (problem.code, problem.status) == ("SCRAPE_TIMEOUT", 408)
    assert time.monotonic() - began < 20


def test_a_truncated_body_is_a_failure(site: Site) -> None:
    def broken(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(b"half")
        handler.close_connection = True

    site.pages["/half"] = broken
    assert failure(site.url("/half")).code == "SCRAPE_SITE_ERROR"


def test_a_response_that_is_not_http_is_a_failure(site: Site) -> None:
    site.pages["/noise"] = lambda handler: (
        handler.wfile.write(b"220 ready\r\n\r\n"),
        setattr(handler, "close_connection", True),
    )
    assert failure(site.url("/noise")).code == "SCRAPE_SITE_ERROR"
