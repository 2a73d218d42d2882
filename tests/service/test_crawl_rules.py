"""The rules of a crawl hold for the URL that answers, and its headers belong to its own site; over real sockets.

127.0.0.1 and localhost are two sites of one server.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
from scrape_lab import Lab, Site, lab, lab_service, site

from weblake_service.web.redirect_chain import options_for

__all__ = ["lab", "lab_service", "site"]

OTHER = "localhost"
HOW = ["location", "refresh"]
TARGETS = {"foreign": "out of scope", "/admin/x": "excludePaths", "/file.zip": "binary file"}


def crawl(lab: Lab, path: str = "/", **options: Any) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """Return the paths of the documents, the status and the errors of a crawl."""
    body = {"url": lab.site.url(path), **options}
    job = lab.http.post("/v2/crawl", json=body).json()["id"]
    status = lab.wait_until_ended(f"/v2/crawl/{job}")
    base = lab.site.url("")
    found = sorted(page["metadata"]["url"].removeprefix(base) for page in status["data"])
    return found, status, lab.http.get(f"/v2/crawl/{job}/errors").json()


def links(site: Site, path: str, *hrefs: str) -> None:
    site.page(path, "".join(f'<a href="{href}">a link</a>' for href in hrefs).encode())


def redirect(site: Site, path: str, target: str, how: str = "location") -> None:
    if how == "location":
        site.page(path, b"", 302, Location=target)
    else:
        site.page(path, f'<meta http-equiv="refresh" content="0; url={target}">Redirecting'.encode())


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("target", TARGETS)
def test_a_page_that_redirects_out_of_the_rules_is_an_error(lab: Lab, target: str, how: str) -> None:
    links(lab.site, "/", "/go", "/a")
    lab.site.page("/a")
    final = lab.site.page("/other", b"<p>foreign</p>").replace("127.0.0.1", OTHER) if target == "foreign" else target
    lab.site.page("/admin/x", b"<p>secret</p>")
    lab.site.page("/file.zip", b"<p>text</p>")
    redirect(lab.site, "/go", final, how)
    found, status, errors = crawl(lab, excludePaths=["^/admin/"])
    assert (found, status["creditsUsed"], lab.credits()) == (["/", "/a"], 2, 2)
    (error,) = errors["errors"]
    assert error["url"] == lab.site.url("/go")
    assert error["code"] == "CRAWL_REDIRECT_NOT_ALLOWED"
    assert TARGETS[target] in error["error"]
    # Nothing of the page is kept for a later scrape.
    asked = lab.fetch_count("/go")
    lab.scrape(lab.site.url("/go"))
    assert lab.fetch_count("/go") == asked + 1


@pytest.mark.parametrize("obeys", [True, False])
def test_robots_txt_of_the_host_that_answers_is_obeyed(lab: Lab, obeys: bool) -> None:
    def robots(handler: Any) -> None:
        foreign = handler.headers["host"].startswith(OTHER)
        handler.reply(200, b"User-agent: *\nDisallow: " + (b"/" if foreign else b"/private"), {})

    lab.site.pages["/robots.txt"] = robots
    links(lab.site, "/", "/go", "/in")
    lab.site.page("/private", b"<p>own</p>")
    foreign = lab.site.page("/out", b"<p>foreign</p>").replace("127.0.0.1", OTHER)
    redirect(lab.site, "/go", foreign)
    redirect(lab.site, "/in", "/private")
    found, status, errors = crawl(lab, allowExternalLinks=True, ignoreRobotsTxt=not obeys)
    if obeys:
        assert (found, status["creditsUsed"]) == (["/"], 1)
        assert sorted(errors["robotsBlocked"]) == [lab.site.url("/go"), lab.site.url("/in")]
    else:
        assert (found, status["creditsUsed"]) == (["/", "/private", foreign], 3)


def test_a_redirect_to_a_page_of_the_crawl_or_of_its_start_is_no_error(lab: Lab) -> None:
    """The start page is in the crawl although a pattern excludes it."""
    links(lab.site, "/", "/blog/a", "/blog/home", "/blog/again", "/blog/caf\xe9")
    for path in ("/blog/a", "/blog/caf%C3%A9"):
        lab.site.page(path)
    redirect(lab.site, "/blog/home", "/")
    redirect(lab.site, "/blog/again", "/blog/a")
    found, status, errors = crawl(lab, includePaths=["^/blog/"])
    assert (found, status["creditsUsed"], errors["errors"]) == (["/", "/blog/a", "/blog/caf%C3%A9"], 3, [])


def test_the_scope_of_a_redirected_start_holds_for_pages_that_are_done_before_it(lab: Lab) -> None:
    """The site has moved; its sitemap lists the old URLs, which are redirected before the start page answers."""
    moved = {path: lab.site.page(path, b"<p>moved</p>").replace("127.0.0.1", OTHER) for path in ("/new/", "/new/a")}
    listed = f"<urlset><url><loc>{lab.site.url('/a')}</loc></url></urlset>"
    lab.site.page("/sitemap.xml", listed.encode(), content_type="application/xml")
    redirect(lab.site, "/a", moved["/new/a"])

    def start(handler: Any) -> None:
        if handler.headers["host"].startswith("127"):
            lab.site.stop.wait(0.3)
            handler.reply(302, b"", {"Location": moved["/new/"]})
        else:
            handler.reply(200, b"<p>start</p>", {})

    lab.site.pages["/"] = start
    found, _, errors = crawl(lab)
    assert (found, errors["errors"]) == (sorted(moved.values()), [])


@pytest.mark.parametrize("external", ["external", "subdomain"])
def test_the_headers_of_a_crawl_are_sent_to_the_site_of_its_start_only(
    lab: Lab, external: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: look_up(host.removeprefix("sub."), *a, **k))
    option = {"external": "allowExternalLinks", "subdomain": "allowSubdomains"}[external]
    host = {"external": OTHER, "subdomain": "sub.localhost"}[external]
    start = lab.site.url("/", host="127.0.0.1" if external == "external" else OTHER)
    foreign = lab.site.page("/foreign", b"<a href='/deep'>x</a>").replace("127.0.0.1", host)
    lab.site.page("/deep", b"<p>deep</p>")
    links(lab.site, "/", "/own", foreign)
    lab.site.page("/own")
    headers = {"Cookie": "session=1", "Authorization": "Bearer s3cret", "X-Token": "t", "User-Agent": "mine/1"}
    job = lab.http.post("/v2/crawl", json={"url": start, option: True, "scrapeOptions": {"headers": headers}})
    status = lab.wait_until_ended(f"/v2/crawl/{job.json()['id']}")
    assert len(status["data"]) == 4
    sent: dict[str, set[str]] = {}
    for path, got in lab.site.requests:
        sent.setdefault(path, set()).update({"cookie", "authorization", "x-token"} & got.keys())
        if path in {"/", "/own", "/foreign", "/deep"}:
            assert got["user-agent"] == "mine/1"
    everything = {"cookie", "authorization", "x-token"}
    assert {path for path, names in sent.items() if names == everything} == {"/", "/own"}
    assert {path for path, names in sent.items() if names} == {"/", "/own"}


@pytest.mark.parametrize(
    ("url", "homes", "private"),
    [
        ("https://a.test/x", ["https://a.test/"], True),
        ("https://a.test/x", ["http://a.test/*", "https://b.test/"], True),
        ("http://a.test/x", ["https://a.test/"], False),
        ("https://www.a.test/", ["https://a.test/"], False),
        ("https://a.test:8443/", ["https://a.test/"], False),
        ("https://a.test.evil.test/", ["https://a.test/"], False),
        ("https://a.test/", [], False),
        ("http://[bad/", ["https://a.test/"], False),
    ],
)
def test_headers_with_user_data_are_for_the_sites_that_the_request_names(
    url: str, homes: list[str], private: bool
) -> None:
    headers = {"Cookie": "a=1", "X-Token": "t", "User-Agent": "mine"}
    found = options_for(url, {"headers": headers, "mobile": True}, homes)
    assert found == {"headers": headers if private else {"User-Agent": "mine"}, "mobile": True}


def test_a_sitemap_that_is_not_well_formed_is_named_in_the_warning(lab: Lab) -> None:
    """All its entries are read, by the map and by a crawl."""
    entries = "".join(
        f"<url><loc>{lab.site.url(f'/{n}')}?a=1{'&' if n == 1 else '&amp;'}b=2</loc></url>" for n in range(5)
    )
    lab.site.page("/sitemap.xml", f"<urlset>{entries}</urlset>".encode(), content_type="application/xml")
    for number in range(5):
        lab.site.page(f"/{number}")
    found = lab.http.post("/v2/map", json={"url": lab.site.url(), "sitemap": "only", "ignoreQueryParameters": False})
    assert [link["url"] for link in found.json()["links"]] == [lab.site.url(f"/{n}?a=1&b=2") for n in range(5)]
    job = lab.http.post("/v2/crawl", json={"url": lab.site.url(), "sitemap": "only"}).json()["id"]
    status = lab.wait_until_ended(f"/v2/crawl/{job}")
    assert status["completed"] == 6
    for warning in (found.json()["warning"], status["warning"]):
        assert f"{lab.site.url('/sitemap.xml')} is not well-formed (a bare & in line 1)" in warning
