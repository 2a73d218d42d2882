"""Conversations in which a model chooses one action at a time; each of its responses is JSON that names the action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from weblake_service.llm import prompts
from weblake_service.llm.openai_endpoint import Message
from weblake_service.llm.schemas import Check

_LAST_ACTION_NOTE = "That was the last action that you have. Reply with the action finish."
#: Minimum characters of each earlier result that the model is given.
_MIN_RESULT_CHARS = 200


def messages(
    task: str,
    wish: str,
    steps: Sequence[tuple[Mapping[str, object], str]],
    room: int,
    *,
    schema: Mapping[str, object] | None = None,
    page: str = "",
    last: bool = False,
) -> list[Message]:
    """Return the messages that ask for the next action.

    Args:
        task: The service's own description of the task and its actions.
        wish: The prompt of the API's caller.
        steps: The earlier actions with their results, which are untrusted.
        room: Maximum characters of all results.
        schema: The JSON Schema of the final data.
        page: The current state, untrusted.
        last: Whether only the final action is left.
    """
    mark = prompts.new_delimiter()
    begin = prompts.task_messages(task, wish=wish, schema=schema, mark=mark)
    said: list[Message] = []
    # The next action depends mostly on the latest results, so they get the available space first.
    for action, result in reversed(steps):
        text = result[: max(_MIN_RESULT_CHARS, room)]
        room -= len(text)
        said += [
            Message("user", prompts.quote_texts([text], mark)[0]),
            Message("assistant", msgspec.json.encode(action).decode()),
        ]
    found = [*begin, *reversed(said)]
    # Some endpoints reject two consecutive messages with the same role.
    parts = [found[-1].text, *prompts.quote_texts([page] if page else [], mark), *([_LAST_ACTION_NOTE] if last else [])]
    return [*found[:-1], Message("user", "\n\n".join(parts))]


def checker(fields: Mapping[str, tuple[str, ...]], finish: Check, *, last: bool) -> Check:
    """Return a check of an action: its name, its required fields, and `finish` for the object of a final action."""

    def check(value: object) -> str:
        # The action can be a list or an object, which no dict can look up.
        if not isinstance(value, dict) or value.get("action") not in list(fields):
            return f"it is no object with an action, one of {', '.join(fields)}"
        action = value["action"]
        for name in fields[action]:
            if not isinstance(value.get(name), str) or (name != "text" and not value[name].strip()):
                return f"the action {action} needs a {name}"
        if action == "finish":
            return finish(value)
        return "only the action finish is left" if last else ""

    return check
