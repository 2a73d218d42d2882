"""Actions on a page of a real browser: what the page gets, and the errors of impossible actions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from browser_lab import require_chromium
from loopback_site import Site, site  # noqa: F401

from weblake_service.sessions import page_actions
from weblake_service.sessions.page_actions import PageActionError, PageActions, acting_on, refs_of

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def tab() -> Iterator[Any]:
    """Yield a function that runs work with a page of one browser."""
    from playwright.async_api import async_playwright

    require_chromium()
    loop = asyncio.new_event_loop()
    playwright = loop.run_until_complete(async_playwright().start())
    launch = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    browser = loop.run_until_complete(launch)

    async def main(work: Any) -> Any:
        page = await browser.new_page()
        try:
            async with acting_on(page) as actions:
                return await work(actions)
        finally:
            # A busy page does not close.
            await asyncio.wait([asyncio.ensure_future(page.close())], timeout=1)

    yield lambda work: loop.run_until_complete(main(work))
    loop.run_until_complete(browser.close())
    loop.run_until_complete(playwright.stop())
    loop.close()


@pytest.fixture
def page(tab: Any, site: Site) -> Any:  # noqa: F811
    """Show a page and perform actions on it."""

    def show(body: str, work: Any) -> Any:
        url = site.page("/page", f"<!doctype html><title>Page</title>{body}".encode())

        async def main(actions: PageActions) -> Any:
            await actions.goto(url)
            return await work(actions)

        return tab(main)

    return show


ALL = """<h1>Top</h1><p>Some <b>bold</b> words, <a href=/next>a link</a> and more.</p>
<form><label>Name <input id=name value=Ann></label><select aria-label=Colour><option>Red<option selected>Green</select>
<button disabled>No</button></form><ul><li>one<li>two</ul><div hidden><button>Hidden</button></div>
<iframe srcdoc="<button onclick='this.textContent = String(event.isTrusted)'>Inside</button>"></iframe>"""
INTERACTIVE = """\
- link "a link" [ref=e1] [cursor=pointer]
- textbox "Name" [ref=e2]: Ann
- combobox "Colour" [ref=e3]
- option "Red"
- option "Green" [selected]
- button "No" [disabled] [ref=e4]
- button "Inside" [ref=e5]"""


def test_a_snapshot_lists_the_elements_and_its_refs_identify_them(page: Any) -> None:
    async def look(actions: PageActions) -> list[Any]:
        shots = [
            await actions.snapshot(),
            await actions.snapshot(compact=True),
            await actions.snapshot(depth=0),
            await actions.snapshot(css="ul"),
            await actions.snapshot(interactive=True),
        ]
        await actions.on_element("@e2", "fill", "Bob")
        await actions.on_element("ref=e5", "click")
        return [*shots, await actions.on_element("#name", "input_value"), await actions.snapshot(interactive=True)]

    whole, compact, shallow, part, active, name, after = page(ALL, look)
    assert '- heading "Top" [level=1] [ref=e1]' in whole
    assert "Hidden" not in whole
    assert refs_of(whole)["e6"] == {"role": "button", "name": "Inside"}
    assert "- list:" in whole
    assert "- list:" not in compact
    assert "- listitem: one" in compact
    assert "Top" in shallow
    assert "listitem" not in shallow
    assert part == "- list:\n  - listitem: one\n  - listitem: two"
    assert active == INTERACTIVE
    assert name == "Bob"
    assert '- button "true"' in after


def test_a_snapshot_does_not_contain_a_password(page: Any) -> None:
    body = "<label>Login <input type=password value='a: b'></label><label>Name <input value='a: b'></label>"
    login, name = page(body, lambda actions: actions.snapshot(interactive=True)).splitlines()
    assert login.endswith('"Login" [ref=e1]: •••')
    assert "a: b" in name


@pytest.mark.parametrize(
    ("body", "step", "said"),
    [
        (
            "",
            "on_element('#no', 'click')",
            'Timeout 1000ms exceeded (waiting for locator("#no").first). Take a snapshot',
        ),
        ("", "on_element('##', 'click')", 'Unexpected token "#" while parsing css selector "##"'),
        (
            "",
            "on_element('@e1', 'click')",
            "@e1 is not on the page any more, or no ref of its last snapshot. Take a new snapshot.",
        ),
        ("<p>x</p>", "press('Nope')", 'Unknown key: "Nope".'),
        ("<p>x</p>", "scroll('north')", "'north' is no direction; there are up, down, left, right."),
        ("<p>x</p>", "go('forward')", "There is no page after this one."),
    ],
)
def test_impossible_actions_are_reported(
    body: str, step: str, said: str, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_actions, "_ACTION_TIMEOUT_MS", 1000.0)

    async def work(actions: PageActions) -> None:
        await eval(f"actions.{step}", {"actions": actions})

    with pytest.raises(PageActionError) as caught:
        page(body, work)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", ["removed", "left"])
def test_refs_never_resolve_to_another_element(change: str, page: Any, site: Site) -> None:  # noqa: F811
    site.page("/next", b"<title>Next</title><button>Other</button>")

    async def work(actions: PageActions) -> None:
        assert refs_of(await actions.snapshot())["e1"]["name"] == "Buy"
        if change == "removed":
            await actions.page.evaluate("document.querySelector('button').remove()")
        else:
            await actions.goto(site.url("/next"))
        await actions.on_element("@e1", "click")

    with pytest.raises(PageActionError, match=r"^@e1 is not on the page any more"):
        page("<button>Buy</button><button>Sell</button>", work)


def test_a_click_and_a_key_wait_for_the_page_that_they_open(
    page: Any,
    site: Site,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine a navigation begins later than the default of 0.1 s after its key.
    monkeypatch.setattr(page_actions, "_NAVIGATION_START_S", 5.0)

    def slow(handler: Any) -> None:
        site.stop.wait(0.2)
        handler.reply(200, b"<title>Slow</title><img src=/late>", {})

    def late(handler: Any) -> None:
        site.stop.wait(0.2)
        handler.reply(404, b"", {})

    site.pages |= {"/slow": slow, "/late": late}
    site.page("/got", b"<title>Got</title>")

    async def work(actions: PageActions) -> list[str]:
        titles = []
        for where in ("a", "button", "#js"):
            await actions.on_element(where, "click")
            titles.append(await actions.page.evaluate("document.title + ' ' + document.readyState"))
            await actions.go("back")
            titles.append(await actions.page.title())
        await actions.type("input", "x\n")
        return [*titles, actions.page.url]

    body = """<a href=/slow>On</a><form action=/got><input name=q><button>Go</button></form>
    <div id=js onclick="location = '/slow'">By script</div>"""
    *titles, url = page(body, work)
    assert titles == ["Slow complete", "Page", "Got complete", "Page", "Slow complete", "Page"]
    assert url == site.url("/got?q=x")


def test_dialogs_are_answered(page: Any) -> None:
    async def work(actions: PageActions) -> list[Any]:
        await actions.on_element("button", "click")
        return [await actions.page.evaluate("said"), actions.dialogs]

    body = """<button onclick="alert('Hey'); said = [confirm('Sure?'), prompt('Who?')]">x</button>"""
    said, dialogs = page(body, work)
    assert said == [False, None]
    assert dialogs == ["alert (accepted): Hey", "confirm (dismissed): Sure?", "prompt (dismissed): Who?"]


def test_pages_and_elements_are_scrolled(page: Any) -> None:
    async def whole(actions: PageActions) -> list[int]:
        for way, pixels in (("down", 500), ("up", 200), ("right", 40)):
            await actions.scroll(way, pixels)
        return list(await actions.page.evaluate("[scrollX, scrollY]"))

    async def box(actions: PageActions) -> list[Any]:
        await actions.on_element("#end", "scroll_into_view_if_needed")
        inside = await actions.page.evaluate("end.getBoundingClientRect().top < innerHeight")
        await actions.scroll("up", 10_000)
        await actions.scroll("down", 30, "#box")
        return [inside, await actions.page.evaluate("box.scrollTop")]

    assert page("<div style='width:3000px;height:3000px'></div>", whole) == [40, 300]
    # The page itself does not scroll, a box in its middle does.
    body = """<style>html, body { margin: 0; height: 100% } #box { height: 100%; overflow: auto }</style>
    <div id=box><div style="height:5000px"></div><p id=end>End</div>"""
    assert page(body, box) == [True, 30]


def test_a_busy_page_is_reported(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_actions, "_TOTAL_TIMEOUT_S", 3.0)

    async def work(actions: PageActions) -> None:
        await actions.page.evaluate("setTimeout(() => { while (true) {} }, 0), 1")
        await actions.page.title()

    with pytest.raises(PageActionError, match=r"^The page did not answer within 3 s: a script may keep it busy\."):
        page("", work)
