"""Tests of the models against the packaged contract: every response property arrives under its snake_case name."""

import inspect
from typing import Any

import contract_samples as it
import pytest

from weblake.api import models, operations
from weblake.api.models import Model

Schema = dict[str, Any]
IDS = {"job_id": it.JOB, "session_id": "session"}
#: Options of a running crawl that stay as the service sent them.
AS_SENT = {"formats", "actions", "parsers", "redact_pii"}
#: The name that the governing text gives, and the one that some services send.
OTHER_NAMES = {"total_credits": "credits_used", "total_tokens": "tokens_used"}


def _call(entry: Schema) -> Any:
    given = {"parse_file": {"file": b"%PDF", "filename": "a.pdf"}, "interact": {"code": "1", "job_id": it.JOB}}
    least = {"url": "x", "urls": ["x"], "query": "q", "prompt": "p", "code": "c", **IDS}
    name = it.snake(entry["operationId"])
    build = getattr(operations, name)
    wanted = [key for key, one in inspect.signature(build).parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    return build(**given.get(name) or {key: least[key] for key in wanted if key in least})


METHODS = [entry for methods in it.DOCUMENT["paths"].values() for entry in methods.values()]
HOOKS = [methods["post"] for methods in it.DOCUMENT["webhooks"].values()]


def _schema(content: Schema) -> Schema:
    schema: Schema = content["content"]["application/json"]["schema"]
    return schema


RESPONSES = [
    *((entry["operationId"], _schema(entry["responses"]["200"]), _call(entry).decode) for entry in METHODS),
    *((entry["operationId"], _schema(entry["requestBody"]), models.WebhookEvent.decode) for entry in HOOKS),
    ("ErrorBody", {"$ref": "#/components/schemas/ErrorBody"}, models.ErrorBody.decode),
]
NAMES = [name for name, _, _ in RESPONSES]


def compare(view: Model, schema: Schema, wire: Schema) -> None:
    """The view has each property of the response, under its snake_case name and equal; nothing is left over."""
    assert view.raw == wire
    known = {name: part for one in schema.get("anyOf", [schema]) for name, part in one.get("properties", {}).items()}
    for name, value in wire.items():
        attribute = it.snake(name)
        if name not in known:
            assert view.extra[name] == value
            continue
        got = getattr(view, attribute)
        if value == [] and not isinstance(got, list):
            assert got in (None, []), name  # a text that came as an empty list
            continue
        if known[name].get("items") == {}:
            assert got or view.extra.get(name, []) == value, (
                name
            )  # entries of any kind: those that are documents are read
            continue
        assert name not in view.extra, name
        same(got, known[name], value, attribute)


def same(got: object, part: Schema, value: Any, name: str) -> None:
    if isinstance(got, Model):
        compare(got, part, value)
    elif isinstance(got, list) and got and isinstance(got[0], Model):
        assert len(got) == len(value)
        for view, one in zip(got, value, strict=True):
            compare(view, part["items"], one)
    elif isinstance(value, list) and isinstance(got, str):
        assert got == value[0]
    elif value is None:
        assert got in (None, [], {}) or (isinstance(got, Model) and got.raw is None)
    else:
        assert got == value, name
        listed = part.get("items", part)
        typed = any(one.get("properties") for one in listed.get("anyOf", [listed]))
        assert not typed or not value or name in AS_SENT, f"{name} has documented fields and no view"


@pytest.mark.parametrize(("name", "schema", "decode"), RESPONSES, ids=NAMES)
def test_every_property_arrives(name: str, schema: Schema, decode: Any) -> None:
    schema = it.inline(schema)
    responses = it.samples(schema)
    assert {key for response in responses for key in response} >= set(schema["properties"])
    for response in responses:
        compare(decode(response), schema, response)


@pytest.mark.parametrize(("name", "schema", "decode"), RESPONSES, ids=NAMES)
def test_a_value_of_the_wrong_type_is_kept_in_extra(name: str, schema: Schema, decode: Any) -> None:
    """Top-level fields, and those of the first entry below them, with each value that the contract does not allow."""
    schema = it.inline(schema)
    for key, part in schema["properties"].items():
        for odd in (None, True, 5, 1.5, "text", [], [5], ["text"], {}, {"odd": 1}, [{"odd": 1}, 7]):
            view = decode({key: odd, "unknown key": odd})
            got = getattr(view, it.snake(key))
            assert view.extra["unknown key"] == odd
            assert view.raw == {key: odd, "unknown key": odd}
            if key in view.extra:
                assert view.extra[key] == odd
                empty = got in (None, [], {}) or (isinstance(got, Model) and got.raw is None)
                assert empty or isinstance(got, list)
            elif odd is not None and not isinstance(got, Model | list):
                assert got == odd or got == 5, (key, odd, got)
            if it.valid(part, odd) and odd not in ([], None) and not isinstance(odd, dict | list):
                assert key not in view.extra, (key, odd)


@pytest.mark.parametrize(("total", "other"), OTHER_NAMES.items())
def test_usage_under_the_name_that_some_services_send(total: str, other: str) -> None:
    camel = {"total_credits": ("totalCredits", "creditsUsed"), "total_tokens": ("totalTokens", "tokensUsed")}[total]
    assert getattr(models.UsagePeriod.decode({camel[1]: 7}), total) == 7
    assert getattr(models.UsagePeriod.decode({camel[0]: 3, camel[1]: 7}), total) == 3
    assert getattr(models.UsagePeriod.decode({camel[0]: "3", camel[1]: 7}), total) == 7
    assert getattr(models.UsagePeriod.decode({camel[0]: 0, camel[1]: 7}), total) == 0
    assert getattr(models.UsagePeriod.decode({}), total) is None
