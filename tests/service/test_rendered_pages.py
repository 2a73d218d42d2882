"""Pages that scripts fill: rendered, with their links, also in crawls; with a warning if there is no browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser_lab
import pyarrow.parquet as pq
import pytest
from browser_lab import BrowserLab
from command_in_process import run_command
from polling import until

from weblake_service.config import ServiceConfig, TeamPlan

pytestmark = pytest.mark.system

APPS = Path(__file__).with_name("script_filled") / "apps"
TYPES = {".js": "text/javascript", ".html": "text/html; charset=utf-8"}
TEXT = "The keeper read the gauge twice a day, in all weathers, by hand, until it was replaced by a float. "
DATA = json.dumps({"title": "Gauges", "text": TEXT}).encode()
SHELL = "<!doctype html><title>Shell</title><div id=root></div><script>%s</script>"


def fill(html: str) -> str:
    return f"root.innerHTML = {json.dumps(html)};"


@pytest.fixture(scope="module")
def lab() -> Iterator[BrowserLab]:
    for lab in browser_lab.open_lab(config=ServiceConfig(teams={"blue": TeamPlan(concurrency=2)})):
        for path in APPS.rglob("*.*"):
            lab.site.page(f"/{path.relative_to(APPS)}", path.read_bytes(), content_type=TYPES[path.suffix])
        for number in range(30):
            lab.site.page(f"/route/{number}", (APPS / "router/index.html").read_bytes())
        lab.site.page("/data.json", DATA, content_type="application/json")
        lab.site.page("/fragment", f"<p>{TEXT}</p>".encode())
        yield lab


@pytest.mark.parametrize(
    ("path", "text"),
    {
        "/router/index.html": "Station 0 has a gauge of its own",
        "/svelte/index.html": TEXT.strip(),
        "/solid/index.html": TEXT.strip(),
        "/lit/index.html": "The tide gauge at the old pier",
        "/alpine/index.html": TEXT.strip(),
        "/htmx/index.html": TEXT.strip(),
    }.items(),
)
def test_an_application_has_its_text(lab: BrowserLab, path: str, text: str) -> None:
    found = lab.scrape(lab.site.url(path), formats=["markdown", "rawHtml", "links"])
    assert text in found["markdown"]
    assert "Loading" not in found["markdown"]
    assert "hidden by the script" not in found["markdown"]
    assert "data-weblake" not in found["rawHtml"]
    assert "warning" not in found
    metadata = found["metadata"]
    assert metadata["rendered"] is True
    assert metadata["scriptFilled"]
    assert metadata["creditsUsed"] == 1
    assert len(lab.requests_for(path)) == 1


def job(lab: BrowserLab, kind: str, key: str = "red-key", **body: Any) -> list[dict[str, Any]]:
    """Run a job to its end, and return its documents."""
    headers = {"Authorization": f"Bearer {key}"}
    started = lab.http.post(f"/v2/{kind}", json=body, headers=headers)
    assert started.status_code == 200, started.text
    path = f"/v2/{kind}/{started.json()['id']}"

    def ended() -> dict[str, Any] | None:
        found = lab.http.get(path, headers=headers).json()
        return found if found["status"] == "completed" else None

    return list(until(ended, 90)["data"])


def test_a_crawl_of_an_application_has_each_route_once(lab: BrowserLab) -> None:
    lab.site.page("/robots.txt", b"User-agent: *\nDisallow: /route/7\n", content_type="text/plain")
    lab.site.page("/route/3", f"<main><h1>Station 3</h1><p>{TEXT}</p></main>".encode())
    lab.site.requests.clear()
    found = job(lab, "crawl", url=lab.site.url("/route/0"), crawlEntireDomain=True, includePaths=["/route/[0-9]$"])
    texts = {one["metadata"]["sourceURL"]: one["markdown"] for one in found}
    assert len(found) == len(texts) == 9
    for number in set(range(10)) - {3, 7}:
        assert f"Station {number} has a gauge of its own" in texts[lab.site.url(f"/route/{number}")]
    assert [len(lab.requests_for(f"/route/{number}")) for number in range(10)] == [1] * 7 + [0, 1, 1]
    assert [one["metadata"]["url"] for one in found if "rendered" not in one["metadata"]] == [lab.site.url("/route/3")]


def test_a_crawl_and_a_map_of_routes_in_the_fragment_have_each_once(lab: BrowserLab) -> None:
    places = [lab.site.url(f"/hash#/place/{n}") for n in range(5)]
    hrefs = [*(url[-9:] for url in places), "#top", "#/", "#/place/1/", "#/place/2?id=part", "/hash/plain#/x"]
    links = " ".join(f'<a href="{href}">{href}</a>' for href in hrefs)
    show = f"(onhashchange = () => {{ root.innerHTML = '<p id=part>Route ' + location.hash + '</p>{links}' }})()"
    home = lab.site.page("/hash", (SHELL % show).encode())
    plain = lab.site.page(
        "/hash/plain", b"<p>A static page.</p><a href='#/y'>y</a><a href=/hash/plain>p</a><a href=/hash#/a>a</a>"
    )
    lab.site.requests.clear()
    found = job(lab, "crawl", url=home)
    texts = {one["metadata"]["sourceURL"]: one["markdown"] for one in found}
    assert sorted(one["metadata"]["sourceURL"] for one in found) == sorted([home, plain, *places])
    assert all(f"Route {url.removeprefix(home)}" in texts[url] for url in places)
    assert (len(lab.requests_for("/hash")), len(lab.requests_for("/hash/plain"))) == (6, 1)
    assert len(job(lab, "crawl", url=f"{plain}#/y")) == 1
    body = {"url": home, "sitemap": "skip"}
    listed = lab.http.post("/v2/map", json=body, headers={"Authorization": "Bearer red-key"}).json()["links"]
    assert sorted(one["url"] for one in listed) == sorted([home, plain, *places])


def test_a_page_that_never_becomes_quiet_ends_with_its_text(lab: BrowserLab) -> None:
    lab.site.pages["/poll"] = lambda handler: lab.site.stop.wait(30)
    busy = "fetch('/poll'); setInterval(() => fetch('/data.json'), 50); new EventSource('/poll');"
    url = lab.site.page("/busy", (SHELL % (fill(f"<p>{TEXT}</p>") + busy)).encode())
    found = lab.scrape(url, timeout=20_000)
    assert TEXT.strip() in found["markdown"]
    # What has come by a short timeout is returned as well.
    assert TEXT.strip() in lab.scrape(url, timeout=6_000, maxAge=0)["markdown"]


def test_what_comes_late_is_waited_for_and_what_is_hidden_is_left_out(lab: BrowserLab) -> None:
    late = (
        f"<p>{TEXT}</p><p style='display:none'>dropped by the script</p><div class=gone>dropped by a style "
        "<a href=/linked>x</a></div><div role=tabpanel hidden>the second tab</div><img src=/dot.png>"
    )
    html = SHELL % f"setTimeout(() => {{ {fill(late)} }}, 1500)" + "<noscript>Enable JavaScript.</noscript>"
    url = lab.site.page("/late", f"<style>.gone {{ display: none }}</style>{html}".encode())
    found = lab.scrape(url, formats=["markdown", "rawHtml"])
    assert found["markdown"].startswith(f"{TEXT.strip()}\n\nthe second tab")
    assert "dropped" not in found["markdown"]
    assert "JavaScript" not in found["markdown"]
    assert "warning" not in found
    assert "dropped by a style" in found["rawHtml"]
    assert not lab.requests_for("/dot.png")
    # With a screenshot, the pictures of the page are loaded.
    assert lab.scrape(url, formats=["screenshot"])["screenshot"]
    assert lab.requests_for("/dot.png")


def test_what_scripts_request_once_they_have_run_is_waited_for(lab: BrowserLab) -> None:
    lab.site.pages["/slow.json"] = lambda handler: lab.site.stop.wait(0.5) or handler.reply(200, DATA, {})
    late = "fetch('/slow.json').then(r => r.json()).then(d => { part.textContent = d.title })"
    busy = f"onload = () => setTimeout(() => {{ const end = Date.now() + 800; while (Date.now() < end); {late} }})"
    html = f"<p>{TEXT * 5}</p><p id=part>…</p>"
    url = lab.site.page("/runs-late", (SHELL % f"{fill(html)} {busy}").encode())
    assert lab.scrape(url)["markdown"].endswith("Gauges")


def test_thousands_of_hidden_elements_with_ids_are_read_in_linear_time(lab: BrowserLab) -> None:
    rows = f"Array.from({{ length: 20000 }}, (_, n) => `<p id=r${{n}} hidden>x</p><i>y</i>`).join('') + '<p>{TEXT}</p>'"
    url = lab.site.page("/long", (SHELL % f"root.innerHTML = {rows}").encode())
    assert "warning" not in lab.scrape(url, timeout=12_000)


def test_headers_and_cookies_hold_and_the_cache_has_the_rendered_page(lab: BrowserLab) -> None:
    script = "fetch('/echo').then(r => r.text()).then(t => { root.innerHTML = '<p>' + t + '</p>' })"
    url = lab.site.page("/asks", (SHELL % script).encode(), set_cookie="seen=yes; Path=/")
    lab.site.page("/echo", TEXT.encode())
    sent = {"headers": {"X-Own": "one"}}
    assert TEXT.strip() in lab.scrape(url, **sent)["markdown"]
    (headers,) = lab.requests_for("/echo")
    assert headers["x-own"] == "one"
    assert "seen=yes" in headers["cookie"]
    first, second = lab.scrape(url), lab.scrape(url)
    assert second["metadata"]["cacheState"] == "hit"
    assert second["markdown"] == first["markdown"]
    assert second["metadata"]["rendered"] is True
    assert len(lab.requests_for("/echo")) == 2


def test_a_page_that_cannot_be_rendered_keeps_what_came_and_says_so(lab: BrowserLab) -> None:
    url = lab.site.page("/hangs", (SHELL % "while (true) {}").encode())
    found = lab.scrape(url, timeout=3000)
    assert "seems to need JavaScript, and was not rendered" in found["warning"]
    assert "rendered" not in found["metadata"]
    assert lab.scrape(url, timeout=3000)["metadata"]["cacheState"] == "miss"
    empty = lab.scrape(lab.site.page("/stays-empty", (SHELL % "").encode()))
    assert "hardly any text even after its scripts have run" in empty["warning"]


def test_pages_without_scripts_do_not_wait_behind_those_in_the_browser(lab: BrowserLab) -> None:
    slow = [lab.site.page(f"/slow/{n}", (SHELL % "").encode()) for n in range(4)]
    fast = [lab.site.page(f"/fast/{n}", f"<p>Page {n}</p>".encode()) for n in range(6)]
    found = job(lab, "batch/scrape", "blue-key", urls=[*slow, *fast])
    order = [one["metadata"]["sourceURL"] for one in found]
    assert set(order[:6]) == set(fast)
    assert set(order[6:]) == set(slow)


@pytest.mark.parametrize("without", ["mode", "browser"])
def test_without_rendering_each_page_has_a_warning_and_the_command_line_counts_them(
    lab: BrowserLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, without: str
) -> None:
    if without == "browser":
        monkeypatch.setenv("WEBLAKE_CHROMIUM", "/nowhere/chromium")
    config = ServiceConfig(render="never" if without == "mode" else "auto")
    said = "--render" if without == "mode" else "/nowhere/chromium"
    static = lab.site.page("/text", f"<p>{TEXT}</p>".encode())
    for plain in browser_lab.open_lab(config=config):
        urls = [static, *(lab.site.url(f"/route/{n}") for n in range(10, 30))]
        service = {"WEBLAKE_BASE_URL": plain.service.url, "WEBLAKE_API_KEY": "red-key"}
        code, _, err = run_command(["batch", *urls, "--to", str(tmp_path)], service)
        assert code == 0
        assert "20 pages have landed without the text that scripts put in" in err
        assert said in err
        (file,) = tmp_path.glob("documents/*/*.parquet")
        _, _, err = run_command(["scrape", urls[-1]], service)
        assert "seems to need JavaScript" in err
        warnings = pq.read_table(file, columns=["warning"])["warning"].to_pylist()
        assert sum("seems to need JavaScript" in (one or "") and said in (one or "") for one in warnings) == 20
        plain.http.post("/console/sign-in", data={"key": "red-key"})
        job_id = pq.read_table(file, columns=["job_id"])["job_id"][0].as_py()
        assert "seems to need JavaScript" in plain.http.get(f"/console/jobs/{job_id}").text


def test_always_renders_every_page_and_a_service_that_renders_does_not_use_a_cached_shell(
    lab: BrowserLab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    static = lab.site.page("/static", f"<p>{TEXT}</p>".encode())
    shell = lab.site.page("/filled", (SHELL % fill(f"<p>{TEXT}</p>")).encode())
    for mode, rendered in {"never": (False, False), "auto": (False, True), "always": (True, True)}.items():
        monkeypatch.setenv("WEBLAKE_RENDER", mode)
        for one in browser_lab.open_lab(db=tmp_path / "service.db"):
            pages = [one.scrape(static)["metadata"], one.scrape(shell)["metadata"]]
            assert tuple("rendered" in page for page in pages) == rendered
