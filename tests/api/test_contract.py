"""Tests of options and operations against the packaged contract, from which the cases are generated."""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import contract_samples as it
import pytest

from weblake.api import operations, options
from weblake.api.operation import Operation
from weblake.errors import InvalidOption

Schema = dict[str, Any]
JOB, SESSION = it.JOB, "session_1"
#: What is sent although nobody asked: services disagree on these defaults.
ALWAYS: dict[str, Schema] = {"start_batch_scrape": {"ignoreInvalidURLs": True}, "create_browser": {"ttl": 300}}
#: Request schemas whose class here has another name.
CLASSES = {"InteractRequest": options.InteractOptions, "BrowserCreateRequest": options.BrowserOptions}
PATH_NAMES = {"jobId": "job_id", "id": "job_id", "sessionId": "session_id"}


class Call:
    """One operation of the contract, callable with wire values."""

    def __init__(self, path: str, method: str, entry: Schema) -> None:
        self.path, self.method = path, method.upper()
        self.name = it.snake(entry["operationId"])
        self.build: Callable[..., Operation[Any]] = getattr(operations, self.name)
        self.parameters: list[Schema] = entry.get("parameters", [])
        self.content: Schema = entry.get("requestBody", {}).get("content", {})
        self.multipart = "multipart/form-data" in self.content
        self.reference = next((one["schema"]["$ref"] for one in self.content.values()), "").rpartition("/")[2]
        self.schema = it.inline({"$ref": f"#/components/schemas/{self.reference}"}) if self.reference else {}
        if self.multipart:
            self.reference, self.schema = "ParseOptions", self.schema["properties"]["options"]
        if self.reference == "AgentRequest":
            self.schema["properties"]["webhook"] = it.agent_webhook(self.schema["properties"]["webhook"])
        self.reply = it.inline(entry["responses"]["200"]["content"]["application/json"]["schema"])

    def __repr__(self) -> str:
        return self.name

    @property
    def cls(self) -> type:
        found = CLASSES.get(self.reference) or getattr(options, self.reference)
        assert isinstance(found, type)
        return found

    def query(self) -> dict[str, Schema]:
        return {one["name"]: one["schema"] for one in self.parameters if one["in"] == "query"}

    def call(self, body: Mapping[str, Any] = {}, **more: Any) -> Operation[Any]:
        ids = {
            PATH_NAMES[one["name"]]: SESSION if one["name"] == "sessionId" else JOB
            for one in self.parameters
            if one["in"] == "path"
        }
        if self.multipart:
            ids = {"file": b"%PDF", "filename": "a.pdf"}
        return self.build(**ids, **{it.snake(name): value for name, value in body.items()}, **more)

    def sent(self, operation: Operation[Any]) -> Any:
        request = operation.request
        if self.multipart:
            assert request.upload is not None
            return json.loads(dict(request.upload.fields).get("options", "{}"))
        return json.loads(request.body) if request.body is not None else None

    @cached_property
    def least(self) -> dict[str, Any]:
        """The smallest body that the contract allows."""
        body: dict[str, Any] = it.samples(self.schema)[0] if self.schema else {}
        return {"prompt": "what"} if self.name == "start_extract" else body


CALLS = [
    Call(path, method, entry)
    for path, methods in it.DOCUMENT["paths"].items()
    for method, entry in methods.items()
    if method in ("get", "post", "delete")
]
WITH_BODY = [call for call in CALLS if call.schema]
OPTIONS = [(call, name) for call in WITH_BODY for name in call.schema["properties"]]
QUERIES = [(call, name) for call in CALLS for name in call.query()]


def cases(call: Call, name: str) -> Iterator[dict[str, Any]]:
    """Bodies in which the option has each of its sample values."""
    part = call.schema["properties"][name]
    for value in it.samples(part):
        body = {**call.least, name: value}
        if call.name == "interact" and name == "prompt":
            del body["code"]
        yield it.apply_prose_rules(body)


def test_every_operation_is_here_and_nothing_else() -> None:
    here = {
        name
        for name, value in vars(operations).items()
        if inspect.isfunction(value) and value.__module__ == operations.__name__ and name[0] != "_"
    }
    assert {call.name for call in CALLS} == here
    assert len(CALLS) == 33


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_method_path_and_place_of_ids(call: Call) -> None:
    operation = call.call(call.least)
    expected = call.path.replace("{sessionId}", SESSION).replace("{jobId}", JOB).replace("{id}", JOB)
    assert (operation.name, operation.request.method, operation.request.path) == (call.name, call.method, expected)
    assert operation.repeatable == (call.method in ("GET", "DELETE"))
    assert operation.request.query == ()
    assert operation.request.headers == ()
    assert (operation.request.body is not None) == bool(call.schema and not call.multipart)
    for name in ("job_id", "session_id"):
        if name in inspect.signature(call.build).parameters:
            for hostile in ("", "../x", f"{JOB}/", f"{JOB}\n", "a b", "a?b", "%2e", None, 5, "x" * 129):
                with pytest.raises(InvalidOption, match=name):
                    call.build(**{name: hostile}, **call.least)


@pytest.mark.parametrize(("call", "name"), OPTIONS, ids=str)
def test_every_value_of_an_option_arrives_as_it_is_documented(call: Call, name: str) -> None:
    for body in cases(call, name):
        assert it.valid(call.schema, body), body
        expected = ALWAYS.get(call.name, {}) | body
        assert call.sent(call.call(it.to_snake_names(call.schema, body))) == expected
        # Nested names may be spelled as on the wire.
        assert call.sent(call.call(body)) == expected
        assert options.to_wire(call.cls, options.from_wire(call.cls, body)) == body


@pytest.mark.parametrize("call", WITH_BODY, ids=repr)
def test_all_options_together(call: Call) -> None:
    bodies = [it.apply_prose_rules(call.least | body) for body in it.samples(call.schema) if body] or [call.least]
    if call.name == "interact":
        bodies = it.samples(call.schema)
    sent = set()
    for body in bodies:
        got = call.sent(call.call(it.to_snake_names(call.schema, body)))
        assert got == ALWAYS.get(call.name, {}) | body
        assert it.valid(call.schema, got)
        sent |= set(got)
    assert sent == set(call.schema["properties"])


@cache
def misfits(part: str) -> list[Any]:
    """Values that a schema refuses. Several operations have the same large schemas, such as that of `formats`."""
    schema = json.loads(part)
    return [one for one in it.near_misses(schema) if not it.valid(schema, one)]


@pytest.mark.parametrize(("call", "name"), OPTIONS, ids=str)
def test_options_that_the_contract_refuses_are_refused(call: Call, name: str) -> None:
    refused = misfits(json.dumps(call.schema["properties"][name]))
    assert len(refused) > 3
    for value in refused:
        if (call.name, name, value) == ("start_extract", "urls", None):
            continue  # by position, None is the way to give none
        body = mended_least(call, name) | {name: value}
        with pytest.raises(InvalidOption) as caught:
            call.call(it.to_snake_names(call.schema, body))
        assert it.snake(name) in caught.value.message, (value, caught.value.message)
        with pytest.raises(InvalidOption) as caught:
            options.from_wire(call.cls, body)
        assert name in caught.value.message, (value, caught.value.message)


def mended_least(call: Call, name: str) -> dict[str, Any]:
    least = call.least
    return {} if call.name == "interact" and name == "prompt" else least


@pytest.mark.parametrize(("call", "name"), QUERIES, ids=str)
def test_query_parameters(call: Call, name: str) -> None:
    part = call.query()[name]
    for value in it.samples(part):
        text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
        assert call.call({name: value}).request.query == ((name, text),)
    skipped_as_absent = [None] if name in ("skip", "limit") and call.name.startswith("get_") else []
    for value in it.near_misses(part):
        if not it.valid(part, value) and value not in skipped_as_absent:
            with pytest.raises(InvalidOption, match=it.snake(name)):
                call.call({name: value})


def test_headers() -> None:
    documented = {(call.name, one["name"]) for call in CALLS for one in call.parameters if one["in"] == "header"}
    assert documented == {("start_batch_scrape", "x-idempotency-key"), ("start_crawl", "x-idempotency-key")}
    for call in CALLS:
        if call.name in ("start_batch_scrape", "start_crawl", "start_extract", "start_agent"):
            request = call.call(call.least, idempotency_key=JOB).request
            assert request.headers == (("x-idempotency-key", JOB),)
            assert request.paid
            assert request.deadline_s == 30
            with pytest.raises(InvalidOption, match="idempotency_key"):
                call.call(call.least, idempotency_key="no-uuid")


def test_limits_that_stand_outside_the_schemas() -> None:
    assert it.DOCUMENT["x-limits"]["parseFileBytes"] == options.values.MAX_FILE_BYTES
    listed = re.findall(
        r"\.[a-z]+", it.inline({"$ref": "#/components/schemas/ParseRequest"})["properties"]["file"]["description"]
    )
    assert tuple(listed) == options.values.EXTENSIONS
    assert it.DOCUMENT["openapi"].startswith("3.1")
