"""An OpenAI-compatible endpoint on a loopback port, whose responses are scripted by a test.

Without a script the response has the requested form and is deterministic: JSON for a schema, words of the content
otherwise. The endpoint is not a language model, and its responses have no meaning.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from weblake.testing.llm_answers import default_answer
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

KEY, MODEL = "test-llm-key", "test-model"


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """One request that the endpoint received."""

    #: The messages, each with `role` and `content`.
    messages: list[dict[str, str]]
    #: The headers by lower-case name.
    headers: Mapping[str, str]
    #: The whole decoded body.
    body: Mapping[str, Any]
    #: The status of the response, or None if the connection was closed without a response.
    answered: int | None

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "\n\n".join(one["content"] for one in self.messages)

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the requested response, or None."""
        form = self.body.get("response_format") or {}
        return (form.get("json_schema") or {}).get("schema")


@dataclass(slots=True)
class _Plan:
    respond: Callable[[LlmRequest], LoopbackResponse]
    where: re.Pattern[str] | None
    seconds: float
    #: Number of remaining requests; None for all.
    left: int | None


class WeblakeLlm:
    """The endpoint that the fixture `weblake_llm` returns."""

    def __init__(self) -> None:
        self._server = LoopbackServer(self._receive, "weblake-test-llm")
        self._lock = threading.Lock()
        self._requests: list[LlmRequest] = []
        self._plans: list[_Plan] = []

    def __repr__(self) -> str:
        return f"<WeblakeLlm {self.url}>"

    @property
    def url(self) -> str:
        """The base URL of the endpoint, for WEBLAKE_LLM_BASE_URL."""
        return f"{self._server.url}/v1"

    @property
    def key(self) -> str:
        """The API key that the endpoint accepts; others get 401."""
        return KEY

    @property
    def model(self) -> str:
        """The name of its model; others get 404."""
        return MODEL

    def config(self) -> dict[str, str]:
        """Return the fields of `ServiceConfig` that select this endpoint."""
        return {"llm_base_url": self.url, "llm_api_key": KEY, "llm_model": MODEL}

    def environment(self) -> dict[str, str]:
        """Return the variables for a service process: WEBLAKE_LLM_BASE_URL, WEBLAKE_LLM_API_KEY, WEBLAKE_LLM_MODEL."""
        return {"WEBLAKE_LLM_BASE_URL": self.url, "WEBLAKE_LLM_API_KEY": KEY, "WEBLAKE_LLM_MODEL": MODEL}

    @property
    def requests(self) -> list[LlmRequest]:
        """The requests of this test, in order."""
        with self._lock:
            return list(self._requests)

    def say(self, answer: object, *, where: str | None = None, times: int | None = 1, cut: bool = False) -> None:
        """Respond to the next requests with this content: a text unchanged, any other value as JSON.

        Args:
            answer: The content, or a function of the request (see `LlmRequest`) that returns it.
            where: A regular expression, searched in the text of all messages; None for any request.
            times: The number of requests; None for all.
            cut: Whether the response says that the model stopped at its output limit.
        """

        def respond(request: LlmRequest) -> LoopbackResponse:
            content = answer(request) if callable(answer) else answer
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            return _completion(text, cut=cut)

        self._plan(respond, where, times)

    def fail(
        self,
        status: int = 500,
        *,
        body: str = '{"error": {"message": "It failed."}}',
        retry_after: float | None = None,
        where: str | None = None,
        times: int | None = 1,
    ) -> None:
        """Respond to the next requests with an error; with status 200, with `body` instead of a completion."""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        response = LoopbackResponse(status, body.encode(), {"Content-Type": "application/json", **headers})
        self._plan(lambda _: response, where, times)

    def drop(self, *, where: str | None = None, times: int | None = 1) -> None:
        """Close the connection of the next requests without a response."""
        self._plan(lambda _: LoopbackResponse(drop=True), where, times)

    def stall(self, seconds: float = 3600.0, *, where: str | None = None, times: int | None = 1) -> None:
        """Delay the responses to the next requests by `seconds`, at most until the end of the test."""
        self._plan(default, where, times, seconds)

    def clear(self) -> None:
        """Remove all scripts and recorded requests."""
        with self._lock:
            self._plans.clear()
            self._requests.clear()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def _plan(
        self,
        respond: Callable[[LlmRequest], LoopbackResponse],
        where: str | None,
        times: int | None,
        seconds: float = 0.0,
    ) -> None:
        with self._lock:
            self._plans.append(_Plan(respond, re.compile(where, re.DOTALL) if where else None, seconds, times))

    def _receive(self, received: LoopbackRequest) -> LoopbackResponse:
        request = _read(received)
        refused = _refused(received, request)
        plan = None
        with self._lock:
            if refused is None:
                plan = next((one for one in self._plans if one.left != 0 and _matches(one, request)), None)
            if plan is not None and plan.left is not None:
                plan.left -= 1
            place = len(self._requests)
            self._requests.append(request)
        if plan is not None and plan.seconds:
            self._server.stopping.wait(plan.seconds)
        response = refused or (plan.respond if plan is not None else default)(request)
        with self._lock:
            if place < len(self._requests):
                self._requests[place] = replace(request, answered=None if response.drop else response.status)
        return response


def default(request: LlmRequest) -> LoopbackResponse:
    """Return the response to a request without a script."""
    return _completion(default_answer(request.messages, request.schema))


def _matches(plan: _Plan, request: LlmRequest) -> bool:
    return plan.where is None or plan.where.search(request.text) is not None


def _read(received: LoopbackRequest) -> LlmRequest:
    try:
        body = json.loads(received.body)
    except ValueError:
        body = {}
    body = body if isinstance(body, dict) else {}
    return LlmRequest(body.get("messages") or [], received.headers, body, None)


def _refused(received: LoopbackRequest, request: LlmRequest) -> LoopbackResponse | None:
    if received.path != "/v1/chat/completions":
        return _error(404, f"no such address: {received.path}")
    if received.headers.get("authorization") != f"Bearer {KEY}":
        # Like real endpoints, the message contains the received key.
        return _error(401, f"Incorrect API key provided: {received.headers.get('authorization')}")
    if request.body.get("model") != MODEL:
        return _error(404, f"no such model: {request.body.get('model')}")
    return None if request.messages else _error(400, "messages are missing")


def _error(status: int, message: str) -> LoopbackResponse:
    return LoopbackResponse(
        status, json.dumps({"error": {"message": message}}).encode(), {"Content-Type": "application/json"}
    )


def _completion(text: str, *, cut: bool = False) -> LoopbackResponse:
    choice = {
        "index": 0,
        "finish_reason": "length" if cut else "stop",
        "message": {"role": "assistant", "content": text},
    }
    body = {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "model": MODEL,
        "choices": [choice],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }
    return LoopbackResponse(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
