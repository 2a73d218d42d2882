"""What a scrape returns, option by option, from a real site."""

from __future__ import annotations

import time
from typing import Any

import pytest
import scrape_lab
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser
from tiers import examples

from weblake_service.page.markdown import IMAGE_PLACEHOLDER, to_markdown, without_base64_images

site, open_lab = scrape_lab.site, scrape_lab.open_lab
lab, lab_service = scrape_lab.lab, scrape_lab.lab_service

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def test_url_is_the_final_and_source_url_the_requested_url(lab: Any) -> None:
    lab.site.pages["/old"] = lambda handler: handler.reply(301, b"", {"Location": "/new?x=1#part"})
    lab.site.page("/new", b"<title>New</title><main><a href=other>o</a></main>")
    asked = lab.site.url("/old").removeprefix("http://")
    data = lab.scrape(asked, formats=["links"])
    assert data["metadata"]["sourceURL"] == lab.site.url("/old")
    assert data["metadata"]["url"] == lab.site.url("/new?x=1#part")
    assert data["links"] == [lab.site.url("/other")]


@pytest.mark.system
def test_a_target_that_does_not_respond_times_out(lab: Any) -> None:
    lab.site.pages["/slow"] = lambda handler: handler.server.stop.wait(20)
    reply = lab.post(lab.site.url("/slow"), timeout=1000)
    assert (reply.status_code, reply.json()["code"]) == (408, "SCRAPE_TIMEOUT")
    assert lab.credits() == 0


def test_the_id_of_a_failed_scrape_returns_its_error(lab: Any) -> None:
    lab.post(lab.site.page("/v", b"\x00\x01\x02", content_type="video/mp4"))
    (entry,) = lab.http.get("/v2/team/activity").json()["data"]
    told = lab.http.get(f"/v2/scrape/{entry['id']}")
    assert (told.status_code, told.json()["code"]) == (404, "SCRAPE_UNSUPPORTED_FILE_ERROR")
    assert "/v" in told.json()["error"]
    other = lab.http.get(f"/v2/scrape/{entry['id']}", headers={"Authorization": "Bearer test-key-2"})
    assert other.json()["error"] == "Job not found"


@pytest.mark.parametrize(
    "options",
    [
        {"includeTags": ["div["]},
        {"excludeTags": ["p", ""]},
        {"excludeTags": ["p::before"]},
        {"excludeTags": ["p" * 1001]},
        {"includeTags": ["p"] * 501},
        {"formats": [{"type": "attributes", "selectors": [{"selector": ">>", "attribute": "href"}]}]},
    ],
)
def test_an_invalid_selector_is_refused_before_the_scrape(lab: Any, options: dict[str, Any]) -> None:
    url = lab.site.page("/p", b"<p>One</p>")
    for path, body in (
        ("/v2/scrape", {"url": url, **options}),
        ("/v2/batch/scrape", {"urls": [url], **options}),
        ("/v2/crawl", {"url": url, "scrapeOptions": options}),
    ):
        reply = lab.http.post(path, json=body)
        assert (reply.status_code, reply.json()["code"]) == (400, "BAD_REQUEST"), path
        assert "selector" in reply.json()["error"]
    assert lab.site.requests == []
    assert lab.credits() == 0


@pytest.mark.system
@pytest.mark.parametrize(
    "options",
    [
        {"excludeTags": ["p:NTH-child(2n)"]},
        {"includeTags": ["div", "p:nth-last-of-type(3n)"]},
        {"formats": [{"type": "attributes", "selectors": [{"selector": ":nth-child(3)", "attribute": "id"}]}]},
    ],
)
def test_an_expensive_selector_cannot_block_the_service(lab: Any, options: dict[str, Any]) -> None:
    long = lab.site.page("/long", b"<main>" + b"<p>x" * 30_000 + b"</main>")
    begun = time.monotonic()
    reply = lab.post(long, timeout=2000, **options)
    assert (reply.status_code, "Selectors that cost much" in reply.json()["error"]) == (408, True)
    assert time.monotonic() - begun < 15, "it takes long on this page"
    short = lab.site.page("/short", b"<main>" + b"<p>x" * 100 + b"</main>")
    assert lab.post(short, **options).status_code == 200


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Connection", "TE", "Proxy-Authorization"]
)
def test_connection_headers_are_refused(lab: Any, name: str) -> None:
    reply = lab.post(lab.site.url("/p"), headers={name: "1"})
    assert (reply.status_code, name in reply.json()["error"]) == (400, True)
    assert lab.site.requests == []


def test_attributes_are_extracted_from_the_whole_page_in_order(lab: Any) -> None:
    url = lab.site.page("/p", b"<nav><a href=/n DATA-id=1>n</a></nav><main><a href=' /a '>a</a><a>b</a><b data-ID=2>")
    asked = [
        {"selector": "a", "attribute": "href"},
        {"selector": "[data-id]", "attribute": "data-ID"},
        {"selector": "i", "attribute": "x"},
    ]
    data = lab.scrape(url, formats=[{"type": "attributes", "selectors": asked}])
    assert "markdown" not in data
    assert data["attributes"] == [
        {**asked[0], "values": ["/n", " /a "]},
        {**asked[1], "values": ["1", "2"]},
        {**asked[2], "values": []},
    ]
    text = lab.site.page("/t", b"a", content_type="text/plain")
    assert lab.scrape(text, formats=[{"type": "attributes", "selectors": asked[:1]}])["attributes"] == [
        {**asked[0], "values": []}
    ]


ADS = (
    b"<body><div id=content><p>A text that is longer than everything around it, so that it is what the page is about, "
    b"and it goes on for a while.</p></div><div class=cookieBanner>We use cookies <a href=/policy>policy</a></div>"
    b"<ins class=adsbygoogle>Buy</ins><div class='ad-slot'><div class='ad-box'><img src=/ad.png></div></div>"
    b"<div class='download-box load-banner'>Loads</div></body>"
)


def test_ads_and_consent_banners_are_blocked_on_full_pages(lab: Any) -> None:
    url = lab.site.page("/p", ADS)
    formats = ["markdown", "html", "links", "images", "rawHtml"]
    without = lab.scrape(url, formats=formats, onlyMainContent=False)
    for gone in ("cookies", "Buy", "ad.png"):
        assert gone not in without["markdown"] + without["html"] + str(without["images"])
    assert "Loads" in without["markdown"]
    assert without["links"] == []
    assert without["rawHtml"] == ADS.decode()
    everything = lab.scrape(url, formats=formats, onlyMainContent=False, blockAds=False)
    for there in ("cookies", "Buy", "ad.png"):
        assert there in everything["html"]
    chosen = lab.scrape(url, includeTags=[".cookieBanner"])
    assert "We use cookies" in chosen["markdown"], "explicitly selected content is not blocked"


def test_an_article_about_cookies_is_not_blocked(lab: Any) -> None:
    body = (
        b"<div class='cookie-notice'><h1>Cookies</h1><p>This is the page that tells of our cookies.</p></div><p>x</p>"
    )
    assert "tells of our cookies" in lab.scrape(lab.site.page("/c", body), onlyMainContent=False)["markdown"]


WRAPS = ["{}", "<p>x {} y</p>", "<a href=/x>{}</a>", "<li>{}", "<table><tr><td>{}<td>z</table>"]
SOURCES = [PIXEL, PIXEL.upper(), f"  {PIXEL}", "data:image/svg+xml;charset=utf-8;base64,PHN2Zz4=", "data:;base64,AA"]


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.tuples(st.sampled_from(WRAPS), st.sampled_from(SOURCES), st.text("ab c", max_size=5)), min_size=1, max_size=6
    )
)
def test_no_base64_image_gets_into_markdown(images: list[tuple[str, str, str]]) -> None:
    tags = [wrap.format(f'<img alt="{alt}" src="{source}">') for wrap, source, alt in images]
    markdown, _ = to_markdown(LexborHTMLParser("".join(tags)))
    assert "base64," not in markdown.lower()
    assert markdown.count(IMAGE_PLACEHOLDER) == len(images)
    for _, _, alt in images:
        assert " ".join(alt.split()) in " ".join(markdown.split())


@settings(max_examples=examples(300))
@given(st.text(alphabet="![]()\\<> ab", max_size=60))
def test_markdown_without_base64_images_is_unchanged(text: str) -> None:
    assert without_base64_images(text) == text


def test_options_that_need_a_browser_are_refused_without_one(lab: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for options in ({"formats": ["screenshot"]}, {"formats": ["branding"]}, {"mobile": True}):
        reply = lab.post(lab.site.url("/p"), **options)
        assert (reply.status_code, reply.json()["code"]) == (503, "FEATURE_NOT_CONFIGURED")
    assert lab.site.requests == []


def test_the_languages_of_location_are_requested(lab: Any) -> None:
    said: list[str] = []

    def page(handler: Any) -> None:
        said.append(handler.headers["accept-language"])
        handler.reply(200, f"<main>{said[-1]}</main>".encode(), {})

    lab.site.pages["/l"] = page
    url = lab.site.url("/l")
    german = {"languages": ["de-CH", "de", "*"]}
    assert lab.scrape(url, location=german)["metadata"]["cacheState"] == "miss"
    assert lab.scrape(url, location=german)["metadata"]["cacheState"] == "hit"
    assert lab.scrape(url)["markdown"].startswith("en-US")
    lab.scrape(url, location=german, headers={"Accept-Language": "fr"})
    assert said == ["de-CH,de;q=0.9,*;q=0.8", "en-US,en;q=0.9", "fr"]
    assert lab.post(url, location={"languages": ["de\r\nx: y"]}).status_code == 400
    # The language follows from the country, and a warning says that the request was not sent from there.
    found = lab.scrape(url, location={"country": "at"})
    assert said[-1] == "de-AT,de;q=0.9"
    assert "no proxy in AT" in found["warning"]
    assert "warning" not in lab.scrape(url, location={"country": "US"})
    lab.scrape(url, location={"country": "BR", "languages": ["en"]})
    assert said[-1] == "en"
    refused = lab.post(url, location={"country": "XX"})
    assert (refused.status_code, "XX" in refused.text) == (400, True)
