"""The `json` mode of change tracking: compares the data of two versions of a page.

One model call extracts the data of both versions, so that both are extracted in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping

from weblake_service.llm import prompts
from weblake_service.llm.interface import Model
from weblake_service.llm.query import json_of
from weblake_service.llm.schemas import checker, is_object


async def changed_fields(
    model: Model, tracked: Mapping[str, object], previous: str, text: str
) -> tuple[dict[str, object], str]:
    """Return the fields whose values differ, each with its previous and current value, and a warning or an empty
    string.

    Args:
        model: The model that reads both versions.
        tracked: The format changeTracking, with `schema` and `prompt` if given.
        previous: The markdown of the earlier version.
        text: The markdown of this version.

    Raises:
        ModelFailure: The model returned no usable response.
    """
    schema = tracked.get("schema")
    inner = schema if isinstance(schema, Mapping) else None
    check = checker(inner) if inner is not None else is_object

    def check_both(value: object) -> str:
        if not isinstance(value, dict) or set(value) != {"previous", "current"}:
            return "it is not an object with previous and current alone"
        problems = ((name, check(value[name])) for name in ("previous", "current"))
        return "; ".join(f"{name}: {problem}" for name, problem in problems if problem)

    before, cut_before = prompts.truncate(previous, model.page_chars // 2)
    after, cut_after = prompts.truncate(text, model.page_chars // 2)
    wish = str(tracked.get("prompt") or "")
    messages = prompts.task_messages(prompts.CHANGES, before, after, wish=wish, schema=inner)
    found = await json_of(model, messages, check_both, _schema_of_both(inner))
    assert isinstance(found, dict)
    return _differing_fields(found["previous"], found["current"]), cut_after or cut_before


def _schema_of_both(schema: Mapping[str, object] | None) -> dict[str, object]:
    """Return the schema hint for two versions; a schema with references would need rewriting and is omitted."""
    one = schema if schema is not None and "$ref" not in str(schema) else {}
    sides: dict[str, object] = {"previous": one, "current": one}
    return {"type": "object", "properties": sides, "required": ["previous", "current"]}


def _differing_fields(previous: object, current: object) -> dict[str, object]:
    if not isinstance(previous, dict) or not isinstance(current, dict):
        return {} if previous == current else {"value": {"previous": previous, "current": current}}
    names = dict.fromkeys([*previous, *current])
    return {
        name: {"previous": previous.get(name), "current": current.get(name)}
        for name in names
        if previous.get(name) != current.get(name)
    }
