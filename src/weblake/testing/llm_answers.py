"""Default responses of the scripted endpoint: in the requested form, and deterministic."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_CONTENT = re.compile(r"<content-([0-9a-f]+)>\n(.*?)\n</content-\1>", re.DOTALL)
_SCALARS: dict[str, object] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}
_MAX_DEPTH = 30


def default_answer(messages: Sequence[Mapping[str, str]], schema: Mapping[str, Any] | None) -> str:
    """Return JSON that fits a schema, or without a schema the first words of the content in the messages."""
    joined = "\n\n".join(one.get("content", "") for one in messages)
    contents = [text for _, text in _CONTENT.findall(joined)]
    text = contents[0] if contents else joined
    if schema is None:
        # A cleaning request gets the whole content, any other request its first words.
        return text if "Write it again" in joined else " ".join(text.split()[:20]) or "nothing"
    return json.dumps(value_for_schema(schema, schema, text), ensure_ascii=False)


def value_for_schema(schema: Any, root: Mapping[str, Any], text: str, depth: int = 0) -> Any:
    """Return a value that fits the types, enums, bounds and references of a schema."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    if "$ref" in schema:
        found: Any = root
        for name in str(schema["$ref"]).removeprefix("#/").split("/"):
            found = found.get(name, {}) if isinstance(found, Mapping) else {}
        return value_for_schema(found, root, text, depth + 1)
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    for name in ("anyOf", "oneOf", "allOf"):
        if schema.get(name):
            return value_for_schema(schema[name][0], root, text, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string" if "pattern" in schema else "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: value_for_schema(one, root, text, depth + 1) for name, one in properties.items()}
    if kind == "array":
        return [value_for_schema(schema.get("items", {}), root, text, depth + 1)] * max(
            1, int(schema.get("minItems", 1))
        )
    return _scalar(kind, schema, text)


def _scalar(kind: str, schema: Mapping[str, Any], text: str) -> object:
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return min(least, schema["maximum"]) if "maximum" in schema else least
    if kind == "string":
        if schema.get("format") == "uri":
            return "https://example.com/"
        # A line of the content, because some values must be copied from it.
        line = next((one.strip() for one in text.splitlines() if one.strip()), "text")
        line = line.ljust(int(schema.get("minLength", 0)), "x")
        return line[: int(schema["maxLength"])] if "maxLength" in schema else line
    return _SCALARS.get(kind)
