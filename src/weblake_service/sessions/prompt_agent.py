"""A language model that controls a session step by step until it can answer a prompt.

Every response of the model is JSON that names one action, so that any endpoint works. The content of pages is
untrusted. The number of actions, their time, and the amount of page content sent to the model are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weblake_service.llm import actions
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.llm.query import json_of
from weblake_service.page_failure import PageFailure
from weblake_service.sessions.page_actions import PageActionError, acting_on
from weblake_service.sessions.playwright_driver import PlaywrightDriver
from weblake_service.sessions.sessions import LiveSession

if TYPE_CHECKING:
    from playwright.async_api import Page

#: Maximum actions of one prompt, and number of recent ones whose whole results are sent to the model again.
MAX_STEPS, _RESENT_STEPS = 30, 12
#: Maximum characters of the result of an action.
_MAX_OUTCOME_CHARS = 2_000
#: Load timeout of a page that the model opens, in milliseconds.
_LOAD_TIMEOUT_MS = 15_000.0

_TASK = (
    "Do what is wanted below in the browser page that you are shown, one action at a time. Elements that can be used "
    "have a ref such as [ref=e2]. Reply with one JSON object and nothing else, one of these:\n"
    '{"action": "click", "ref": "e2"}\n'
    '{"action": "fill", "ref": "e3", "text": "…"} puts text in the place of what a field holds\n'
    '{"action": "select", "ref": "e4", "text": "…"} chooses an option\n'
    '{"action": "press", "text": "Enter"} presses a key\n'
    '{"action": "scroll", "text": "down"} or "up"\n'
    '{"action": "open", "url": "…"} goes to another page\n'
    '{"action": "back"}\n'
    '{"action": "read"} shows the whole text of the page\n'
    '{"action": "finish", "output": "…"} ends with the answer, or with what was done; claim nothing that no page showed'
)
#: The required fields of each action.
_REQUIRED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "click": ("ref",),
    "fill": ("ref", "text"),
    "select": ("ref", "text"),
    "press": ("text",),
    "scroll": ("text",),
    "open": ("url",),
    "back": (),
    "read": (),
    "finish": ("output",),
}
_ACTION_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "action": {"enum": [*_REQUIRED_FIELDS]},
        **{name: {"type": "string"} for name in ("ref", "text", "url", "output")},
    },
    "required": ["action"],
}


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The result of a prompt."""

    #: The model's final answer.
    output: str
    #: The page at the end.
    snapshot: str


async def follow_prompt(
    model: OpenAIEndpoint, driver: PlaywrightDriver, live: LiveSession, prompt: str, timeout_s: float
) -> PromptResult | None:
    """Follow a prompt in a session; return None if it was not finished in time.

    Raises:
        ModelFailure: The model returns no usable response.
        PageFailure: 502; the browser fails.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _run_steps(model, driver, live, prompt)
    except TimeoutError:
        return None
    except PageActionError as error:
        raise PageFailure("BROWSER_FAILED", f"The browser of the session failed: {error}", status=502) from error


async def _run_steps(model: OpenAIEndpoint, driver: PlaywrightDriver, live: LiveSession, prompt: str) -> PromptResult:
    done: list[tuple[dict[str, Any], str]] = []
    while True:
        # A click may have opened another page, so the active page is determined again.
        page = await driver.active_page(live)
        async with acting_on(page) as acting:
            shown = await acting.snapshot()
        last = len(done) >= MAX_STEPS
        now = f"The page now: {page.url}\n{shown}"[: model.page_chars]
        room = _RESENT_STEPS * _MAX_OUTCOME_CHARS
        messages = actions.messages(_TASK, prompt, done, room, page=now, last=last)
        fits = actions.checker(_REQUIRED_FIELDS, lambda _: "", last=last)
        action = await json_of(model, messages, fits, _ACTION_SCHEMA)
        assert isinstance(action, dict)
        if action["action"] == "finish":
            return PromptResult(action["output"], shown)
        done.append((action, await _execute_step(page, action)))


async def _execute_step(page: Page, action: dict[str, Any]) -> str:
    """Run the model's action and return its result; an action that fails is reported to the model."""
    where, text = f"@{str(action.get('ref', '')).lstrip('@')}", str(action.get("text", ""))
    try:
        async with acting_on(page) as acting:
            handlers: dict[str, Callable[[], Awaitable[object]]] = {
                "click": lambda: acting.on_element(where, "click"),
                "fill": lambda: acting.on_element(where, "fill", text),
                "select": lambda: acting.on_element(where, "select_option", text),
                "press": lambda: acting.press(text),
                "scroll": lambda: acting.scroll(text),
                "open": lambda: acting.goto(str(action["url"]), _LOAD_TIMEOUT_MS),
                "back": lambda: acting.go("back"),
                "read": acting.text,
            }
            found = await handlers[action["action"]]()
    except PageActionError as error:
        return f"Not done: {error}"
    return str(found)[:_MAX_OUTCOME_CHARS] if action["action"] == "read" else "Done."
