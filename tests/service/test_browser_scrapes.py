"""Scrapes with the browser, over real sockets: screenshots, actions, devices, profiles, the cache."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import browser_lab
import pytest
from browser_lab import BrowserLab, picture
from polling import until

from weblake_service.browser import actions as browser_actions
from weblake_service.browser import page_rendering

pytestmark = pytest.mark.system

SHOP = b"""<!doctype html><title>Shop</title><meta property="og:image" content="/og.png">
<link rel=icon href="/icon.svg">
<style>body{background:#fff;color:#223344;font-family:Georgia,serif;margin:0} h1{font-size:40px;font-family:Arial}
a{color:#0055cc} .btn{background:#cc3300;color:#fff;border-radius:6px;border:0;padding:8px 16px}
.tall{height:3000px}</style>
<header><img class=logo alt=logo src="/logo.svg" width=40 height=40></header>
<main><h1>Shop</h1><p>Text of the shop that is long enough to be its text.</p><a href="/other">Other</a>
<button class=btn onclick="add()">Add</button><button class=btn style="background:#eee;color:#111">Later</button>
<input id=field><ul id=list></ul><div class=tall></div></main>
<script>let n = 0; function add(){const li=document.createElement('li');li.textContent='item '+ ++n;list.append(li)}
field.addEventListener('keydown', e => { if (e.key === 'Enter') { document.title = 'sent ' + field.value } })
setTimeout(() => { const p=document.createElement('p'); p.id='late'; p.textContent='came late'; list.after(p) }, 700)
</script>"""
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='40' height='40'><rect width='40' height='40'/></svg>"
#: Reports the state that a page finds in its browser: 0 for each kind of storage if it is empty.
COUNTING = b"""<!doctype html><main><h1>Counting</h1><p id=out>...</p></main><script>
const stored = Number(localStorage.visits ?? 0); localStorage.visits = stored + 1;
const cookie = Number((document.cookie.match(/visits=(\\d+)/) ?? [0, 0])[1]);
document.cookie = 'visits=' + (cookie + 1) + '; max-age=10000';
const opening = indexedDB.open('visits'); let old = 1;
opening.onupgradeneeded = () => { old = 0 };
opening.onsuccess = async () => {
    const fresh = await (await fetch('/tick')).text();
    out.textContent = 'storage ' + stored + ' cookie ' + cookie + ' database ' + old + ' tick ' + fresh + ' done';
    out.id = 'done';
};</script>"""
#: Waits for the report, however busy the machine is.
REPORTED = [{"type": "wait", "selector": "#done"}]


class CountingPage:
    """A page that counts its requests, and allows long caching."""

    count = 0

    def __call__(self, handler: Any) -> None:
        self.count += 1
        kept = {"cache_control": "max-age=1000", "content_type": "text/plain"}
        handler.reply(200, str(self.count).encode(), kept)


@pytest.fixture(scope="module")
def lab() -> Iterator[BrowserLab]:
    for lab in browser_lab.open_lab():
        lab.site.page("/shop", SHOP)
        lab.site.page("/other", b"<title>Other</title><main><h1>The other page</h1></main>")
        for path in ("/logo.svg", "/icon.svg", "/og.png"):
            lab.site.page(path, SVG, content_type="image/svg+xml")
        lab.site.page("/counting", COUNTING)
        lab.site.pages["/tick"] = CountingPage()
        yield lab


def test_screenshots_and_text_of_one_page_are_returned(lab: BrowserLab) -> None:
    url = lab.site.url("/shop")
    data = lab.scrape(url, formats=["markdown", "links", "screenshot"], waitFor=2500)
    assert picture(data["screenshot"]) == ("png", 1280, 800)
    assert "came late" in data["markdown"]
    assert lab.site.url("/other") in data["links"]
    metadata = data["metadata"]
    assert (metadata["statusCode"], metadata["url"], metadata["creditsUsed"]) == (200, url, 1)
    whole = {"type": "screenshot", "fullPage": True, "quality": 40, "viewport": {"width": 600, "height": 500}}
    kind, width, height = picture(lab.scrape(url, formats=[whole], blockAds=False)["screenshot"])
    assert (kind, width) == ("jpeg", 600)
    assert height > 3000


def test_the_cache_returns_screenshots_and_no_results_of_actions(lab: BrowserLab) -> None:
    url = lab.site.page("/cached", SHOP)
    first = lab.scrape(url, formats=["screenshot"])
    again = lab.scrape(url, formats=["screenshot", "markdown"])
    assert (first["metadata"]["cacheState"], again["metadata"]["cacheState"]) == ("miss", "hit")
    assert again["screenshot"] == first["screenshot"]
    assert len(lab.requests_for("/cached")) == 1
    # Other screenshot options are another cache entry, and the plain page does not come from the browser.
    assert lab.scrape(url, formats=["screenshot"], mobile=True)["metadata"]["cacheState"] == "miss"
    assert lab.scrape(url)["metadata"]["cacheState"] == "miss"
    for _ in range(2):
        done = lab.scrape(url, actions=[{"type": "wait", "milliseconds": 1}])
        assert done["metadata"]["cacheState"] == "miss"
    miss = lab.post(url, formats=["branding"], lockdown=True)
    assert (miss.status_code, miss.json()["code"]) == (404, "SCRAPE_LOCKDOWN_CACHE_MISS")


def test_every_action_of_the_contract_is_performed(lab: BrowserLab) -> None:
    url = lab.site.url("/shop")
    found = lab.scrape(
        url,
        formats=["markdown", "html"],
        actions=[
            {"type": "wait", "milliseconds": 10},
            {"type": "wait", "selector": "#late"},
            {"type": "click", "selector": "button.btn"},
            {"type": "click", "selector": "button", "all": True},
            {"type": "click", "selector": "button.nobody", "all": True},
            {"type": "click", "selector": "#field"},
            {"type": "write", "text": "häuser"},
            {"type": "press", "key": "Enter"},
            {"type": "executeJavascript", "script": "document.title"},
            {"type": "executeJavascript", "script": "return new Promise(r => r({items: list.children.length}))"},
            {"type": "executeJavascript", "script": "undefined"},
            {"type": "scroll", "direction": "down"},
            {"type": "executeJavascript", "script": "scrollY"},
            {"type": "scroll", "direction": "up"},
            {"type": "executeJavascript", "script": "scrollY"},
            {"type": "scrape"},
            {"type": "screenshot", "fullPage": True},
            {"type": "screenshot", "quality": 50, "viewport": {"width": 300, "height": 200}},
            {"type": "pdf", "format": "A4", "landscape": True, "scale": 0.5},
            {"type": "click", "selector": "a[href]"},
            {"type": "scrape"},
        ],
    )
    done = found["actions"]
    values = [(one["type"], one["value"]) for one in done["javascriptReturns"]]
    assert values[:3] == [("string", "sent häuser"), ("object", {"items": 2}), ("undefined", None)]
    assert values[3][1] > 500
    assert values[4][1] == 0
    assert [one["url"] for one in done["scrapes"]] == [url, lab.site.url("/other")]
    assert "item 2" in done["scrapes"][0]["html"]
    (full, cut), (pdf,) = done["screenshots"], done["pdfs"]
    assert picture(full)[2] > 3000
    assert picture(cut) == ("jpeg", 300, 200)
    assert base64.b64decode(pdf.partition("data:application/pdf;base64,")[2]).startswith(b"%PDF")
    # The document is of the page that the actions led to.
    assert "The other page" in found["markdown"]
    assert found["metadata"]["url"] == lab.site.url("/other")
    assert found["metadata"]["sourceURL"] == url


@pytest.mark.parametrize(
    ("action", "status", "said"),
    [
        ({"type": "click", "selector": "#nobody"}, 500, "Action 1 (click '#nobody') failed"),
        ({"type": "click", "selector": "a[["}, 400, "a[["),
        ({"type": "press", "key": "NoSuchKey"}, 400, "NoSuchKey"),
        ({"type": "executeJavascript", "script": "throw new Error('on purpose')"}, 500, "on purpose"),
        ({"type": "pdf", "scale": 50}, 400, "Action 1 (pdf) failed"),
    ],
)
def test_an_action_that_fails_is_named(
    lab: BrowserLab, action: dict[str, object], status: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_actions, "_ACTION_TIMEOUT_MS", 500)
    reply = lab.post(lab.site.url("/other"), actions=[action])
    assert (reply.status_code, reply.json()["code"]) == (status, "SCRAPE_ACTION_ERROR"), reply.text
    assert said in reply.json()["error"]


def test_the_results_of_actions_are_bounded_in_bytes_and_not_in_number(
    lab: BrowserLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"type": "executeJavascript", "script": "'x'.repeat(1000)"}
    found = lab.run_actions(lab.site.url("/other"), *[{"type": "wait", "milliseconds": 1}] * 60, one)
    assert found["javascriptReturns"] == [{"type": "string", "value": "x" * 1000}]
    monkeypatch.setattr(browser_actions, "_MAX_RESULT_BYTES", 3000)
    reply = lab.post(lab.site.url("/other"), actions=[one] * 3)
    assert (reply.status_code, reply.json()["code"]) == (400, "SCRAPE_ACTION_ERROR"), reply.text
    assert "more than 3000 bytes" in reply.json()["error"]


def test_a_large_object_of_a_script_costs_no_more_than_its_text(lab: BrowserLab) -> None:
    began = time.process_time()
    script = "Array.from({length: 1_000_000}, (_, n) => ({n}))"
    found = lab.run_actions(lab.site.url("/other"), {"type": "executeJavascript", "script": script})
    # The driver's objects for the values took four seconds of the thread that answers all requests.
    assert time.process_time() - began < 2
    assert found["javascriptReturns"][0]["value"][-1] == {"n": 999_999}


def test_a_script_runs_where_the_page_forbids_scripts(lab: BrowserLab) -> None:
    url = lab.site.page("/strict", b"<title>Strict</title><main>x</main>", content_security_policy="default-src 'none'")
    done = lab.run_actions(url, {"type": "executeJavascript", "script": "eval; document.title"}, {"type": "scrape"})
    assert done["javascriptReturns"] == [{"type": "string", "value": "Strict"}]
    assert "Strict" in done["scrapes"][0]["html"]


def test_device_language_and_time_zone_are_emulated(lab: BrowserLab) -> None:
    script = (
        "({width: screen.width, touch: navigator.maxTouchPoints, agent: navigator.userAgent, said: navigator.language,"
        " zone: Intl.DateTimeFormat().resolvedOptions().timeZone})"
    )
    url = lab.site.url("/other")
    look = {"type": "executeJavascript", "script": script}
    desk = lab.run_actions(url, look)["javascriptReturns"][0]["value"]
    assert (desk["width"], desk["touch"], desk["said"], desk["zone"]) == (1280, 0, "en-US", "America/New_York")
    assert "weblake" in desk["agent"]
    assert "Headless" not in desk["agent"]
    phone = lab.run_actions(url, look, mobile=True, location={"languages": ["de-CH", "fr"]})["javascriptReturns"][0][
        "value"
    ]
    assert phone["width"] < 500
    assert phone["touch"] > 0
    assert "Mobile" in phone["agent"]
    assert phone["said"] == "de-CH"
    assert lab.requests_for("/other")[-1]["accept-language"] == "de-CH,fr;q=0.9"
    away = lab.run_actions(url, look, location={"country": "JP"})["javascriptReturns"][0]["value"]
    assert (away["said"], away["zone"]) == ("ja-JP", "Asia/Tokyo")


def test_headers_are_sent_to_the_requested_site_only(lab: BrowserLab) -> None:
    other = browser_lab.open_site()
    try:
        other.page("/pixel", SVG, content_type="image/svg+xml")
        lab.site.pages["/away"] = lambda handler: handler.reply(
            302, b"", {"Location": other.url("/pixel?from-redirect")}
        )
        body = f"<main>x</main><img src='/pixel'><img src='/away'><img src='{other.url('/pixel')}'>"
        url = lab.site.page("/guarded", body.encode())
        headers = {"X-Token": "secret", "Cookie": "session=abc", "User-Agent": "mine/1"}
        lab.scrape(url, formats=["screenshot"], headers=headers)
        (sent,) = lab.requests_for("/guarded")
        assert (sent["x-token"], sent["cookie"], sent["user-agent"]) == ("secret", "session=abc", "mine/1")
        assert lab.requests_for("/pixel")[0]["x-token"] == "secret"
        seen = [sent for _, sent in other.requests]
        assert len(seen) == 2
        assert all("x-token" not in sent for sent in seen)
        # A context with credentials is not reused.
        lab.scrape(url, formats=["screenshot"], maxAge=0)
        assert {"x-token", "cookie"}.isdisjoint(lab.requests_for("/guarded")[-1])
    finally:
        other.shutdown()
        other.server_close()


def test_the_headers_of_a_crawl_are_not_sent_to_another_site_that_it_links_to(lab: BrowserLab) -> None:
    other = browser_lab.open_site()
    try:
        foreign = other.page("/", b"<p>foreign</p>")
        url = lab.site.page("/crawled/", f"<a href='{foreign}'>x</a>".encode())
        options = {"headers": {"X-Token": "secret", "Cookie": "session=abc"}, "waitFor": 1}
        body = {"url": url, "allowExternalLinks": True, "ignoreRobotsTxt": True, "scrapeOptions": options}
        key = {"Authorization": "Bearer red-key"}
        job = lab.http.post("/v2/crawl", json=body, headers=key).json()["id"]
        pages = until(lambda: _documents_of_ended(lab, job))
        assert {page["metadata"]["url"] for page in pages} == {url, foreign}
        assert lab.requests_for("/crawled/")[-1]["x-token"] == "secret"
        assert "/" in [path for path, _ in other.requests]
        assert all({"x-token", "cookie"}.isdisjoint(sent) for _, sent in other.requests)
    finally:
        other.shutdown()
        other.server_close()


def _documents_of_ended(lab: BrowserLab, job: str) -> list[dict[str, Any]] | None:
    status = lab.http.get(f"/v2/crawl/{job}", headers={"Authorization": "Bearer red-key"}).json()
    return status["data"] if status["status"] == "completed" else None


def test_the_credentials_of_a_url_are_sent_to_its_site(lab: BrowserLab) -> None:
    def guarded(handler: Any) -> None:
        if handler.headers["authorization"] == "Basic bWU6cGFzcyB3b3Jk":
            handler.reply(200, b"<main>welcome</main>", {})
        else:
            handler.reply(401, b"no", {"WWW-Authenticate": "Basic realm=x"})

    lab.site.pages["/login"] = guarded
    url = lab.site.url("/login").replace("//", "//me:pass%20word@")
    for headers in ({}, {"X-More": "1"}):
        data = lab.scrape(url, waitFor=1, headers=headers, maxAge=0)
        assert (data["metadata"]["statusCode"], data["markdown"]) == (200, "welcome")
        assert data["metadata"]["url"] == lab.site.url("/login")
        wrong = lab.scrape(url.replace("me:", "you:"), waitFor=1, headers=headers, maxAge=0)
        assert wrong["metadata"]["statusCode"] == 401


def test_no_page_leaves_state_for_the_next_one(lab: BrowserLab) -> None:
    before = lab.site.pages["/tick"].count
    for number in (1, 2):
        data = lab.scrape(lab.site.url("/counting"), "red-key", waitFor=2000, maxAge=0)
        assert f"storage 0 cookie 0 database 0 tick {before + number} done" in data["markdown"]


def test_a_profile_persists_for_its_team(lab: BrowserLab) -> None:
    url = lab.site.url("/counting")

    def visit(name: str, key: str = "red-key", **more: object) -> str:
        data = lab.scrape(url, key, actions=REPORTED, profile={"name": name, **more})
        assert data["metadata"]["cacheState"] == "miss"
        return str(data["markdown"])

    assert "storage 0 cookie 0 database 0" in visit("shopper")
    assert "storage 1 cookie 1 database 1" in visit("shopper")
    for _ in range(2):
        assert "storage 2 cookie 2 database 1" in visit("shopper", saveChanges=False)
    assert "storage 0 cookie 0" in visit("another")
    assert "storage 0 cookie 0" in visit("shopper", "blue-key", saveChanges=False)


def test_a_profile_is_saved_by_one_scrape_at_a_time(lab: BrowserLab) -> None:
    """The pages of a batch save one after the other, each on the state of the one before it."""
    urls = [f"{lab.site.url('/counting')}?{number}" for number in range(3)]
    body = {"urls": urls, "actions": REPORTED, "profile": {"name": "batch"}}
    auth = {"Authorization": "Bearer red-key"}
    job = lab.http.post("/v2/batch/scrape", json=body, headers=auth).json()["id"]

    def ended() -> Any:
        status = lab.http.get(f"/v2/batch/scrape/{job}", headers=auth).json()
        return status if status["status"] != "scraping" else None

    texts = [one["markdown"] for one in until(ended)["data"]]
    assert sorted(text.partition("cookie ")[2][0] for text in texts) == ["0", "1", "2"]


def test_branding_reports_computed_styles(lab: BrowserLab) -> None:
    found = lab.scrape(lab.site.url("/shop"), formats=["branding"])["branding"]
    assert found["colorScheme"] == "light"
    colors = found["colors"]
    assert (colors["primary"], colors["background"], colors["textPrimary"]) == ("#CC3300", "#FFFFFF", "#223344")
    assert colors["link"] == "#0055CC"
    assert {"family": "Georgia"} in found["fonts"]
    assert found["typography"]["fontFamilies"] == {"primary": "Georgia", "heading": "Arial"}
    assert found["typography"]["fontSizes"]["h1"] == "40px"
    button = found["components"]["buttonPrimary"]
    assert button == {"background": "#CC3300", "textColor": "#FFFFFF", "borderRadius": "6px"}
    assert found["components"]["buttonSecondary"]["background"] == "#EEEEEE"
    assert found["images"] == {
        name: lab.site.url(path)
        for name, path in (("logo", "/logo.svg"), ("favicon", "/icon.svg"), ("ogImage", "/og.png"))
    }


def test_files_and_text_equal_those_without_a_browser(lab: BrowserLab) -> None:
    url = lab.site.page("/data.json", json.dumps({"a": 1}).encode(), content_type="application/json")
    data = lab.scrape(url, formats=["markdown", "rawHtml", "screenshot"])
    assert data["rawHtml"] == '{"a": 1}'
    assert data["markdown"].startswith("```json")
    assert picture(data["screenshot"])[0] == "png"
    (pdf,) = lab.run_actions(lab.site.url("/shop"), {"type": "pdf"})["pdfs"]
    body = base64.b64decode(pdf.partition(",")[2])
    for path, more in (("/paper.pdf", {}), ("/download.pdf", {"content_disposition": "attachment"})):
        paper = lab.site.page(path, body, content_type="application/pdf", **more)
        assert "Text of the shop" in lab.scrape(paper, waitFor=10)["markdown"]
    for _ in range(2):  # the second time from the cache
        data = lab.scrape(paper, formats=["markdown", "screenshot"])
        assert "Text of the shop" in data["markdown"]
        assert "`screenshot` was left out: " in data["warning"]
    data = lab.scrape(paper, actions=[{"type": "scrape"}])
    assert ("Text of the shop" in data["markdown"], "actions" in data) == (True, False)
    assert "`actions` was left out: " in data["warning"]
    for options, refused in (
        ({"formats": [], "actions": [{"type": "scrape"}]}, (400, "SCRAPE_ACTIONS_NOT_SUPPORTED")),
        ({"formats": ["screenshot"]}, (500, "SCRAPE_UNSUPPORTED_FILE_ERROR")),
    ):
        reply = lab.post(paper, **options)
        assert (reply.status_code, reply.json()["code"]) == refused


#: Scripts with which pages change the functions that a reader of the page would call.
HOSTILE = [
    "HTMLCanvasElement.prototype.getContext = () => { throw 1 }; window.OffscreenCanvas = undefined",
    "Document.prototype.createElement = document.createElement = () => { throw new Error('no') }",
    "window.getComputedStyle = () => { while (true) {} }",
    "for (const one of [Document, Element]) one.prototype.querySelectorAll = one.prototype.matches = () => { throw 1 }",
    "for (const name of Object.getOwnPropertyNames(Array.prototype)) try { Array.prototype[name] = () => { throw 1 } }"
    " catch {}",
    "window.JSON = window.Promise = window.Map = window.Object = undefined",
    "Object.prototype.toJSON = () => { throw 1 }; Object.prototype.value = 1",
    "for (const name of Object.getOwnPropertyNames(window)) try { Object.freeze(window[name].prototype) } catch {}",
    "Object.defineProperty(document, 'body', {get() { throw 1 }})",
]
#: Files that a browser shows although they are no web pages.
FILES = {
    "application/xml": b"<?xml version='1.0'?><r><a>text</a></r>",
    "application/rss+xml": b"<rss version='2.0'><channel><title>Feed</title></channel></rss>",
    "image/svg+xml": SVG,
    "text/plain": b"plain words",
}


def test_a_part_that_cannot_be_made_discards_no_page_of_a_batch(lab: BrowserLab) -> None:
    page = "<!doctype html><body style='background:#123456'><script>{}</script><main><p>Words</main>"
    hostile = [lab.site.page(f"/hostile{n}", page.format(script).encode()) for n, script in enumerate(HOSTILE)]
    files = [lab.site.page(f"/{kind}", body, content_type=kind) for kind, body in FILES.items()]
    formats = ["markdown", "rawHtml", "screenshot", "branding", "video"]
    headers = {"Authorization": "Bearer red-key"}
    body = {"urls": hostile + files, "formats": formats, "maxAge": 0}
    job = lab.http.post("/v2/batch/scrape", json=body, headers=headers).json()["id"]

    def ended() -> Any:
        status = lab.http.get(f"/v2/batch/scrape/{job}", headers=headers).json()
        return status["status"] == "completed" and status

    found = {one["metadata"]["sourceURL"]: one for one in until(ended)["data"]}
    assert found.keys() == {*hostile, *files}
    for url in hostile:
        assert (found[url]["markdown"], picture(found[url]["screenshot"])[0]) == ("Words", "png")
        assert found[url]["branding"]["colors"]["background"] == "#123456", found[url]
        assert found[url]["warning"].startswith("`video` was left out: ")
    for url in files:
        assert (found[url]["rawHtml"] != "", picture(found[url]["screenshot"])[0]) == (True, "png")
        assert found[url]["warning"].count("was left out: ") == 2
        assert "branding" not in found[url]
    actions = [{"type": "scroll", "direction": "down"}, {"type": "executeJavascript", "script": "scrollY"}]
    for url in hostile:
        assert lab.run_actions(url, *actions)["javascriptReturns"][0]["value"] == 0


@pytest.mark.parametrize("part", ["branding", "content"])
def test_only_a_browser_that_ended_is_said_to_have_ended(
    lab: BrowserLab, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from playwright.async_api import Error

    async def broken(page: object) -> Any:
        raise Error("Protocol error: no such node")

    monkeypatch.setattr(page_rendering, part, broken)
    reply = lab.post(lab.site.url("/other"), formats=["branding"], maxAge=0)
    assert (reply.status_code, reply.json()["code"]) == (500, "SCRAPE_SITE_ERROR")
    assert "could not be read in the browser (Protocol error: no such node)" in reply.json()["error"]
    data = lab.scrape(lab.site.url("/other"), formats=["markdown", "branding"], maxAge=0)
    assert "The other page" in data["markdown"]
    assert data["warning"].startswith("`branding` was left out: ")


def test_a_page_that_never_ends_in_the_browser_is_fetched_without_it(lab: BrowserLab) -> None:
    url = lab.site.page("/endless", b"<script>while (true) {}</script><main>Words</main>")
    data = lab.scrape(url, formats=["markdown", "screenshot"], timeout=1500)
    assert (data["markdown"], "screenshot" in data) == ("Words", False)
    assert "`screenshot` was left out: " in data["warning"]
    # The options `waitFor` and `actions` are about the page in the browser.
    assert lab.post(url, formats=["markdown", "screenshot"], timeout=1500, waitFor=1).status_code == 408


def test_a_404_page_is_a_document(lab: BrowserLab) -> None:
    data = lab.scrape(lab.site.url("/nowhere"), formats=["markdown", "screenshot"])
    assert (data["metadata"]["statusCode"], data["metadata"]["error"]) == (404, "Not Found")


def test_each_fragment_of_a_page_in_the_browser_is_a_page_of_its_own_in_the_cache(lab: BrowserLab) -> None:
    script = "document.querySelector('p').textContent = `The route is ${location.hash}`"
    url = lab.site.page("/routes", f"<main><h1>App</h1><p></p></main><script>{script}</script>".encode())
    for state in ("miss", "hit"):
        for route in ("#/a", "#/b"):
            page = lab.scrape(url + route, waitFor=1)
            assert f"The route is {route}" in page["markdown"]
            assert (page["metadata"]["cacheState"], page["metadata"]["url"]) == (state, url + route)
    # Over HTTP they are one page, if they do not look like the routes of an application.
    assert [lab.scrape(url + part)["metadata"]["cacheState"] for part in ("#a", "#b", "#/b")] == ["miss", "hit", "miss"]
