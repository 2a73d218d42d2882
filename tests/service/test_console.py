"""The console is read-only, requires a key, shows only the data of its team, and never executes scraped content."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import browser_lab
import httpx
import pytest
from browser_lab import BrowserLab
from headless_browser import Browser
from polling import until
from session_lab import Sessions, wire

from weblake_service.config import ServiceKey

KEYS = [ServiceKey("key-of-a", "of-a", "a"), ServiceKey("key-of-b", "of-b", "b")]
URL = "http://site.test/page"
EVIL = "<script>window.struck = 1</script><img src=x onerror='window.struck = 2'>\"'&amp;"


@pytest.fixture
def shared(make_bench: Callable[..., Any]) -> Any:
    """A service with two teams; its client has the key of the first one."""
    return make_bench(keys=KEYS)


def signed_in(bench: Any, key: str) -> httpx.Client:
    made = httpx.Client(base_url=bench.service.url, trust_env=False, verify=False, follow_redirects=True, timeout=30)
    reply = made.post("/console/sign-in", data={"key": key})
    assert reply.status_code == 200, reply.text
    return made


@pytest.fixture
def people(shared: Any) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    with closing(signed_in(shared, "key-of-a")) as a, closing(signed_in(shared, "key-of-b")) as b:
        yield a, b


def paths(job: str) -> list[str]:
    job_page = f"/console/jobs/{job}"
    return [
        "/",
        "/console/jobs",
        job_page,
        f"{job_page}/documents/0",
        "/console/usage",
        "/console/deliveries",
        "/console/browsers",
    ]


def test_the_console_requires_a_key(shared: Any) -> None:
    job = shared.batch(URL)
    shared.wait_until_ended(job)
    with httpx.Client(base_url=shared.service.url, trust_env=False, verify=False) as stranger:
        for path in paths(job):
            reply = stranger.get(path)
            assert reply.status_code == (200 if path == "/" else 401)
            assert "API key" in reply.text
            assert job[:8] not in reply.text
        for key in ("", "wrong", "key-of-a2", "\x00"):
            reply = stranger.post("/console/sign-in", data={"key": key})
            assert (reply.status_code, "does not know this key" in reply.text) == (403, True)
            assert not stranger.cookies
        assert stranger.post("/console/sign-in", content=b"x" * 20_000).status_code == 413
        stranger.cookies.set("weblake_console", "key-of-a")
        assert stranger.get("/console/jobs").status_code == 401


def test_each_team_sees_only_its_own_data(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    shared.web.bodies[URL] = "only for a"
    job = shared.batch(URL, webhook={"url": "http://hooks.test/", "events": ["completed"]})
    shared.wait_until_ended(job)
    shared.until(lambda: job[:8] in people[0].get("/console/deliveries").text)
    a, b = ([(path, reply) for path in paths(job) for reply in [one.get(path)]] for one in people)
    for path, reply in a:
        assert reply.status_code == 200, path
        assert "of-a" in reply.text
    assert "only for a" in dict(a)[f"/console/jobs/{job}/documents/0"].text
    for path, reply in b:
        assert reply.status_code == (404 if job in path else 200), path
        assert job[:8] not in reply.text
        assert "only for a" not in reply.text


def test_pages_and_cookies_do_not_contain_the_key(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    job = shared.batch(URL)
    shared.wait_until_ended(job)
    (cookie,) = people[0].cookies.jar
    assert cookie.value is not None
    assert len(cookie.value) > 30
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert str(cookie.get_nonstandard_attr("SameSite")).lower() == "strict"
    for path in paths(job):
        reply = people[0].get(path)
        assert "key-of-a" not in reply.text + str(reply.headers)
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert not re.search(r"(?:src|href|action)=.?(?:https?:)?//", reply.text.replace(f'href="{URL}', ""))
    assert "key-of-a" not in str(shared.http.get("/_weblake/requests").json())


def test_the_console_is_read_only(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    job = shared.batch(URL)
    shared.wait_until_ended(job)
    before = [shared.http.get(path).json() for path in (f"/v2/batch/scrape/{job}", "/v2/team/activity")]
    for path in paths(job):
        assert people[0].get(path).status_code == 200
        for method in ("POST", "PUT", "DELETE"):
            assert people[0].request(method, path).status_code in (404, 405)
    assert [shared.http.get(path).json() for path in (f"/v2/batch/scrape/{job}", "/v2/team/activity")] == before
    shared.service.faults({"match": {"path": ".*"}, "times": None, "effect": {"status": 500}})
    assert people[0].get("/").status_code == 200  # faults are for clients


def test_a_sign_in_expires(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    assert people[0].post("/console/sign-out").status_code == 200
    assert people[0].get("/console/jobs").status_code == 401
    shared.service.advance(13 * 3600)
    assert people[1].get("/console/jobs").status_code == 401


def test_lists_are_paginated(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    jobs = [shared.batch(f"{URL}/{number}") for number in range(60)]
    for job in jobs:
        shared.wait_until_ended(job)
    first = people[0].get("/console/jobs").text
    (older,) = re.findall(r'id="older" href="([^"]+)"', first)
    seen = re.findall(r'id="job-([^"]+)"', first + people[0].get(older).text)
    assert seen == jobs[::-1]
    large = shared.batch(*[f"{URL}/{number}" for number in range(120)])
    shared.wait_until_ended(large)
    seen = []
    address = f"/console/jobs/{large}"
    while address:
        text = people[0].get(address).text
        seen += re.findall(r'id="document-(\d+)"', text)
        further = re.findall(r'id="further" href="([^"]+)"', text)
        address = f"/console/jobs/{large}{further[0]}" if further else ""
    assert seen == [str(number) for number in range(120)]


def test_missing_pages_are_404(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    job = shared.batch(URL)
    shared.wait_until_ended(job)
    for path in ("jobs/x", "jobs/%00", f"jobs/{job}/documents/7", f"jobs/{job}/documents/x", "static/../pages.py"):
        assert people[0].get(f"/console/{path}").status_code in (400, 404), path
    for query in ("before=x", "before=-1", f"before={'9' * 99}"):
        assert people[0].get(f"/console/jobs?{query}").status_code in (200, 400), query
    assert people[0].get("/console/browsers/x").status_code == 404
    assert people[0].get("/console/nothing").status_code in (401, 404)


def test_tables_and_fields_have_names(shared: Any, people: tuple[httpx.Client, httpx.Client]) -> None:
    shared.web.bodies[URL] = "<h1>A page</h1>"
    job = shared.batch(URL, "http://nowhere.test/", webhook={"url": "http://hooks.test/", "events": ["completed"]})
    shared.wait_until_ended(job)
    pages = [people[0].get(path).text for path in paths(job)]
    for page in [*pages, httpx.post(f"{shared.service.url}/console/sign-in", data={"key": "wrong"}).text]:
        assert re.search(r'href="#main".*<main id="main" tabindex="-1"', page, re.DOTALL)
        assert '<p id="news" class="unseen" role="status">' in page
        assert all(
            rest.startswith("<caption") for rest in page.split("<table")[1:] for rest in [rest.partition(">")[2]]
        )
        assert all("scope=" in head for head in re.findall(r"<th\b[^>]*>", page))
        assert all(f'<label for="{field}"' in page for field in re.findall(r'<input id="([^"]+)"', page))
        assert all("aria-label=" in region for region in re.findall(r"<(?:nav|pre|aside|progress)\b[^>]*>", page))
        assert len(re.findall(r"<h1\b", page)) == 1
    assert sum(page.count("<table") for page in pages) >= 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_colour_of_text_has_enough_contrast(scheme: str) -> None:
    sheet = files("weblake_service.console").joinpath("static/console.css").read_text()
    values = dict(re.findall(r"--(\w+): (#\w+)", sheet.splitlines()[["light", "dark"].index(scheme)]))

    def luminance(name: str) -> float:
        digits = values[name][1:] if len(values[name]) == 7 else "".join(each * 2 for each in values[name][1:])
        parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
        red, green, blue = (one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for text in ("ink", "soft", "accent", "good", "bad", "wait"):
        for ground in ("ground", "raised"):
            darker, lighter = sorted((luminance(text), luminance(ground)))
            assert (lighter + 0.05) / (darker + 0.05) >= 4.5, (text, ground)


@pytest.mark.system
@pytest.mark.timeout(300)
def test_scraped_content_is_never_executed(shared: Any, tmp_path: Path) -> None:
    shared.web.bodies[URL] = EVIL
    job = shared.batch(URL, f"{URL}/<script>alert(1)</script>")
    shared.wait_until_ended(job)
    with Browser(tmp_path) as browser:
        browser.open(shared.service.url)
        browser.write("key", "key-of-a")
        browser.click("Sign in")
        browser.wait_for("Overview")
        for path in paths(job):
            browser.open(shared.service.url + path)
            text = browser.wait_for("Sign out")
            assert browser.run("typeof window.struck") == "undefined", path
        browser.open(f"{shared.service.url}/console/jobs/{job}/documents/0")
        text = browser.wait_for("markdown")
        assert EVIL in text


@pytest.mark.system
@pytest.mark.timeout(300)
def test_long_and_right_to_left_texts_can_be_read(shared: Any, tmp_path: Path) -> None:
    shared.web.bodies[URL] = "עמוד ראשון, שלום (1).\n" * 60
    long = f"{URL}?{'q' * 600}"
    job = shared.batch(URL, long)
    shared.wait_until_ended(job)
    with Browser(tmp_path) as browser:
        browser._page.set_viewport_size({"width": 360, "height": 800})
        browser.open(shared.service.url)
        browser.write("key", "key-of-a")
        browser.click("Sign in")
        browser.wait_for("Overview")
        for path in paths(job):
            browser.open(shared.service.url + path)
            browser.wait_for("Sign out")
            assert browser.run("document.scrollingElement.scrollWidth") <= 360, path
        browser.open(f"{shared.service.url}/console/jobs/{job}/documents/0")
        browser.wait_for("markdown")
        browser.run("document.querySelector('pre').scrollTo(0, 100)")
        browser.run("document.querySelector('main').dataset.old = true")
        browser.run("renew()")
        until(lambda: browser.run("document.querySelector('main').dataset.old") is None)
        assert browser.run("document.querySelector('pre').scrollTop") == 100
        assert browser.run("getComputedStyle(document.querySelector('pre')).unicodeBidi") == "plaintext"
        assert browser.run("document.querySelector('.skip').click(); document.activeElement.id") == "main"


@pytest.mark.system
@pytest.mark.timeout(300)
def test_a_running_crawl_can_be_watched_by_keyboard(shared: Any, tmp_path: Path) -> None:
    shared.web.held = {f"{URL}/1"}
    job = shared.batch(f"{URL}/0", f"{URL}/1", f"{URL}/2")
    shared.until(lambda: shared.status(job)["completed"] == 2)
    with Browser(tmp_path) as browser:
        browser.open(shared.service.url)
        browser.wait_for("API key")
        browser.run("document.activeElement.id === 'key' || document.getElementById('key').focus()")
        browser.type("key-of-a")
        browser.press("Enter")
        browser.wait_for("Overview", "2 of 3")
        for _ in range(20):
            browser.press("Tab")
            if browser.run("document.activeElement.id") == f"job-{job}":
                break
        assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        browser.press("Enter")
        browser.wait_for(job, "2 of 3", "scraping")
        shared.web.held = set()
        browser.wait_for("3 of 3", "completed")  # the page was not loaded again
        assert browser.run("document.querySelector('[role=status]').textContent") == "The batch scrape is completed."
        shared.service.stop()
        browser.run("renew()")
        assert "3 of 3" in browser.text()  # existing content stays when the service ends


@pytest.fixture
def lab() -> Iterator[BrowserLab]:
    yield from browser_lab.open_lab()


@pytest.mark.system
@pytest.mark.timeout(300)
def test_a_browser_session_can_be_watched(lab: BrowserLab, tmp_path: Path) -> None:
    lab.site.page("/here", b"<title>Here</title><body style='background: #f00'><h1>Here</h1></body>")
    sessions = Sessions(lab)
    made, dark = sessions.create(), sessions.create(streamWebView=False)
    people = httpx.Client(base_url=lab.service.url, trust_env=False, verify=False, follow_redirects=True)
    with people as red, Browser(tmp_path) as browser:
        assert red.post("/console/sign-in", data={"key": "red-key"}).status_code == 200
        page = f"/console/browsers/{made['id']}"
        assert made["id"][:8] in red.get("/console/browsers").text
        # A viewer has no control, and the secrets that give control are not in the page.
        text = red.get(page).text
        assert made["liveViewUrl"].partition("word=")[2] in text
        for name in ("cdpUrl", "interactiveLiveViewUrl"):
            assert made[name].partition("word=")[2] not in text
        assert "without a live view" in red.get(f"/console/browsers/{dark['id']}").text
        red.post("/console/sign-in", data={"key": "blue-key"})
        assert red.get(page).status_code == 404
        assert made["id"][:8] not in red.get("/console/browsers").text
        browser.open(lab.service.url)
        browser.write("key", "red-key")
        browser.click("Sign in")
        browser.wait_for("Sign out")
        browser.open(lab.service.url + page)
        browser.wait_for(made["id"], "The view on a page of its own")
        with wire(made["cdpUrl"]) as client:
            client.say("Page.navigate", {"url": lab.site.url("/here")}, client.page())
        view = "document.getElementById('live').contentDocument"
        pixel = f"[...({view}?.getElementById('picture')?.getContext('2d').getImageData(5, 5, 1, 1).data || [])].join()"
        until(lambda: str(browser.run(pixel)).startswith("25"))
        until(lambda: "Here" in str(browser.run(f"{view}?.body?.innerText")))
        assert browser.run(f"{view}.getElementById('controls').hidden")
        # What the script refreshes does not change the view.
        browser.run(f"{view}.body.dataset.mark = 'kept'")
        browser.run("renew()")
        assert browser.run(f"{view}.body.dataset.mark") == "kept"
        sessions.close(made)
        browser.wait_for("destroyed")
        until(lambda: "ended" in str(browser.run(f"{view}.getElementById('status').innerText")).lower())


@pytest.mark.parametrize("path", ["/console/sign-in", "/console/sign-out"])
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        *((origin, 200) for origin in (None, "http://{host}")),
        *((origin, 403) for origin in ("null", "http://{host}.evil.test", "http://{host}:1")),
        *((origin, 403) for origin in ("http://evil@{host}",)),
    ],
)
def test_forms_of_other_sites_are_refused(shared: Any, path: str, origin: str | None, status: int) -> None:
    with contextlib.closing(signed_in(shared, "key-of-a")) as client:
        headers = {} if origin is None else {"Origin": origin.format(host=client.base_url.netloc.decode())}
        assert client.post(path, data={"key": "key-of-a"}, headers=headers).status_code == status
        if status == 403:
            assert "Sign out" in client.get("/").text
