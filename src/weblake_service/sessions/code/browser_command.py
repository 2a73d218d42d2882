"""The command `agent-browser`: controls the browser of CDP_URL from a shell, one step at a time.

The refs of the last snapshot (`@e5`) are kept between calls in a file in TMPDIR. An error is one line on standard error
and the exit status 1.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from argparse import Namespace
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from weblake_service.sessions.attached_page import PageActionError
from weblake_service.sessions.cdp import CdpError
from weblake_service.sessions.code import refs_file
from weblake_service.sessions.code.command_parser import parse
from weblake_service.sessions.code.connection import WebSocketCdp, open_connection
from weblake_service.sessions.open_pages import bring_to_front, close_page, front_page, new_page, open_pages
from weblake_service.sessions.page_actions import PageActions

#: The output of a step: a text for people, and a value for programs (--json).
Said = tuple[str, object]
_MILLISECONDS = 1000


def main(words: Sequence[str]) -> int:
    """Run one step; return the exit status of the process."""
    told = parse(words)
    try:
        text, value = asyncio.run(_run(told))
    except (PageActionError, CdpError) as error:
        problem = " ".join(str(error).split())
        if told.json:
            print(json.dumps({"success": False, "data": None, "error": problem}))  # noqa: T201
        print(f"agent-browser: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    shown = json.dumps({"success": True, "data": value, "error": None}, ensure_ascii=False) if told.json else text
    if shown:
        with suppress(BrokenPipeError):
            print(shown)  # noqa: T201
            sys.stdout.flush()
    return 0


async def _run(told: Namespace) -> Said:
    if told.command == "close":
        return "The session stays open; it is ended through the API (DELETE /v2/browser/{id}).", None
    url = os.environ.get("CDP_URL")
    if not url:
        raise PageActionError("CDP_URL is not set: it has to name a browser, as ws://127.0.0.1:9222/devtools/browser/…")
    async with open_connection(url) as cdp:
        if told.command == "tab":
            return await _tab(cdp, told)
        hands = await PageActions.attach(cdp)
        hands.last_snapshot = refs_file.load(_folder(), hands.page.target)
        text, value = await _step(hands, told)
        # The text of a dialog is lost when it closes; it can be read only now.
        return "\n".join(filter(None, [text, *hands.page.dialogs])), value


async def _step(hands: PageActions, told: Namespace) -> Said:
    """Run one step on the page in front and return its output."""
    command = told.command
    if command in {"get", "is"}:
        value = await (_get if command == "get" else _is)(hands, told)
        return _plain(value), value
    if command == "snapshot":
        shot = await hands.snapshot(
            interactive=told.interactive, compact=told.compact, depth=told.depth, css=told.selector
        )
        refs_file.save(_folder(), hands.page.target, shot)
        return shot.text, {"snapshot": shot.text, "refs": {name: _ref_to_dict(ref) for name, ref in shot.refs.items()}}
    if command == "eval":
        script = sys.stdin.read() if told.script == ["-"] else " ".join(told.script)
        value = await hands.evaluate(script)
        return _plain(value), value
    if command == "screenshot":
        path = _save_file(await hands.screenshot(full_page=told.full), told.path or "screenshot.png")
        return path, {"path": path}
    await _STEPS[command](hands, told)
    if command in {"open", "goto", "back", "forward", "reload"}:
        title, url = await hands.title(), await hands.url()
        return f"{title}\n{url}".strip(), {"title": title, "url": url}
    return "", None


async def _wait(hands: PageActions, told: Namespace) -> None:
    if told.what.isdigit():
        await asyncio.sleep(int(told.what) / _MILLISECONDS)
    else:
        await hands.wait_for(told.what)


_STEPS: dict[str, Callable[[PageActions, Namespace], Awaitable[object]]] = {
    "open": lambda hands, told: hands.goto(told.url),
    "goto": lambda hands, told: hands.goto(told.url),
    "back": lambda hands, told: hands.back(),
    "forward": lambda hands, told: hands.forward(),
    "reload": lambda hands, told: hands.reload(),
    "click": lambda hands, told: hands.click(told.element),
    "dblclick": lambda hands, told: hands.click(told.element, count=2),
    "hover": lambda hands, told: hands.hover(told.element),
    "focus": lambda hands, told: hands.focus(told.element),
    "fill": lambda hands, told: hands.fill(told.element, " ".join(told.text)),
    "type": lambda hands, told: hands.type(" ".join(told.text), told.element),
    "press": lambda hands, told: hands.press(told.key),
    "select": lambda hands, told: hands.select(told.element, *told.values),
    "check": lambda hands, told: hands.check(told.element),
    "uncheck": lambda hands, told: hands.check(told.element, on=False),
    "scroll": lambda hands, told: hands.scroll(told.direction, told.pixels, told.selector),
    "scrollintoview": lambda hands, told: hands.scroll_into_view(told.element),
    "wait": _wait,
}


async def _get(hands: PageActions, told: Namespace) -> Any:
    if told.what in {"title", "url"}:
        return await (hands.title() if told.what == "title" else hands.url())
    if told.what in {"text", "html"}:
        return await (hands.text if told.what == "text" else hands.html)(told.element)
    if told.element is None:
        raise PageActionError(f"get {told.what} needs an element: a CSS selector, or a ref as @e5.")
    if told.what == "count":
        return await hands.count(told.element)
    if told.what == "value":
        return await hands.value(told.element)
    if told.name is None:
        raise PageActionError("get attr needs a name, too: get attr @e5 href")
    return await hands.attribute(told.element, told.name)


async def _is(hands: PageActions, told: Namespace) -> bool:
    if told.what == "checked":
        return await hands.is_checked(told.element)
    return await (hands.is_visible if told.what == "visible" else hands.is_enabled)(told.element)


async def _tab(cdp: WebSocketCdp, told: Namespace) -> Said:
    """List, open, switch and close pages; their numbers are those of the list."""
    pages = refs_file.in_listed_order(_folder(), await open_pages(cdp))
    if told.what == "new":
        page = await new_page(cdp)
        refs_file.in_listed_order(_folder(), await open_pages(cdp))
        if told.argument:
            hands = await PageActions.attach(cdp, page)
            await hands.goto(told.argument)
        return "", {"id": page}
    front = await front_page(cdp, pages)
    if told.what == "list":
        lines = [
            f"{'→' if page.id == front else ' '} [{n}] {page.title or '(no title)'} - {page.url}"
            for n, page in enumerate(pages, 1)
        ]
        listed = [
            {"number": n, "id": page.id, "title": page.title, "url": page.url, "active": page.id == front}
            for n, page in enumerate(pages, 1)
        ]
        return "\n".join(lines), {"tabs": listed}
    number = told.what if told.what.isdigit() else told.argument
    if number is None and told.what == "close" and front:
        await close_page(cdp, front)
        return "", None
    if not number or not number.isdigit() or not 1 <= int(number) <= len(pages):
        raise PageActionError(f"There is no tab {number}; there are 1 to {len(pages)} (agent-browser tab list).")
    chosen = pages[int(number) - 1].id
    await (close_page if told.what == "close" else bring_to_front)(cdp, chosen)
    return "", {"id": chosen}


def _save_file(picture: bytes, path: str) -> str:
    file = Path(path).absolute()
    try:
        file.write_bytes(picture)
    except OSError as error:
        raise PageActionError(f"{file} cannot be written: {error.strerror}. Name another path.") from error
    return str(file)


def _ref_to_dict(ref: Any) -> dict[str, str]:
    return {"role": ref.role, "name": ref.name}


def _plain(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - where the user has none of their own
