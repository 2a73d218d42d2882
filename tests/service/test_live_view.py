"""The live view of a session's browser: what a viewer sees and may do, with a real Chromium; and limits without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import time

import pytest
from cdp_lab import CdpClient, Page, Viewer, connected
from chromium_lab import chromium

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake_service.sessions import live_page, live_view
from weblake_service.sessions import viewer_messages as said
from weblake_service.sessions.live_frames import Frame, FrameQueue, jpeg_size
from weblake_service.sessions.live_tabs import LiveTabs
from weblake_service.sessions.live_view import LiveView

START = """<!doctype html><title>Start</title><style>body{margin:0;font:20px sans-serif;height:4000px}
button,input{display:block;margin:20px;height:50px;width:300px}</style>
<button id=count onclick="this.textContent = ++n + ' clicks'">no clicks</button>
<button id=open onclick="window.open('/other')">open</button>
<button id=ask onclick="answer = prompt('Your <b>name</b>?', 'nobody')">ask</button>
<input id=field><script>let n = 0, answer = 'not asked', keys = [];
addEventListener('keydown', e => keys.push(e.key + e.code + e.keyCode + e.ctrlKey))</script>"""
PAGES = {
    "/": START,
    "/other": "<!doctype html><title>Other</title><body style='background:#063'><h1>Other</h1>",
    "/busy": "<!doctype html><title>Busy</title><body><script>setInterval(() => document.body.style.background = "
    "'#' + Math.floor(Math.random() * 0xffffff).toString(16).padStart(6, '0'), 10)</script>",
}

# Without a browser


@pytest.mark.parametrize(
    "raw",
    [
        "",
        b"\xff\xfe",
        "[]",
        '{"type":"mouse"}',
        '{"type":"unknown","x":1}',
        '{"type":"mouse","what":"down","x":NaN,"y":1}',
        '{"type":"mouse","what":"down","x":-1,"y":1}',
        '{"type":"mouse","what":"drag","x":1,"y":1}',
        '{"type":"mouse","what":"down","x":1,"y":1,"button":"sixth"}',
        '{"type":"key","what":"down","key":"' + "x" * 33 + '"}',
        '{"type":"text","text":"' + "x" * 16_001 + '"}',
        '{"type":"navigate","url":"https://e.org/' + "x" * 2048 + '"}',
        "[" * 50_000,
        " " * 64_001,
    ],
)
def test_a_malformed_message_is_ignored(raw: str | bytes) -> None:
    assert said.read(raw) is None


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("http://example.org/", True),
        ("https://example.org:8443/a?b=c#d", True),
        ("HTTPS://EXAMPLE.ORG", True),
        ("file:///etc/passwd", False),
        ("javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("http://exa\nmple.org", False),
        ("chrome://settings", False),
        ("data:text/html,x", False),
        ("view-source:http://example.org", False),
        ("//example.org", False),
        ("http://", False),
        ("http://[::1", False),
    ],
)
def test_only_web_addresses_are_navigated_to(url: str, goes: bool) -> None:
    assert said.Navigate(url).is_web() is goes


def test_coordinates_are_pixels_of_the_frame() -> None:
    message = said.read('{"type":"mouse","what":"down","x":640,"y":400,"button":"left","clickCount":1}')
    assert message is not None
    method, params = said.command(message, 0.5) or ("", {})
    assert (method, params["x"], params["y"]) == ("Input.dispatchMouseEvent", 1280, 800)
    wheel = said.read('{"type":"wheel","x":0,"y":0,"dy":50}')
    assert wheel is not None
    assert (said.command(wheel, 0.5) or ("", {}))[1]["deltaY"] == 100
    assert said.command(said.Ping(), 1) is None


def test_the_page_opened_or_navigated_last_is_shown() -> None:
    def info(target: str, url: str, kind: str = "page") -> dict[str, object]:
        return {"targetId": target, "type": kind, "url": url, "title": f"at {url}"}

    tabs = LiveTabs()
    tabs.add_existing([info("blank", "about:blank"), info("a", "http://a/")])
    assert (tabs.followed, tabs.number) == ("a", 2), "a page with content is the better guess"
    assert tabs.on_target_info(info("b", "http://b/"))
    assert tabs.followed == "b"
    for unseen in (info("w", "http://w/", "worker"), info("d", "devtools://x")):
        assert not tabs.on_target_info(unseen)
    assert tabs.on_target_info(info("a", "http://a/2"))
    assert tabs.followed == "a"
    assert tabs.on_target_info(info("a", "chrome://history/"))
    assert tabs.followed == "b", "a shortcut has turned the page into one of the browser itself"
    assert tabs.on_target_info(info("a", "http://a/2"))
    assert tabs.followed == "a"
    assert tabs.on_target_info({**info("b", "http://b/"), "title": "another"})
    assert tabs.followed == "a", "a change of the title is no navigation"
    assert not tabs.on_target_destroyed("w")
    for target, then in (("a", "b"), ("b", "blank"), ("blank", None)):
        assert tabs.on_target_destroyed(target)
        assert tabs.followed == then
    assert tabs.number == 0


def test_a_newer_frame_replaces_a_waiting_one() -> None:
    acknowledged: list[int] = []
    pictures = FrameQueue(acknowledged.append)

    def film(number: int, at: float = 0.0) -> None:
        size = {"deviceWidth": 800, "deviceHeight": 600, "timestamp": at or time() + 1}
        pictures.on_screencast_frame({"data": f"AAA{number}", "metadata": size, "sessionId": number})

    film(1)
    first = pictures.next()
    assert first is not None
    film(2)
    film(3)
    assert pictures.next() is None
    assert acknowledged == []
    assert pictures.behind, "the browser may have dropped the ones after them"
    pictures.on_drawn()
    assert acknowledged == [1, 2, 3]
    third = pictures.next()
    assert third is not None
    assert third.data != first.data
    assert pictures.newest is None
    film(4)
    assert pictures.behind, "the browser may not have processed the acknowledgement when it captured the frame"
    pictures.on_acknowledged()
    film(5, at=time() - 1)
    assert pictures.behind, "captured before the acknowledgement, received after it"
    pictures.on_drawn()
    pictures.on_acknowledged()
    film(6)
    assert not pictures.behind


def test_the_size_of_an_image_that_is_not_jpeg_is_zero() -> None:
    for data in (b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00\x10" + b"x" * 20, b"\xff\xd8\xff\xc0", b"GIF89a" + b"x" * 20):
        assert jpeg_size(data) == (0, 0)
        assert Frame(data, 800, 600).scale == 1


def test_the_html_has_its_urls_and_no_inline_script() -> None:
    html = live_page.page('/live/"><script>', "/static")
    assert "<script>" not in html.replace('<script defer src="/static/live.js"></script>', "")
    assert 'href="/static/live.css"' in html
    assert "style=" not in html
    assert "onclick" not in html
    for name in live_page.STATIC:
        assert live_page.static(name)
    with pytest.raises(KeyError):
        live_page.static("live.html")
    script = live_page.static("live.js").decode()
    assert "innerHTML" not in script
    assert "http://" not in script


# With a browser


@dataclass
class Lab:
    """A browser with one page, a live view of it, and direct access to the same page."""

    url: str
    cdp: CdpClient
    page: Page
    viewer: Viewer
    view: asyncio.Task[None]
    inputs: list[int]
    live: LiveView

    def view_session(self) -> str:
        """Return the session that the view has attached to the page; empty if there is none."""
        return self.live._session or ""

    async def click(self, selector: str) -> None:
        x, y = await self.page.middle(selector)
        scale = self.viewer.last("page")["scale"]
        for what in ("down", "up"):
            at = {"x": x * scale, "y": y * scale}
            self.viewer.say(type="mouse", what=what, button="left", clickCount=1, **at)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    def answer(asked: LoopbackRequest) -> LoopbackResponse:
        html = PAGES.get(asked.target, "<title>Nothing</title>")
        return LoopbackResponse(200, html.encode(), {"Content-Type": "text/html; charset=utf-8"})

    server = LoopbackServer(answer, "live-view-site").start()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium() as address:
        yield address


@asynccontextmanager
async def opened(
    address: str, site: str, path: str, *, interactive: bool = True, quick: bool = True
) -> AsyncIterator[Lab]:
    async with connected(address) as cdp, connected(address) as beside:
        page = await Page.only(beside, f"{site}{path}")
        viewer, inputs = Viewer(quick=quick), list[int]()
        view = LiveView(cdp, interactive=interactive, on_input=lambda: inputs.append(1))
        running = asyncio.create_task(view.run(viewer.receive, viewer.send_bytes, viewer.send_text))
        try:
            await viewer.until(lambda: viewer.pictures and viewer.last("page"))
            yield Lab(site, cdp, page, viewer, running, inputs, view)
        finally:
            viewer.leave()
            async with asyncio.timeout(90):
                await running


def live(browser: str, site: str, work: Callable[[Lab], Awaitable[None]], path: str = "/", **how: bool) -> None:
    async def run() -> None:
        async with asyncio.timeout(280), opened(browser, site, path, **how) as lab:
            await work(lab)

    asyncio.run(run())


@pytest.mark.system
def test_a_static_page_is_shown_at_once_and_a_change_is_sent(browser: str, site: str) -> None:
    async def work(lab: Lab) -> None:
        await lab.viewer.until(lambda: lab.viewer.last("page")["title"] == "Start")
        told = lab.viewer.last("page")
        assert (told["url"], told["tab"], told["tabs"]) == (f"{site}/", 1, 1)
        assert lab.viewer.texts[0] == {"type": "hello", "interactive": False}

        def fits() -> bool:
            """The last frame has the announced size; the frame before the announcement may be older."""
            told, (width, height) = lab.viewer.last("page"), jpeg_size(lab.viewer.pictures[-1])
            size = width / told["scale"], height / told["scale"]
            return size == pytest.approx((told["width"], told["height"]), abs=2)

        await lab.viewer.until(fits)
        before = len(lab.viewer.pictures)
        await lab.page.run("document.body.style.background = 'red'; document.title = 'Red'")
        await lab.viewer.until(lambda: len(lab.viewer.pictures) > before)
        await lab.viewer.until(lambda: lab.viewer.last("page")["title"] == "Red")
        assert lab.inputs == []

    live(browser, site, work, interactive=False)


@pytest.mark.system
def test_pages_are_opened_followed_closed_and_selected(
    browser: str, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A page that is being reloaded gives no screenshot.
    monkeypatch.setattr(live_view, "_SCREENSHOT_TIMEOUT_S", 1.0)

    async def work(lab: Lab) -> None:
        def shown() -> tuple[str, int, int]:
            told = lab.viewer.last("page")
            return told["title"], told["tab"], told["tabs"]

        count = len(lab.viewer.pictures)
        await lab.click("#open")
        await lab.viewer.until(lambda: shown() == ("Other", 2, 2))
        await lab.viewer.until(lambda: len(lab.viewer.pictures) > count)
        lab.viewer.say(type="tab", number=1)
        await lab.viewer.until(lambda: shown() == ("Start", 1, 2))
        await lab.viewer.until(lambda: lab.viewer.last("page")["width"] > 0)
        lab.viewer.say(type="tab", number=9)
        await lab.page.until("document.visibilityState", "visible")
        targets = (await lab.cdp.send("Target.getTargets"))["targetInfos"]
        (popup,) = [each["targetId"] for each in targets if each["url"] == f"{site}/other"]
        lab.viewer.say(type="tab", number=2)
        await lab.viewer.until(lambda: shown() == ("Other", 2, 2))
        await lab.cdp.send("Target.closeTarget", {"targetId": popup})
        await lab.viewer.until(lambda: shown() == ("Start", 1, 1))

        lab.viewer.say(type="navigate", url=f"{site}/other")
        await lab.viewer.until(lambda: shown() == ("Other", 1, 1))
        lab.viewer.say(type="navigate", url="file:///etc/passwd")
        lab.viewer.say(type="go", where="back")
        await lab.viewer.until(lambda: shown() == ("Start", 1, 1))
        lab.viewer.say(type="go", where="forward")
        await lab.viewer.until(lambda: shown() == ("Other", 1, 1))
        await lab.page.run("document.title = 'changed'")
        await lab.viewer.until(lambda: shown()[0] == "changed")
        lab.viewer.say(type="go", where="reload")
        await lab.viewer.until(lambda: shown()[0] == "Other")

    live(browser, site, work)


@pytest.mark.system
def test_a_read_only_viewer_cannot_send_input(browser: str, site: str) -> None:
    async def work(lab: Lab) -> None:
        await lab.click("#count")
        lab.viewer.say(type="text", text="x")
        lab.viewer.say(type="navigate", url=f"{site}/other")
        lab.viewer.say(type="go", where="reload")
        lab.viewer.say(type="tab", number=1)
        lab.viewer.say(type="ping")
        await lab.viewer.until(lambda: lab.viewer.last("pong"))
        assert await lab.page.run("count.textContent") == "no clicks"
        assert not [name for name in lab.cdp.sent if name.startswith(("Input.", "Page.navigate", "Page.reload"))]
        assert "Target.activateTarget" not in lab.cdp.sent
        assert lab.inputs == []

    live(browser, site, work, interactive=False)


@pytest.mark.system
def test_a_slow_viewer_gets_one_frame_at_a_time_and_the_last_one(
    browser: str, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "_DRAW_TIMEOUT_S", 1000.0)
    monkeypatch.setattr(live_view, "_POLL_S", 0.1)

    async def work(lab: Lab) -> None:
        for count in range(1, 5):
            # The browser has sent another frame, or as many as it sends before the viewer has drawn one.
            await lab.viewer.until(lambda: lab.live._frames.newest or lab.live._frames.behind)
            assert len(lab.viewer.pictures) == count, "no other frame before this one is drawn"
            lab.viewer.say(type="taken")
            await lab.viewer.until(lambda count=count: len(lab.viewer.pictures) == count + 1)  # type: ignore[misc]
        # A change while no frame was drawn is visible as well.
        await lab.page.run("clearTimeout(1); for (let i = 0; i < 999; i++) clearInterval(i);")
        await lab.page.run("document.body.style.background = '#00ff00'")
        lab.viewer.quick = True
        lab.viewer.say(type="taken")
        while await colour(lab, lab.viewer.pictures[-1]) != pytest.approx([0, 255, 0], abs=8):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        count = -1
        while len(lab.viewer.pictures) != count:  # an unchanged page is not sent repeatedly
            count, polls = len(lab.viewer.pictures), lab.cdp.sent.count("Target.getTargets")
            await lab.viewer.until(lambda: lab.cdp.sent.count("Target.getTargets") > polls + 5)  # noqa: B023

    live(browser, site, work, "/busy", quick=False)


async def colour(lab: Lab, picture: bytes) -> list[int]:
    """Return the colour in the middle of a frame, as the browser decodes it."""
    import base64

    await lab.page.run(
        "found = null; image = new Image(); image.onload = () => { const c = document.createElement('canvas');"
        "c.width = image.width; c.height = image.height; const d = c.getContext('2d'); d.drawImage(image, 0, 0);"
        "found = [...d.getImageData(c.width / 2, c.height / 2, 1, 1).data].slice(0, 3) };"
        f"image.src = 'data:image/jpeg;base64,{base64.b64encode(picture).decode()}'"
    )
    await lab.page.until("found !== null")
    return list(await lab.page.run("found"))


@pytest.mark.system
def test_a_viewer_that_never_acknowledges_gets_occasional_frames(
    browser: str, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "_DRAW_TIMEOUT_S", 0.5)

    async def work(lab: Lab) -> None:
        await lab.viewer.until(lambda: len(lab.viewer.pictures) >= 3)

    live(browser, site, work, "/busy", quick=False)


@pytest.mark.system
def test_an_unanswered_dialog_is_dismissed_after_a_timeout(
    browser: str, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_view, "DIALOG_TIMEOUT_S", 2.0)

    async def work(lab: Lab) -> None:
        await lab.page.run("setTimeout(() => { alert('stop'); count.textContent = 'went on' }, 10)")
        await lab.viewer.until(lambda: lab.viewer.last("dialog").get("open"))
        lab.viewer.say(type="answer", accept=True)
        lab.viewer.say(type="ping")
        await lab.viewer.until(lambda: lab.viewer.last("pong"))
        assert lab.viewer.last("dialog")["open"], "a read-only viewer may not send input"
        await lab.viewer.until(lambda: not lab.viewer.last("dialog")["open"])
        await lab.page.until("count.textContent", "went on")

    live(browser, site, work, interactive=False)


@pytest.mark.system
def test_a_dialog_is_dismissed_when_its_view_ends(browser: str, site: str) -> None:
    async def work(lab: Lab) -> None:
        await lab.page.run("setTimeout(() => { alert('stop'); count.textContent = 'went on' }, 10)")
        await lab.viewer.until(lambda: lab.viewer.last("dialog").get("open"))
        lab.viewer.leave()
        await lab.viewer.until(lambda: lab.view.done())
        await lab.page.until("count.textContent", "went on")

    live(browser, site, work)


@pytest.mark.system
def test_a_page_detached_by_another_client_is_reattached(browser: str, site: str) -> None:
    async def work(lab: Lab) -> None:
        session = lab.view_session()
        await lab.cdp.send("Target.detachFromTarget", {"sessionId": session})
        await lab.viewer.until(lambda: lab.view_session() not in ("", session))
        count = len(lab.viewer.pictures)
        await lab.page.run("document.body.style.background = 'red'")
        await lab.viewer.until(lambda: len(lab.viewer.pictures) > count)

    live(browser, site, work)


@pytest.mark.system
def test_a_view_stops_its_tasks_and_restores_the_page(browser: str, site: str) -> None:
    async def work(lab: Lab) -> None:
        before = len(asyncio.all_tasks())
        lab.viewer.leave()
        await lab.viewer.until(lambda: lab.view.done())
        await lab.viewer.until(lambda: len(asyncio.all_tasks()) < before)
        assert lab.cdp.sent[-1] == "Target.detachFromTarget"
        assert json.loads(json.dumps(await lab.page.run("document.title"))) == "Start"

    live(browser, site, work)
