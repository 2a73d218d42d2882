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
Output = tuple[str, object]
_MS_PER_SECOND = 1000


def main(words: Sequence[str]) -> int:
    """Run one step; return the exit status of the process."""
    arguments = parse(words)
    try:
        text, value = asyncio.run(_run(arguments))
    except (PageActionError, CdpError) as error:
        problem = " ".join(str(error).split())
        if arguments.json:
            print(json.dumps({"success": False, "data": None, "error": problem}))  # noqa: T201
        print(f"agent-browser: {problem}", file=sys.stderr)  # noqa: T201
        return 1
    shown = json.dumps({"success": True, "data": value, "error": None}, ensure_ascii=False) if arguments.json else text
    if shown:
        with suppress(BrokenPipeError):
            print(shown)  # noqa: T201
            sys.stdout.flush()
    return 0


async def _run(arguments: Namespace) -> Output:
    if arguments.command == "close":
        return "The session stays open; it is ended through the API (DELETE /v2/browser/{id}).", None
    url = os.environ.get("CDP_URL")
    if not url:
        raise PageActionError("CDP_URL is not set: it has to name a browser, as ws://127.0.0.1:9222/devtools/browser/…")
    async with open_connection(url) as cdp:
        if arguments.command == "tab":
            return await _tab(cdp, arguments)
        actions = await PageActions.attach(cdp)
        actions.last_snapshot = refs_file.load(_folder(), actions.page.target)
        text, value = await _step(actions, arguments)
        # The text of a dialog is lost when it closes; it can be read only now.
        return "\n".join(filter(None, [text, *actions.page.dialogs])), value


async def _step(actions: PageActions, arguments: Namespace) -> Output:
    """Run one step on the page in front and return its output."""
    command = arguments.command
    if command in {"get", "is"}:
        value = await (_get if command == "get" else _is)(actions, arguments)
        return _to_text(value), value
    if command == "snapshot":
        shot = await actions.snapshot(
            interactive=arguments.interactive, compact=arguments.compact, depth=arguments.depth, css=arguments.selector
        )
        refs_file.save(_folder(), actions.page.target, shot)
        return shot.text, {"snapshot": shot.text, "refs": {name: _ref_to_dict(ref) for name, ref in shot.refs.items()}}
    if command == "eval":
        script = sys.stdin.read() if arguments.script == ["-"] else " ".join(arguments.script)
        value = await actions.evaluate(script)
        return _to_text(value), value
    if command == "screenshot":
        path = _save_file(await actions.screenshot(full_page=arguments.full), arguments.path or "screenshot.png")
        return path, {"path": path}
    await _STEPS[command](actions, arguments)
    if command in {"open", "goto", "back", "forward", "reload"}:
        title, url = await actions.title(), await actions.url()
        return f"{title}\n{url}".strip(), {"title": title, "url": url}
    return "", None


async def _wait(actions: PageActions, arguments: Namespace) -> None:
    if arguments.what.isdigit():
        await asyncio.sleep(int(arguments.what) / _MS_PER_SECOND)
    else:
        await actions.wait_for(arguments.what)


_STEPS: dict[str, Callable[[PageActions, Namespace], Awaitable[object]]] = {
    "open": lambda actions, arguments: actions.goto(arguments.url),
    "goto": lambda actions, arguments: actions.goto(arguments.url),
    "back": lambda actions, arguments: actions.back(),
    "forward": lambda actions, arguments: actions.forward(),
    "reload": lambda actions, arguments: actions.reload(),
    "click": lambda actions, arguments: actions.click(arguments.element),
    "dblclick": lambda actions, arguments: actions.click(arguments.element, count=2),
    "hover": lambda actions, arguments: actions.hover(arguments.element),
    "focus": lambda actions, arguments: actions.focus(arguments.element),
    "fill": lambda actions, arguments: actions.fill(arguments.element, " ".join(arguments.text)),
    "type": lambda actions, arguments: actions.type(" ".join(arguments.text), arguments.element),
    "press": lambda actions, arguments: actions.press(arguments.key),
    "select": lambda actions, arguments: actions.select(arguments.element, *arguments.values),
    "check": lambda actions, arguments: actions.check(arguments.element),
    "uncheck": lambda actions, arguments: actions.check(arguments.element, on=False),
    "scroll": lambda actions, arguments: actions.scroll(arguments.direction, arguments.pixels, arguments.selector),
    "scrollintoview": lambda actions, arguments: actions.scroll_into_view(arguments.element),
    "wait": _wait,
}


async def _get(actions: PageActions, arguments: Namespace) -> Any:
    if arguments.what in {"title", "url"}:
        return await (actions.title() if arguments.what == "title" else actions.url())
    if arguments.what in {"text", "html"}:
        return await (actions.text if arguments.what == "text" else actions.html)(arguments.element)
    if arguments.element is None:
        raise PageActionError(f"get {arguments.what} needs an element: a CSS selector, or a ref as @e5.")
    if arguments.what == "count":
        return await actions.count(arguments.element)
    if arguments.what == "value":
        return await actions.value(arguments.element)
    if arguments.name is None:
        raise PageActionError("get attr needs a name, too: get attr @e5 href")
    return await actions.attribute(arguments.element, arguments.name)


async def _is(actions: PageActions, arguments: Namespace) -> bool:
    if arguments.what == "checked":
        return await actions.is_checked(arguments.element)
    return await (actions.is_visible if arguments.what == "visible" else actions.is_enabled)(arguments.element)


async def _tab(cdp: WebSocketCdp, arguments: Namespace) -> Output:
    """List, open, switch and close pages; their numbers are those of the list."""
    pages = refs_file.in_listed_order(_folder(), await open_pages(cdp))
    if arguments.what == "new":
        page = await new_page(cdp)
        refs_file.in_listed_order(_folder(), await open_pages(cdp))
        if arguments.argument:
            actions = await PageActions.attach(cdp, page)
            await actions.goto(arguments.argument)
        return "", {"id": page}
    front = await front_page(cdp, pages)
    if arguments.what == "list":
        lines = [
            f"{'→' if page.id == front else ' '} [{n}] {page.title or '(no title)'} - {page.url}"
            for n, page in enumerate(pages, 1)
        ]
        listed = [
            {"number": n, "id": page.id, "title": page.title, "url": page.url, "active": page.id == front}
            for n, page in enumerate(pages, 1)
        ]
        return "\n".join(lines), {"tabs": listed}
    number = arguments.what if arguments.what.isdigit() else arguments.argument
    if number is None and arguments.what == "close" and front:
        await close_page(cdp, front)
        return "", None
    if not number or not number.isdigit() or not 1 <= int(number) <= len(pages):
        raise PageActionError(f"There is no tab {number}; there are 1 to {len(pages)} (agent-browser tab list).")
    chosen = pages[int(number) - 1].id
    await (close_page if arguments.what == "close" else bring_to_front)(cdp, chosen)
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


def _to_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _folder() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - where the user has none of their own
