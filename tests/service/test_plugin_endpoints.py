"""The webhook receiver and the endpoint of the pytest plugin, called directly: planned responses and records."""

from __future__ import annotations

import json
import threading
import time
from functools import cache
from typing import Any

import httpx
import pytest

from weblake.api import webhooks
from weblake.testing.llm import WeblakeLlm
from weblake.testing.llm_answers import value_for_schema
from weblake.testing.loopback import LoopbackResponse, LoopbackServer
from weblake.testing.webhooks import WeblakeWebhooks

BODY = json.dumps({"type": "crawl.page", "id": "j", "webhookId": "w", "success": True, "data": [1]}).encode()


@cache
def client() -> httpx.Client:
    """Return one client for all tests: each takes 30 ms to be made."""
    return httpx.Client(timeout=60)


def deliver(receiver: WeblakeWebhooks, body: bytes = BODY, signature: str | None = None) -> int:
    headers = {} if signature is None else {webhooks.SIGNATURE_HEADER: signature}
    return client().post(receiver.url, content=body, headers=headers).status_code


def test_planned_responses_to_webhooks_come_in_order_and_an_unlimited_one_gives_way() -> None:
    with WeblakeWebhooks() as receiver:
        receiver.answer(500, times=2)
        receiver.answer(503)
        assert [deliver(receiver) for _ in range(4)] == [500, 500, 503, 503]
        receiver.answer(404, times=1)
        assert [deliver(receiver) for _ in range(2)] == [404, 204]
        receiver.refuse(times=1)
        with pytest.raises(httpx.HTTPError):
            deliver(receiver)
        receiver.delay(0.1, times=1)
        begun = time.monotonic()
        assert deliver(receiver) == 204
        assert time.monotonic() - begun >= 0.1
        receiver.answer(500)
        receiver.accept()
        assert deliver(receiver) == 204
        assert [each.answered for each in receiver.deliveries] == [500, 500, 503, 503, 404, 204, None, 204, 204]
        receiver.clear()
        assert receiver.deliveries == []


def test_a_delivery_is_recorded_with_its_signature_and_waited_for() -> None:
    with WeblakeWebhooks("secret") as receiver:
        for signature in (None, webhooks.sign("other", BODY), webhooks.sign("secret", BODY)):
            deliver(receiver, signature=signature)
        deliver(receiver, b"no JSON")
        deliver(receiver, b"[]")
        assert [each.verified for each in receiver.deliveries] == [False, False, True, False, False]
        found = receiver.wait("page", job="j", count=3, timeout=0)
        assert (found.type, found.webhook_id, found.success, found.data) == ("crawl.page", "w", True, [1])
        assert found is receiver.deliveries[2]
        assert receiver.wait("crawl.page", timeout=0) is receiver.deliveries[0]
        for given in ({"event": "completed"}, {"job": "k"}, {"count": 6}):
            with pytest.raises(AssertionError, match=r"What came: crawl\.page"):
                receiver.wait(timeout=0, **given)  # type: ignore[arg-type]
    with WeblakeWebhooks(None) as receiver:
        deliver(receiver, signature=webhooks.sign("secret", BODY))
        assert not receiver.deliveries[0].verified


def ask(llm: WeblakeLlm, text: str = "Hello", key: str | None = None, **more: Any) -> httpx.Response:
    body = {"model": llm.model, "messages": [{"role": "user", "content": text}], **more}
    headers = {"authorization": f"Bearer {key or llm.key}"}
    return client().post(f"{llm.url}/chat/completions", json=body, headers=headers)


def content(response: httpx.Response) -> str:
    return str(response.json()["choices"][0]["message"]["content"])


def test_scripted_responses_of_the_endpoint_come_in_order_for_the_requests_that_they_name() -> None:
    with WeblakeLlm() as llm:
        llm.say("for tides", where="tide.*", times=None)
        llm.say({"a": "ä"})
        llm.say(lambda request: request.text.upper(), cut=True)
        llm.fail(429, retry_after=3)
        llm.fail(200, body="odd")
        llm.drop()
        assert content(ask(llm, "low tide")) == "for tides"
        assert content(ask(llm)) == '{"a": "ä"}'
        cut = ask(llm)
        assert (content(cut), cut.json()["choices"][0]["finish_reason"]) == ("HELLO", "length")
        failed = ask(llm)
        assert (failed.status_code, failed.headers["retry-after"]) == (429, "3")
        assert ask(llm).text == "odd"
        with pytest.raises(httpx.HTTPError):
            ask(llm)
        assert content(ask(llm, "high\ntide")) == "for tides"
        llm.stall(0.1)
        begun = time.monotonic()
        assert content(ask(llm)) == "Hello"
        assert time.monotonic() - begun >= 0.1
        assert [each.answered for each in llm.requests] == [200, 200, 200, 429, 200, None, 200, 200]
        llm.clear()
        assert (llm.requests, content(ask(llm, "low tide"))) == ([], "low tide")


def test_the_endpoint_refuses_another_key_model_or_address() -> None:
    with WeblakeLlm() as llm:
        assert llm.config() == {"llm_base_url": llm.url, "llm_api_key": llm.key, "llm_model": llm.model}
        assert ask(llm, key="other").status_code == 401
        assert ask(llm, model="other").status_code == 404
        assert ask(llm, messages=[]).status_code == 400
        assert client().post(f"{llm.url}/models", content=b"?").status_code == 404
        assert [each.answered for each in llm.requests] == [401, 404, 400, 404]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": 3}}}, 3),
        ({"default": "d"}, "d"),
        ({"enum": ["x", "y"]}, "x"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"type": ["boolean", "null"]}, True),
        ({"properties": {"a": {"type": "integer", "minimum": 5}, "b": {"type": "string"}}}, {"a": 5, "b": "a line"}),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array"}, [{}]),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "number", "minimum": 4, "maximum": 3}, 3),
        ({"type": "string", "maxLength": 3}, "a l"),
        ({"type": "string", "minLength": 8}, "a linexx"),
        ({"type": "string", "format": "uri"}, "https://example.com/"),
        ({"pattern": "x"}, "a line"),
        (7, None),
    ],
)
def test_a_default_answer_fits_its_schema(schema: Any, value: object) -> None:
    assert value_for_schema(schema, schema, "\n a line \n another") == value


def test_a_server_that_was_stopped_leaves_no_thread_and_one_that_was_not_started_can_be_stopped() -> None:
    with WeblakeLlm() as llm:
        content(ask(llm))
        thread = next(each for each in threading.enumerate() if each.name == "weblake-test-llm on loopback")
    assert not thread.is_alive()
    LoopbackServer(lambda request: LoopbackResponse()).stop()
