"""The commands of `agent-browser`, performed in the service on the pages of a session.

The command line, code/agent_browser.py, sends the parsed arguments of one command.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weblake_service.sessions.page_actions import PageActionError, PageActions, acting_on, refs_of
from weblake_service.sessions.playwright_driver import PlaywrightDriver
from weblake_service.sessions.sessions import LiveSession

if TYPE_CHECKING:
    from playwright.async_api import Page

Arguments = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output of a command: a text for people, a value for programs (--json), or an error in one line."""

    text: str = ""
    value: Any = None
    error: str | None = None
    #: A screenshot, base64-encoded.
    png: str | None = None


async def run_command(driver: PlaywrightDriver, live: LiveSession, arguments: Arguments) -> CommandResult:
    """Perform one command on the active page of a session."""
    try:
        page = await driver.active_page(live)
        async with acting_on(page) as actions:
            if arguments["command"] == "tab":
                result = await _tab(driver, page, arguments)
            else:
                result = await _perform(actions, arguments)
    except PageActionError as error:
        return CommandResult(error=" ".join(str(error).split()))
    except KeyError as error:
        return CommandResult(error=f"The command is none of agent-browser: {error}.")
    # The text of a dialog is lost when it closes; it can be read only now.
    return CommandResult("\n".join(filter(None, [result.text, *actions.dialogs])), result.value, png=result.png)


async def _perform(actions: PageActions, arguments: Arguments) -> CommandResult:
    command, page = arguments["command"], actions.page
    match command:
        case "snapshot":
            chosen = {name: arguments[name] for name in ("interactive", "compact", "depth")}
            text = await actions.snapshot(**chosen, css=arguments["selector"])
            return CommandResult(text, {"snapshot": text, "refs": refs_of(text)})
        case "screenshot":
            return CommandResult(png=b64encode(await page.screenshot(full_page=arguments["full"])).decode())
        case "eval":
            return _valued(await page.evaluate(arguments["script"]))
        case "get" | "is":
            return _valued(await _read(actions, arguments))
        case "open" | "goto":
            await actions.goto(arguments["url"])
        case "back" | "forward" | "reload":
            await actions.go(command)
        case _:
            await _act(actions, command, arguments)
            return CommandResult()
    title = await page.title()
    return CommandResult(f"{title}\n{page.url}".strip(), {"title": title, "url": page.url})


#: The methods of Playwright's Locator behind the commands for elements, and behind those that read something.
_ELEMENT_METHODS = {
    **{name: name for name in ("click", "dblclick", "hover", "focus", "check", "uncheck", "fill")},
    "select": "select_option",
    "scrollintoview": "scroll_into_view_if_needed",
}
_READING_METHODS = {
    **{name: f"is_{name}" for name in ("visible", "enabled", "checked")},
    **{"text": "inner_text", "html": "evaluate", "value": "input_value", "attr": "get_attribute"},
}


async def _act(actions: PageActions, command: str, arguments: Arguments) -> None:
    match command:
        case "type":
            await actions.type(arguments["element"], " ".join(arguments["text"]))
        case "press":
            await actions.press(arguments["key"])
        case "scroll":
            await actions.scroll(arguments["direction"], arguments["pixels"], arguments["selector"] or "html")
        case "wait":
            await actions.wait_for(arguments["what"])
        case _:
            given = [" ".join(arguments["text"])] if command == "fill" else []
            given += [arguments["values"]] if command == "select" else []
            await actions.on_element(arguments["element"], _ELEMENT_METHODS[command], *given)


async def _read(actions: PageActions, arguments: Arguments) -> Any:
    what, where, name = arguments["what"], arguments["element"], arguments.get("name")
    match what:
        case "title":
            return await actions.page.title()
        case "url":
            return actions.page.url
        case "text" if where is None:
            return await actions.text()
    if where is None and what != "html":
        raise PageActionError(f"get {what} needs an element: a CSS selector, or a ref as @e5.")
    if what == "count":
        return await actions.count(where)
    if what == "attr" and name is None:
        raise PageActionError("get attr needs a name, too: get attr @e5 href")
    given: list[object] = ["element => element.outerHTML"] if what == "html" else [name] if what == "attr" else []
    return await actions.on_element(where or "html", _READING_METHODS[what], *given)


async def _tab(driver: PlaywrightDriver, active: Page, arguments: Arguments) -> CommandResult:
    """List, open, switch and close pages; their numbers are those of the list."""
    pages, what = active.context.pages, arguments["what"]
    if what == "new":
        page = await active.context.new_page()
        if arguments["argument"]:
            await PageActions(page).goto(arguments["argument"])
        return CommandResult(value={"id": await driver.target_of(page)})
    if what == "list":
        listed = []
        for position, page in enumerate(pages, 1):
            title, target = await page.title(), await driver.target_of(page)
            listed.append({"number": position, "id": target, "title": title, "url": page.url, "active": page is active})
        lines = [
            f"{'→' if one['active'] else ' '} [{one['number']}] {one['title'] or '(no title)'} - {one['url']}"
            for one in listed
        ]
        return CommandResult("\n".join(lines), {"tabs": listed})
    number = what if what.isdigit() else arguments["argument"] or ""
    if what == "close" and not number:
        chosen = active
    elif number.isdigit() and 1 <= int(number) <= len(pages):
        chosen = pages[int(number) - 1]
    else:
        raise PageActionError(f"There is no tab {number}; there are 1 to {len(pages)} (agent-browser tab list).")
    target = await driver.target_of(chosen)
    await (chosen.close() if what == "close" else chosen.bring_to_front())
    return CommandResult(value={"id": target})


def _valued(value: Any) -> CommandResult:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return CommandResult(text, value)
