"""One query to a model, answered as text or as validated JSON."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

import msgspec

from weblake_service.llm import prompts
from weblake_service.llm.openai_endpoint import BAD_REPLY, INVALID_JSON, Message, ModelFailure, OpenAIEndpoint
from weblake_service.llm.schemas import Check

#: The first line of a code fence around the whole response, which many models add despite the instructions.
_FENCE = re.compile(r"```[a-zA-Z]*\s*")
#: Maximum characters of a response that is sent back for repair, and size from which one is validated in a thread.
_MAX_REPAIR_CHARS, _LARGE_CHARS = 20_000, 50_000


async def text_of(model: OpenAIEndpoint, messages: Sequence[Message]) -> str:
    """Return the response as text, stripped of white space.

    Raises:
        ModelFailure: There is no response, or it was truncated.
    """
    answer = await model.complete(messages)
    if answer.cut:
        raise ModelFailure(BAD_REPLY, "The language model reached its output limit in the middle of the answer.")
    if not answer.text.strip():
        raise ModelFailure(BAD_REPLY, "The language model answered with nothing.")
    return answer.text.strip()


async def json_of(
    model: OpenAIEndpoint, messages: Sequence[Message], check: Check, hint: Mapping[str, object]
) -> object:
    """Return the response as validated JSON; an invalid response is sent back once, with the errors.

    Args:
        model: The model.
        messages: The conversation.
        check: Returns what is wrong with a value.
        hint: A JSON Schema, for endpoints that support one.

    Raises:
        ModelFailure: There is no response, or the second one is also invalid.
    """
    answer = await model.complete(messages, hint)
    value, problem = await _check_json(answer.text, check, cut=answer.cut)
    if not problem:
        return value
    again = [
        *messages,
        Message("assistant", answer.text[:_MAX_REPAIR_CHARS]),
        Message("user", prompts.REPAIR.format(why=problem)),
    ]
    answer = await model.complete(again, hint)
    value, problem = await _check_json(answer.text, check, cut=answer.cut)
    if problem:
        raise ModelFailure(
            INVALID_JSON,
            f"The language model's answer is not what the schema asks for, and neither was the one before: {problem}."
            " Simplify the schema, or set another WEBLAKE_LLM_MODEL.",
        )
    return value


async def _check_json(text: str, check: Check, *, cut: bool) -> tuple[object, str]:
    if len(text) > _LARGE_CHARS:
        value, problem = await asyncio.to_thread(_check, text, check)
    else:
        value, problem = _check(text, check)
    # A truncated response can still be valid JSON if the model closed it too early.
    return value, "it reached the output limit, so be shorter" if cut and problem else problem


def _check(text: str, check: Check) -> tuple[object, str]:
    try:
        value = msgspec.json.decode(_without_fence(text))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None, "it is no JSON"
    return value, check(value)


def _without_fence(text: str) -> str:
    """Return the content of a code fence around the whole text; the text itself if there is none.

    No pattern describes the whole fence: over a text of blanks it would try each end of the content with each number of
    blanks before it.
    """
    first, _, rest = text.strip().partition("\n")
    return rest[: -len("```")] if _FENCE.fullmatch(first) and rest.endswith("```") else text
