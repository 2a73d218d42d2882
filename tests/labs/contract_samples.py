"""Reads the packaged contract and generates values from it."""

import json
import re
from collections.abc import Callable
from typing import Any

import contract_validation
import jsonschema

Schema = dict[str, Any]
JOB = "01234567-89ab-cdef-0123-456789abcdef"
DOCUMENT: Schema = contract_validation.load()
_CHECKS: dict[tuple[int, bool], tuple[Schema, jsonschema.Draft202012Validator]] = {}


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def inline(schema: Schema) -> Schema:
    """Return the schema with every reference resolved and `allOf` merged into one object."""
    if "$ref" in schema:
        target: Any = DOCUMENT
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        return inline(target)
    if "allOf" in schema:
        parts = [inline(part) for part in schema["allOf"]]
        properties = {name: one for part in parts for name, one in part["properties"].items()}
        return {
            "type": "object",
            "properties": properties,
            "required": [name for part in parts for name in part.get("required", [])],
        }
    out = dict(schema)
    if "properties" in out:
        out["properties"] = {name: inline(one) for name, one in out["properties"].items()}
    if isinstance(out.get("items"), dict):
        out["items"] = inline(out["items"])
    for word in ("anyOf", "oneOf"):
        if word in out and all("required" not in one or "type" in one or "$ref" in one for one in out[word]):
            out["anyOf"] = [inline(one) for one in out.pop(word)]
    return out


def strict(schema: Schema) -> Schema:
    """Return the schema without additional properties for objects that list theirs: only documented names are valid."""
    out = dict(schema)
    if "properties" in out:
        out["properties"] = {name: strict(one) for name, one in out["properties"].items()}
        out.setdefault("additionalProperties", False)
    if isinstance(out.get("items"), dict):
        out["items"] = strict(out["items"])
    if "anyOf" in out:
        out["anyOf"] = [strict(one) for one in out["anyOf"]]
    return out


def valid(schema: Schema, value: object) -> bool:
    """Return whether a value may be sent."""
    if id(schema) not in _CHECKS:
        _CHECKS[id(schema)] = (schema, jsonschema.Draft202012Validator(strict(schema), format_checker=FORMATS))
    return bool(_CHECKS[id(schema)][1].is_valid(value))


FORMATS = jsonschema.FormatChecker(formats=["uuid"])


@FORMATS.checks("uri")
def _is_web_address(value: object) -> bool:
    """Return whether this is a URL by contract/facts.md section 3: http, https, or a host without a scheme."""
    return not isinstance(value, str) or bool(re.match(r"(https?://)?[^\s:/]+([/?]|$)", value))


def samples(schema: Schema) -> list[Any]:
    """Return valid values: every choice, boundary and branch, every property alone, and all of them together."""
    if "const" in schema:
        return [schema["const"]]
    if "enum" in schema:
        return list(schema["enum"])
    if "anyOf" in schema:
        return [one for branch in schema["anyOf"] for one in samples(branch)]
    kind = schema.get("type")
    if isinstance(kind, list):
        return [one for each in kind for one in samples({**schema, "type": each})]
    return SAMPLERS[kind](schema)


def _objects(schema: Schema) -> list[Any]:
    known = schema.get("properties", {})
    if not known:
        texts = schema.get("additionalProperties", {})
        return (
            [{"X-Kept_as-It-is": "text"}]
            if texts == {"type": "string"}
            else [{"snake_key": 1, "camelKey": {"a_b": [None]}}]
        )
    if "oneOf" in schema:
        (first,), (second,) = (one["required"] for one in schema["oneOf"])
        bodies = [{**schema, "oneOf": None, "required": [name]} for name in (first, second)]
        for body, other in zip(bodies, (second, first), strict=True):
            del body["oneOf"]
            body["properties"] = {name: one for name, one in known.items() if name != other}
        return [one for body in bodies for one in _objects(body)]
    least = {name: samples(known[name])[0] for name in schema.get("required", [])}
    alone = [{**least, name: one} for name, part in known.items() for one in samples(part)]
    return [least, *alone, {name: samples(part)[-1] for name, part in known.items()}]


def _numbers(schema: Schema) -> list[Any]:
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        return [schema["exclusiveMinimum"] + 0.25]
    some = {low, high} - {None} or {7}
    return sorted(some | {(low or 0) + 1} if high is None or (low or 0) < high else some)


def _texts(schema: Schema) -> list[Any]:
    if "format" in schema:
        return [
            {"uri": "https://example.com/a?b=c", "uuid": JOB, "date-time": "2026-11-21T10:00:00Z"}[schema["format"]]
        ]
    low, high = schema.get("minLength"), schema.get("maxLength")
    return ["x" * size for size in {low or 4, high} if size is not None]


def _lists(schema: Schema) -> list[Any]:
    filled = [[one] for one in samples(schema["items"])] if schema.get("maxItems") != 0 else []
    return filled if schema.get("minItems") else [[], *filled]


SAMPLERS: dict[Any, Callable[[Schema], list[Any]]] = {
    "object": _objects,
    "integer": _numbers,
    "number": _numbers,
    "string": _texts,
    "boolean": lambda _: [True, False],
    "null": lambda _: [None],
    "array": _lists,
    None: lambda _: [{"anyKey": [1, "two", None]}, "text", 3],
}


def near_misses(schema: Schema) -> list[Any]:
    """Return values near the valid ones; the contract decides which of them are valid."""
    near: list[Any] = [None, True, 5, -1, 1.5, "no-such-word", [], {}, ["no-such-word"], [5], {"noSuchKey": 1}]
    for branch in schema.get("anyOf", [schema]):
        near += [schema.get("minimum", 0) - 1, schema.get("exclusiveMinimum", 0), schema.get("maximum", 0) + 1]
        near += ["x" * (schema.get("maxLength", 0) + 1), "", "ftp://example.com/", "not-a-uuid"]
        if "items" in branch:
            near += [[one] for one in near_misses(branch["items"])]
        if branch.get("properties"):
            least, *_, whole = samples(branch)
            for name, part in branch["properties"].items():
                if "const" not in part:
                    near += [{**least, name: one} for one in near_misses(part)]
            near += [{**whole, "noSuchKey": 1}, *({k: v for k, v in whole.items() if k != gone} for gone in whole)]
    return near


def to_snake_names(schema: Schema, value: Any) -> Any:
    """Return the value with documented names in snake_case; free objects are unchanged."""
    if isinstance(value, list):
        return [to_snake_names(schema.get("items", {}), one) for one in value]
    if not isinstance(value, dict):
        return value
    branches = [one for one in schema.get("anyOf", [schema]) if one.get("properties")]
    tagged = [one for one in branches if valid(one["properties"].get("type", {}), value.get("type"))]
    known = {name: part for one in tagged or branches for name, part in one["properties"].items()}
    return {snake(name) if known else name: to_snake_names(known.get(name, {}), one) for name, one in value.items()}


def apply_prose_rules(body: dict[str, Any]) -> dict[str, Any]:
    """Apply the rules that the contract states in prose only: options that need or exclude another one."""
    body = json.loads(json.dumps(body))
    if "excludeDomains" in body:
        body.pop("includeDomains", None)
    if body.get("zeroDataRetention") and body.get("onlyCleanContent"):
        del body["onlyCleanContent"]
    for part in (body, body.get("scrapeOptions", {})):
        formats = part.get("formats", [])
        kinds = [one.get("type") if isinstance(one, dict) else one for one in formats]
        if "changeTracking" in kinds:
            formats.append("markdown")
        for one in formats:
            if one == {"type": "json"}:
                one["prompt"] = "what"
    return body


def agent_webhook(schema: Schema) -> Schema:
    """Return the schema that the contract describes in prose only: Webhook with other events."""
    webhook = inline({"$ref": "#/components/schemas/Webhook"})
    words = re.findall(r"\w+", schema["description"].partition("events ")[2])
    webhook["anyOf"][1]["properties"]["events"]["items"] = {"type": "string", "enum": words}
    return webhook
