"""Runs an agent job: a language model chooses what to read next until it can return the data.

Every response of the model is JSON that names one action, so that any endpoint works. The results of actions are
untrusted content. The number of actions, their credits, and the amount of results sent to the model are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weblake_service.jobs.web_tools import MAP_PRICE, SEARCH_PRICE, ModelJob, ModelJobResult, ToolResult
from weblake_service.llm import actions
from weblake_service.llm.model_options import EXTRACTION_CREDITS
from weblake_service.llm.openai_endpoint import Message
from weblake_service.llm.query import json_of
from weblake_service.llm.schemas import Check, checker, is_object
from weblake_service.page_failure import PageFailure

#: Maximum number of actions of one agent.
MAX_STEPS = 20
#: Maximum search results, and URLs of a site, that are sent to the model.
_MAX_RESULTS, _MAX_URLS = 10, 100
#: Maximum credits of a job that sets no limit: the contract's default.
DEFAULT_CREDITS = 2500
_PRICES = {"scrape": 1, "search": SEARCH_PRICE, "map": MAP_PRICE}
#: The required fields of each action.
_FIELDS = {"scrape": ("url",), "map": ("url",), "search": ("query",), "finish": ()}
_ACTION_SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "action": {"enum": [*_FIELDS]},
        "url": {"type": "string"},
        "query": {"type": "string"},
        "data": {},
    },
    "required": ["action"],
}
_TASK = (
    "Gather what is wanted below, one action at a time. Reply with one JSON object and nothing else, one of these:\n"
    '{"action": "scrape", "url": "…"} reads a page\n'
    '{"action": "map", "url": "…"} lists the pages of a site\n'
    '{"action": "search", "query": "…"} searches the pages that were scraped before; it does not search the web\n'
    '{"action": "finish", "data": …} ends with the data; name nothing that no page told'
)


async def run_agent(job: ModelJob) -> ModelJobResult:
    """Return the data with which the model finished.

    Raises:
        PageFailure: The model finished without data, or its team's credits are used up.
    """
    schema = job.plan.get("schema")
    check = checker(schema) if isinstance(schema, Mapping) else is_object
    done = [job.steps[place] for place in sorted(job.steps)]
    while True:
        last = len(done) >= MAX_STEPS
        fits = actions.checker(_FIELDS, _data_problem(check), last=last)
        said = await json_of(job.model, _messages(job, done, last=last), fits, _ACTION_SCHEMA)
        assert isinstance(said, dict)
        if said["action"] == "finish":
            return ModelJobResult({"data": said["data"]}, EXTRACTION_CREDITS)
        done.append(await _step(job, said, done))


async def _step(job: ModelJob, action: dict[str, Any], done: list[dict[str, Any]]) -> dict[str, Any]:
    """Run the model's action, then record and bill it; an action that is not possible is reported to the model for
    free.
    """
    place = len(done) + 1
    spent = sum(int(one["credits"]) for one in done)
    left = int(job.plan.get("max_credits", DEFAULT_CREDITS)) - EXTRACTION_CREDITS - spent
    price = _PRICES[action["action"]]
    keep = None
    if price > left:
        found = ToolResult(f"Not done: it costs {price} credits, and {max(0, left)} are left. Finish.", 0)
    else:
        await job.check_credits(price)
        try:
            found = await _execute_action(job, action, place, left)
            keep = found.keep
        except PageFailure as failure:
            if failure.status == 402:
                raise
            found = ToolResult(f"Not done: {failure.message}", 0)
    step: dict[str, Any] = {
        "action": {name: action[name] for name in ("action", "url", "query") if name in action},
        "result": found.text[: job.model.page_chars // 2] or "Nothing was found.",
        "credits": found.credits,
    }
    await job.record(place, step, found.credits, keep)
    return step


async def _execute_action(job: ModelJob, action: dict[str, Any], place: int, left: int) -> ToolResult:
    if action["action"] == "search":
        return await job.search(action["query"], _MAX_RESULTS)
    url = action["url"]
    if job.plan.get("strict_constrain_to_urls") and url not in job.plan.get("urls", ()):
        raise PageFailure("FORBIDDEN", f"Only the given URLs may be used, and {url[:200]} is none of them.", status=403)
    if action["action"] == "map":
        return await job.site(url, {"limit": _MAX_URLS})
    # A PDF costs one credit per page, and the number of pages is known only after it was read.
    return await job.page(url, place, {"parsers": [{"type": "pdf", "max_pages": left}]})


def _messages(job: ModelJob, done: list[dict[str, Any]], *, last: bool) -> list[Message]:
    wish, schema = str(job.plan.get("prompt", "")), job.plan.get("schema")
    if urls := job.plan.get("urls"):
        only = " Use no others." if job.plan.get("strict_constrain_to_urls") else ""
        wish += "\n\nURLs to begin with:" + only + "".join(f"\n- {url}" for url in urls)
    steps = [(step["action"], step["result"]) for step in done]
    given = schema if isinstance(schema, Mapping) else None
    return actions.messages(_TASK, wish, steps, job.model.page_chars, schema=given, last=last)


def _data_problem(check: Check) -> Check:
    """Return a check of a final action and its data."""

    def look(value: object) -> str:
        assert isinstance(value, dict)
        if "data" not in value:
            return "it has no data"
        problem = check(value["data"])
        return f"data: {problem}" if problem else ""

    return look
