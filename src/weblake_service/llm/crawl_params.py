"""Generates the options of a crawl from a prompt.

The options pass the validation of POST /v2/crawl, except `maxDepth`, which is in the contract's preview only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from weblake.api import options
from weblake.errors import InvalidOption
from weblake_service.llm import prompts
from weblake_service.llm.openai_endpoint import OpenAIEndpoint
from weblake_service.llm.query import json_of
from weblake_service.llm.schemas import checker
from weblake_service.page_failure import PageFailure
from weblake_service.responses import ErrorResponse
from weblake_service.web.path_patterns import PathPatterns

#: Timeout of the model in seconds.
_TIMEOUT_S = 60.0
_PATHS = {"type": "array", "items": {"type": "string"}}
#: The contract's generated parameters.
_FIELDS: dict[str, object] = {
    "includePaths": {**_PATHS, "description": "regular expressions on the path; only matching pages are scraped"},
    "excludePaths": {**_PATHS, "description": "regular expressions on the path; matching pages are left out"},
    "maxDepth": {"type": "integer", "minimum": 0, "description": "only if the wish is for levels of the path"},
    "maxDiscoveryDepth": {"type": "integer", "minimum": 0, "description": "links followed from the start"},
    "crawlEntireDomain": {"type": "boolean", "description": "also pages above and beside the start"},
    "allowExternalLinks": {"type": "boolean"},
    "allowSubdomains": {"type": "boolean"},
    "sitemap": {"enum": ["skip", "include", "only"]},
    "ignoreQueryParameters": {"type": "boolean"},
    "ignoreRobotsTxt": {"type": "boolean", "description": "only where it is asked for in so many words"},
    "robotsUserAgent": {"type": "string"},
    "deduplicateSimilarURLs": {"type": "boolean"},
    "delay": {"type": "number", "exclusiveMinimum": 0, "description": "seconds between pages"},
    "limit": {"type": "integer", "minimum": 1, "description": "pages at most"},
}
_SCHEMA: dict[str, object] = {"type": "object", "properties": _FIELDS, "additionalProperties": False}
_TASK = (
    "Turn the wish below into the options of a crawl of {url}. Set only what the wish calls for, and leave out the"
    " rest. Reply with one JSON object."
)


async def generate(model: OpenAIEndpoint, url: str, wish: str) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the crawl options for a prompt: by wire name, and by snake_case name, both without the URL.

    Raises:
        ErrorResponse: 500 if the model returned no valid options, 503 if a required feature is not configured.
    """
    fits = checker(_SCHEMA)

    def check(value: object) -> str:
        value = _known(value)
        problem = fits(value)
        if problem:
            return problem
        try:
            PathPatterns(_crawl_options(url, value))
        except InvalidOption as error:
            return error.message
        except PageFailure as failure:
            return failure.message
        return ""

    messages = prompts.task_messages(_TASK.format(url=url), wish=wish, schema=_SCHEMA)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            found = await json_of(model, messages, check, _SCHEMA)
    except TimeoutError:
        raise ErrorResponse(
            500, f"The language model gave no options within {_TIMEOUT_S:g} s.", code="LLM_UNAVAILABLE"
        ) from None
    except PageFailure as failure:
        # The contract defines no 502 here.
        raise ErrorResponse(503 if failure.status == 503 else 500, failure.message, code=failure.code) from None
    found = _known(found)
    assert isinstance(found, dict)
    return found, {name: value for name, value in _crawl_options(url, found).items() if name != "url"}


def _crawl_options(url: str, found: object) -> dict[str, object]:
    """Return the options for a crawl, which knows one depth only."""
    assert isinstance(found, dict)
    depth = {"maxDiscoveryDepth": found["maxDepth"]} if "maxDepth" in found else {}
    return options.from_wire(options.CrawlRequest, {**depth, **found, "url": url}, ignored=[])


def _known(answer: object) -> object:
    """Return the answer of a model without unknown fields and without null, which is how some models leave one out."""
    if not isinstance(answer, dict):
        return answer
    return {name: value for name, value in answer.items() if name in _FIELDS and value is not None}
