"""Actions on a page of a real browser: the events that the page gets, and the errors of impossible actions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import chromium_lab
import pytest
from chromium_lab import on_browser, on_page
from loopback_site import Site, site  # noqa: F401

from weblake_service.sessions.attached_page import PageActionError
from weblake_service.sessions.cdp import CdpError
from weblake_service.sessions.code.connection import WebSocketCdp, open_connection
from weblake_service.sessions.keyboard import parse_chord
from weblake_service.sessions.open_pages import bring_to_front, close_page, front_page, new_page, open_pages
from weblake_service.sessions.page_actions import PageActions

system = pytest.mark.system


@pytest.mark.parametrize(
    ("names", "held", "key"),
    [
        ("Enter", [], "Enter"),
        ("enter", [], "Enter"),
        ("Control+a", ["Control"], "a"),
        ("ctrl+Shift+Tab", ["Control", "Shift"], "Tab"),
        ("+", [], "+"),
        ("Control++", ["Control"], "+"),
        ("space", [], " "),
        ("Esc", [], "Escape"),
        ("F12", [], "F12"),
        ("é", None, "There is no key 'é'"),
        ("Hyper+a", None, "'Hyper' of 'Hyper.a' is no modifier"),
        ("", None, "There is no key ''"),
    ],
)
def test_keys_are_pressed_by_name(names: str, held: list[str] | None, key: str) -> None:
    if held is None:
        with pytest.raises(PageActionError, match=f"^{key}"):
            parse_chord(names)
    else:
        modifiers, main = parse_chord(names)
        assert ([one.key for one in modifiers], main.key) == (held, key)


def test_an_unresponsive_page_times_out() -> None:
    with pytest.raises(CdpError, match=r"^There is no browser at CDP_URL: "):
        on_browser(chromium_lab.NOWHERE, open_pages)


@pytest.fixture(scope="module")
def browser() -> Iterator[str]:
    with chromium_lab.chromium() as url:
        yield url


@pytest.fixture
def page(browser: str, site: Site) -> Any:  # noqa: F811
    """Show a page and perform actions on it."""
    chromium_lab.keep_one_page(browser)

    def show(body: str, work: Any) -> Any:
        url = site.page("/page", f"<!doctype html><title>Page</title>{body}".encode())

        async def main(actions: PageActions) -> Any:
            await actions.goto(url)
            return await work(actions)

        return on_page(browser, main)

    return show


def refused(work: Any) -> str:
    with pytest.raises(PageActionError) as caught:
        work()
    return str(caught.value)


ALL = """<h1>Top</h1><p>Some <b>bold</b> words, <a href=/next>a link</a> and more.</p><p>Plain</p>
<form><label>Name <input id=name value=Ann required></label><input type=checkbox aria-label=Agree checked>
<input type=radio aria-label=One><select aria-label=Colour><option>Red<option selected>Green</select>
<textarea aria-label=Note>two
lines</textarea><button disabled>No</button><button type=button aria-expanded=false>Yes</button>
<input type=date aria-label=Day value=2024-01-02><input type=password aria-label=Secret value=x></form>
<div role=button tabindex=0>Made up</div><div hidden><button>Hidden</button></div>
<ul><li>one<li>two</ul><table><tr><th>A<td>1</table><img alt="A cat" src=x>
<iframe srcdoc="<button>Inside</button>"></iframe>"""
WHOLE = """\
- heading "Top" [level=1] [ref=e1]
- paragraph
  - text: Some bold words,
  - link "a link" [ref=e2]
  - text: and more.
- paragraph: Plain
- form
  - label
    - text: Name
    - textbox "Name" [required] [ref=e3]: Ann
  - checkbox "Agree" [checked] [ref=e4]
  - radio "One" [ref=e5]
  - combobox "Colour" [collapsed] [ref=e6]: Green
    - option "Red"
    - option "Green" [selected]
  - textbox "Note" [ref=e7]: two lines
  - button "No" [disabled] [ref=e8]
  - button "Yes" [collapsed] [ref=e9]
  - textbox "Day" [ref=e10]: 2024-01-02
  - textbox "Secret" [ref=e11]: •
- button "Made up" [ref=e12]
- list
  - listitem [level=1]: one
  - listitem [level=1]: two
- table
  - row
    - rowheader "A" [ref=e13]
    - cell "1" [ref=e14]
- img "A cat" [ref=e15]
- iframe
  - button "Inside" [ref=e16]"""


@system
def test_a_snapshot_lists_the_accessible_elements(page: Any) -> None:
    async def look(actions: PageActions) -> list[str]:
        whole = await actions.snapshot()
        assert whole.refs["e2"].name == "a link"
        active = await actions.snapshot(interactive=True)
        compact = await actions.snapshot(compact=True)
        shallow = await actions.snapshot(depth=0)
        part = await actions.snapshot(css="ul")
        return [shot.text for shot in (whole, active, compact, shallow, part)]

    whole, active, compact, shallow, part = page(ALL, look)
    assert whole == WHOLE
    assert active.splitlines()[:3] == [
        '- link "a link" [ref=e1]',
        '- textbox "Name" [required] [ref=e2]: Ann',
        '- checkbox "Agree" [checked] [ref=e3]',
    ]
    assert "heading" not in active
    assert "form" not in compact
    assert '- cell "1"' in compact
    assert shallow.splitlines()[:4] == [
        '- heading "Top" [level=1] [ref=e1]',
        "- paragraph",
        "- paragraph: Plain",
        "- form",
    ]
    assert part == "- list\n  - listitem [level=1]: one\n  - listitem [level=1]: two"


@system
def test_refs_in_a_frame_are_clicked(page: Any) -> None:
    async def work(actions: PageActions) -> str:
        shot = await actions.snapshot(interactive=True)
        assert shot.text == '- button "In" [ref=e1]'
        await actions.click("@e1")
        return (await actions.snapshot(interactive=True)).text

    inner = "<body style='margin:60px'><button onclick='this.textContent=String(event.isTrusted)'>In</button>"
    assert (
        page(f'<div style="height:900px"></div><iframe srcdoc="{inner}"></iframe>', work) == '- button "true" [ref=e1]'
    )


@system
def test_a_cross_origin_frame_is_named(page: Any, site: Site) -> None:  # noqa: F811
    other = site.page("/other", b"<button>There</button>").replace("127.0.0.1", "localhost")

    async def work(actions: PageActions) -> str:
        return (await actions.snapshot()).text

    text = page(f'<iframe src="{other}"></iframe><button>Here</button>', work)
    assert "(a frame of another site" in text or "There" in text
    assert '- button "Here"' in text


@system
def test_fields_are_filled_and_typed_into(page: Any) -> None:
    async def work(actions: PageActions) -> list[Any]:
        await actions.fill("#a", "Ünï €")
        await actions.type("+x", "#a")
        await actions.fill("#b", "")
        await actions.fill("#c", "2024-02-29")
        await actions.fill("#d", "bold")
        await actions.press("Shift+Tab", "#b")
        await actions.press("Control+a")
        await actions.press("x")
        await actions.fill("label", "by its label")
        return [await actions.value(f"#{name}") for name in "abc"] + [
            await actions.text("#d"),
            await actions.value("#e"),
            await actions.evaluate("heard"),
        ]

    body = """<input id=a value=before><input id=b value=before><input id=c type=date><div id=d contenteditable>x</div>
    <label for=e>Label</label><input id=e><script>heard = ''; a.onkeydown = (e) => heard += e.key;
    c.onchange = () => heard += '!';</script>"""
    a, b, c, d, e, heard = page(body, work)
    assert (a, b, c, d, e) == ("x", "", "2024-02-29", "bold", "by its label")
    # Filling a field presses no key; typing does, and so does pressing a key with the focus back in the first field.
    assert heard == "+x!Controlax"


@system
def test_checkboxes_and_selects_are_set(page: Any) -> None:
    async def work(actions: PageActions) -> list[Any]:
        await actions.check("#a")
        await actions.check("#a")
        await actions.check("#b", on=False)
        await actions.check("[role=switch]")
        chosen = await actions.select("select", "g", "Blue")
        checks = [await actions.is_checked(where) for where in ("#a", "#b", "[role=switch]")]
        return [*checks, chosen, await actions.evaluate("heard"), await actions.is_enabled("#b")]

    body = """<label><input id=a type=checkbox>A</label><input id=b type=checkbox checked>
    <div role=switch aria-checked=false onclick="this.setAttribute('aria-checked', 'true')">S</div>
    <select multiple onchange="heard = [...this.selectedOptions].map(o => o.value).join()">
    <option value=r selected>Red<option value=g>Green<option>Blue</select>"""
    assert page(body, work) == [True, False, True, ["Green", "Blue"], "g,Blue", True]


@system
@pytest.mark.parametrize(
    ("body", "step", "said"),
    [
        ("", "click('#no')", "There is no element #no on the page. Take a snapshot to see what is."),
        ("", "click('##')", "not a valid selector"),
        ("", "click('@e1')", "@e1 is not known: no snapshot of this page was taken. Take one first."),
        ("<button disabled>x</button>", "click('button')", "button is disabled."),
        ("<button style='display:none'>x</button>", "click('button')", "button is not visible"),
        ("<button>x</button><div id=over style='position:fixed;inset:0'>Buy</div>", "click('button')",
         'button is covered by <div#over> "Buy". Close that first, or scroll.'),
        ("<p>x</p>", "fill('p', 'x')", "p takes no text: it is no input, textarea or editable element."),
        ("<input readonly>", "fill('input', 'x')", "input can only be read."),
        ("<input type=checkbox>", "fill('input', 'x')", "input is an input of type checkbox, which takes no text."),
        ("<input type=date>", "fill('input', '1.2.3')", "input is an input of type date and does not take 1.2.3."),
        ("<select><option>a<option>b</select>", "select('select', 'c')", "select has no option c; it has: a, b."),
        ("<p>x</p>", "select('p', 'c')", "p is no <select>"),
        ("<p>x</p>", "check('p')", "p is no checkbox, radio button or switch."),
        ("<p>x</p>", "value('p')", "p holds no value; read its text."),
        ("<p>x</p>", "press('Nope')", "There is no key 'Nope'"),
        ("<p>x</p>", "scroll('north')", "'north' is no direction; there are up, down, left, right."),
        ("<p>x</p>", "evaluate('nope.x')", "ReferenceError: nope is not defined"),
        ("<p>x</p>", "evaluate('throw 5')", "5"),
        ("<p>x</p>", "wait_for('#no', 0.2)", "#no did not become visible within 0.2 s."),
        ("<p>x</p>", "back()", "There is no page before"),
        ("<p>x</p>", "forward()", "There is no page after this one."),
        ("<p>x</p>", "goto('http://127.0.0.1:9/')", "http://127.0.0.1:9/ could not be opened: net::ERR_"),
        ("<p>x</p>", "goto('nowhere.invalid')", "https://nowhere.invalid could not be opened: net::ERR_"),
    ],
)  # fmt: skip
def test_impossible_actions_are_reported(body: str, step: str, said: str, page: Any) -> None:
    async def work(actions: PageActions) -> None:
        if step == "back()":
            # Back before the first page of the tab.
            await actions.back()
        await eval(f"hands.{step}", {"hands": actions})

    assert said in refused(lambda: page(body, work))


@system
def test_stale_refs_are_reported(page: Any, site: Site) -> None:  # noqa: F811
    site.page("/next", b"<title>Next</title><button>Other</button>")

    async def removed(actions: PageActions) -> None:
        await actions.snapshot()
        await actions.evaluate("document.querySelector('button').remove()")
        await actions.click("@e1")

    async def left(actions: PageActions) -> None:
        await actions.snapshot()
        await actions.goto(site.url("/next"))
        await actions.click("@e1")

    async def none(actions: PageActions) -> None:
        await actions.snapshot()
        await actions.click("@e2")

    body = "<button>Buy</button>"
    gone = '@e1 (button "Buy") is '
    assert refused(lambda: page(body, removed)) == gone + "not on the page any more. Take a new snapshot."
    said = gone + "of a page that is gone: another was loaded since. Take a new snapshot."
    assert refused(lambda: page(body, left)) == said
    said = "@e2 is none of the last snapshot's refs (they go to @e1). Take a new snapshot."
    assert refused(lambda: page(body, none)) == said


@system
def test_a_click_waits_for_navigation(page: Any, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    # On a busy machine a navigation begins later than the default of 0.1 s after its click.
    monkeypatch.setattr("weblake_service.sessions.page_actions._NAVIGATION_START_S", 5.0)

    def slow(handler: Any) -> None:
        site.stop.wait(0.4)
        handler.reply(200, b"<title>Slow</title><img src=/late>", {})

    def late(handler: Any) -> None:
        site.stop.wait(0.3)
        handler.reply(404, b"", {})

    site.pages |= {"/slow": slow, "/late": late}
    site.page("/got", b"<title>Got</title>")

    async def work(actions: PageActions) -> list[str]:
        titles = []
        for where in ("a", "button", "#js"):
            await actions.click(where)
            titles.append(await actions.evaluate("document.title + ' ' + document.readyState"))
            await actions.back()
            titles.append(await actions.title())
        await actions.type("x\n", "input")
        return [*titles, await actions.url()]

    body = """<a href=/slow>On</a><form action=/got><input name=q><button>Go</button></form>
    <div id=js onclick="location = '/slow'">By script</div>"""
    *titles, url = page(body, work)
    assert titles == ["Slow complete", "Page", "Got complete", "Page", "Slow complete", "Page"]
    assert url == site.url("/got?q=x")


@system
def test_a_click_without_navigation_does_not_wait(page: Any) -> None:
    async def work(actions: PageActions) -> float:
        began = time.monotonic()
        await actions.click("button")
        assert await actions.text("p") == "clicked 1 true"
        took = time.monotonic() - began
        await actions.click("button", count=2)
        assert await actions.text("p") == "twice"
        return took

    body = """<div style="height:3000px"></div><button
    onclick="p.textContent = `clicked ${event.detail} ${event.isTrusted}`"
    ondblclick="p.textContent = 'twice'">x</button><p id=p>"""
    assert page(body, work) < 8


@system
def test_dialogs_are_answered(page: Any) -> None:
    async def work(actions: PageActions) -> list[Any]:
        await actions.click("button")
        return [await actions.evaluate("said"), actions.page.dialogs]

    body = """<button onclick="alert('Hey'); said = [confirm('Sure?'), prompt('Who?')]">x</button>"""
    said, dialogs = page(body, work)
    assert said == [False, None]
    assert dialogs == ["alert (accepted): Hey", "confirm (dismissed): Sure?", "prompt (dismissed): Who?"]


@system
def test_text_and_attributes_are_read(page: Any) -> None:
    async def work(actions: PageActions) -> list[Any]:
        return [
            await actions.text(),
            await actions.html("b"),
            (await actions.html())[:6],
            await actions.attribute("a", "href"),
            await actions.attribute("a", "no"),
            await actions.count("b"),
            await actions.evaluate("const x = await Promise.resolve([1, {a: null}]); x"),
            await actions.evaluate("undefined"),
            await actions.is_visible("b"),
            await actions.is_visible("i"),
            await actions.is_visible("#none"),
            (await actions.screenshot())[:4],
            (await actions.screenshot(full_page=True))[:4],
        ]

    assert page("<b>one</b><b>two</b><a href=/x></a><i hidden>x</i>", work) == [
        "onetwo", "<b>one</b>", "<html>", "/x", None, 2, [1, {"a": None}], None, True, False, False,
        b"\x89PNG", b"\x89PNG",
    ]  # fmt: skip


@system
def test_pages_and_elements_are_scrolled(page: Any) -> None:
    async def whole(actions: PageActions) -> list[Any]:
        return [await actions.scroll("down", 500), await actions.scroll("up", 200), await actions.scroll("right", 40)]

    async def box(actions: PageActions) -> list[Any]:
        await actions.scroll_into_view("#end")
        inside = await actions.evaluate("end.getBoundingClientRect().top < innerHeight")
        return [inside, await actions.scroll("up", 10_000), await actions.scroll("down", 30, "#box")]

    assert page("<div style='width:3000px;height:3000px'></div>", whole) == [(0, 500), (0, 300), (40, 300)]
    # The page itself does not scroll, a box in its middle does.
    body = """<style>html, body { margin: 0; height: 100% } #box { height: 100%; overflow: auto }</style>
    <div id=box><div style="height:5000px"></div><p id=end>End</div>"""
    assert page(body, box) == [True, (0, 0), (0, 30)]


@system
def test_an_element_that_appears_later_and_moves_is_clicked(page: Any) -> None:
    async def work(actions: PageActions) -> str:
        await actions.click("button")
        return await actions.text("p")

    body = """<style>@keyframes go { from { margin-left: 400px } } button { animation: go .3s; display: block }</style>
    <p>-<script>setTimeout(() => { const b = document.createElement('button'); b.textContent = 'x';
    b.onclick = () => document.querySelector('p').textContent = 'hit'; document.body.append(b) }, 300)</script>"""
    assert page(body, work) == "hit"


@system
def test_shadow_roots_are_included(page: Any) -> None:
    async def work(actions: PageActions) -> str:
        await actions.snapshot(interactive=True)
        await actions.click("@e1")
        return (await actions.snapshot(interactive=True)).text

    body = """<x-y></x-y><script>const r = document.querySelector('x-y').attachShadow({ mode: 'closed' });
    r.innerHTML = '<button>Deep</button>'; r.firstChild.onclick = (e) => e.target.textContent = 'Hit'</script>"""
    assert page(body, work) == '- button "Hit" [ref=e1]'


@system
def test_pages_are_opened_listed_and_closed(browser: str, page: Any, site: Site) -> None:  # noqa: F811
    site.page("/popup", b"<title>Popup</title>")
    page("<a href=/popup target=_blank>Open</a>", lambda actions: actions.click("a"))
    # A tab that a click opens is active.
    assert on_page(browser, lambda actions: actions.title()) == "Popup"

    async def work(cdp: WebSocketCdp) -> list[str]:
        first, second = [one.id for one in await open_pages(cdp)]
        front = await front_page(cdp)
        other = first if front == second else second
        await bring_to_front(cdp, other)
        assert await front_page(cdp) == other
        new = await new_page(cdp)
        assert await front_page(cdp) == new
        actions = await PageActions.attach(cdp, new)
        await close_page(cdp, new)
        said = []
        for step in (actions.title, lambda: close_page(cdp, new), lambda: PageActions.attach(cdp, new)):
            with pytest.raises(PageActionError) as caught:
                await step()
            said.append(str(caught.value))
        for one in await open_pages(cdp):
            await close_page(cdp, one.id)
        assert await front_page(cdp) is None
        actions = await PageActions.attach(cdp)
        assert await actions.url() == "about:blank"
        return said

    closed, *gone = on_browser(browser, work)
    assert closed == "The page was closed. List the pages that are there, or open a new one."
    assert all("is not there any more" in text for text in gone)


@system
def test_a_busy_page_is_reported(page: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(actions: PageActions) -> None:
        await actions.evaluate("setTimeout(() => { const end = Date.now() + 3000; while (Date.now() < end) {} }, 0), 1")
        monkeypatch.setattr("weblake_service.sessions.attached_page._COMMAND_TIMEOUT_S", 0.5)
        await actions.title()

    assert refused(lambda: page("", work)) == (
        "The page did not answer within 0.5 s (Runtime.evaluate): a script may keep it busy. Reload it."
    )


@system
def test_a_browser_that_ends_during_an_action_is_reported() -> None:
    with chromium_lab.chromium() as url:

        async def main() -> None:
            async with open_connection(url) as cdp:
                actions = await PageActions.attach(cdp)
                asking = asyncio.create_task(actions.evaluate("new Promise(() => {})"))
                await cdp.send("Browser.getVersion")
                await cdp.send("Browser.close")
                with pytest.raises(PageActionError, match=r"^(The browser is gone|The page )"):
                    await asking
                with pytest.raises(PageActionError):
                    await actions.title()

        asyncio.run(main())
