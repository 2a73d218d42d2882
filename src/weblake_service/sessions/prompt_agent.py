"""A language model that controls a session step by step until it can answer a prompt.

Every response of the model is JSON that names one action, so that any endpoint works. The content of pages is
untrusted. The number of actions, their time, and the amount of page content sent to the model are bounded.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weblake_service.llm import prompts
from weblake_service.llm.interface import Message
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.llm.query import json_of
from weblake_service.page_failure import PageFailure
from weblake_service.sessions.page_actions import PageActionError, acting_on
from weblake_service.sessions.playwright_driver import PlaywrightDriver
from weblake_service.sessions.sessions import LiveSession

if TYPE_CHECKING:
    from playwright.async_api import Page

#: Maximum actions of one prompt, and number of recent actions whose results are sent to the model again.
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
_LAST_ACTION_NOTE = "That was the last action that you have. Reply with the action finish."
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


@dataclass(frozen=True, slots=True)
class _Step:
    action: dict[str, Any]
    outcome: str


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
    done: list[_Step] = []
    while True:
        # A click may have opened another page, so the active page is determined again.
        page = await driver.active_page(live)
        async with acting_on(page) as actions:
            shown = await actions.snapshot()
        last = len(done) >= MAX_STEPS
        messages = _messages(model, page.url, prompt, shown, done, last=last)
        action = await json_of(model, messages, _step_problem(last=last), _ACTION_SCHEMA)
        assert isinstance(action, dict)
        if action["action"] == "finish":
            return PromptResult(action["output"], shown)
        done.append(_Step(action, await _execute_step(page, action)))


async def _execute_step(page: Page, action: dict[str, Any]) -> str:
    """Run the model's action and return its result; an action that fails is reported to the model."""
    where, text = f"@{str(action.get('ref', '')).lstrip('@')}", str(action.get("text", ""))
    try:
        async with acting_on(page) as actions:
            handlers: dict[str, Callable[[], Awaitable[object]]] = {
                "click": lambda: actions.on_element(where, "click"),
                "fill": lambda: actions.on_element(where, "fill", text),
                "select": lambda: actions.on_element(where, "select_option", text),
                "press": lambda: actions.press(text),
                "scroll": lambda: actions.scroll(text),
                "open": lambda: actions.goto(str(action["url"]), _LOAD_TIMEOUT_MS),
                "back": lambda: actions.go("back"),
                "read": actions.text,
            }
            found = await handlers[action["action"]]()
    except PageActionError as error:
        return f"Not done: {error}"
    return str(found)[:_MAX_OUTCOME_CHARS] if action["action"] == "read" else "Done."


def _messages(
    model: OpenAIEndpoint, url: str, prompt: str, shown: str, done: list[_Step], *, last: bool
) -> list[Message]:
    mark = prompts.new_delimiter()
    messages = prompts.task_messages(_TASK, wish=prompt, mark=mark)
    for step in done[-_RESENT_STEPS:]:
        messages += [
            Message("assistant", json.dumps(step.action, ensure_ascii=False)),
            Message("user", prompts.quote_texts([step.outcome], mark)[0]),
        ]
    page = f"The page now: {url}\n{shown}"[: model.page_chars]
    now = prompts.quote_texts([page], mark)[0] + (f"\n\n{_LAST_ACTION_NOTE}" if last else "")
    # Some endpoints reject two consecutive messages with the same role.
    if messages[-1].role == "user":
        messages[-1] = Message("user", f"{messages[-1].text}\n\n{now}")
    else:
        messages.append(Message("user", now))
    return messages


def _step_problem(*, last: bool) -> Callable[[object], str]:
    """Return a function that returns what is wrong with an action."""

    def look(value: object) -> str:
        # The action can be a list or an object, which no dict can look up.
        if not isinstance(value, dict) or value.get("action") not in list(_REQUIRED_FIELDS):
            return f"it is no object with an action, one of {', '.join(_REQUIRED_FIELDS)}"
        for name in _REQUIRED_FIELDS[value["action"]]:
            if not isinstance(value.get(name), str) or (name != "text" and not value[name].strip()):
                return f"the action {value['action']} needs a {name}"
        return "only the action finish is left" if last and value["action"] != "finish" else ""

    return look
