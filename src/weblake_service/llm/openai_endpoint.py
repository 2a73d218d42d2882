"""Client of an OpenAI-compatible endpoint (`/chat/completions`), and the language model of one service.

The package `openai` takes a second to import, and only one POST request is needed. Error messages contain no text of
the endpoint, because many 401 responses repeat the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import httpx
import msgspec

from weblake.credentials import ApiKey
from weblake_service.config import ServiceConfig
from weblake_service.fair_queue import SharedSlots
from weblake_service.llm.settings import API_KEY, BASE_URL, MODEL, PAGE_CHARS, check, missing_settings
from weblake_service.page_failure import PageFailure, not_configured
from weblake_service.responses import encode
from weblake_service.web.connection_pools import proxy_for

#: Maximum bytes of a response; this ends the response of a model that repeats itself forever.
_MAX_RESPONSE_BYTES = 4 << 20
#: Read timeout in seconds; the caller limits the whole call.
_READ_TIMEOUT_S, _CONNECT_TIMEOUT_S = 300.0, 10.0
#: Maximum attempts of a call to a busy or failing endpoint, and seconds between attempts.
_MAX_TRIES, _WAIT_S, _MAX_WAIT_S = 3, 0.5, 30.0
_NOT_CONFIGURED = "FEATURE_NOT_CONFIGURED"
#: Error codes of model failures; `FEATURE_NOT_CONFIGURED` and `SCRAPE_TIMEOUT` are the contract's.
UNAVAILABLE, RATE_LIMITED = "LLM_UNAVAILABLE", "LLM_RATE_LIMITED"
REFUSED, BAD_REPLY, INVALID_JSON = "LLM_REFUSED", "LLM_BAD_REPLY", "LLM_INVALID_JSON"
#: Response formats for JSON, the most specific first, because endpoints support different ones.
_RESPONSE_FORMATS = ("json_schema", "json_object", "")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The response of a model."""

    text: str
    #: Whether the response was truncated at the model's own limit.
    cut: bool = False


class ModelFailure(PageFailure):
    """The model returned no usable response; the message omits the endpoint's text, which may repeat the key."""

    def __init__(self, code: str, message: str, *, status: int = 502) -> None:
        super().__init__(code, message, status=status)


class _RetryableError(Exception):
    """The call can be retried; `after` is the value of Retry-After in seconds."""

    def __init__(self, failure: ModelFailure, after: float | None = None) -> None:
        self.failure = failure
        self.after = after


class OpenAIEndpoint:
    """The configured model; created on the event loop that uses it.

    Args:
        config: The fields that begin with `llm_`.
    """

    def __init__(self, config: ServiceConfig) -> None:
        self._url = httpx.URL(str(config.llm_base_url).rstrip("/") + "/chat/completions")
        self._model = config.llm_model
        self._key = ApiKey(config.llm_api_key or "")
        self.page_chars = config.llm_page_chars
        self.clean_chars = config.llm_clean_chars
        self._turns = SharedSlots(config.llm_concurrency)
        self._hint = 0
        # Proxy settings of the environment apply as for pages: never for loopback.
        self._client = httpx.AsyncClient(
            trust_env=False,
            verify=self._url.scheme == "https",  # loading certificates takes 20 ms
            proxy=proxy_for(self._url) or None,
            timeout=httpx.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S, pool=None),
        )

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, object] | None = None) -> Completion:
        """Return the response after waiting for a slot, with up to three attempts; the caller sets the timeout.

        Args:
            messages: The conversation, in order.
            schema: A JSON Schema of the response, as a hint for endpoints that support it; the caller validates
                the response.

        Raises:
            ModelFailure: There is no response. The message names the setting to check.
        """
        async with self._turns.hold():
            if schema is None:
                return await self._with_retries(messages, "", None)
            for place in range(self._hint, len(_RESPONSE_FORMATS)):
                try:
                    answer = await self._with_retries(messages, _RESPONSE_FORMATS[place], schema)
                except ModelFailure as failure:
                    if failure.code != REFUSED or not _RESPONSE_FORMATS[place]:
                        raise
                else:
                    self._hint = place
                    return answer
            raise AssertionError("the last hint is none, and its failure is raised")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _with_retries(
        self, messages: Sequence[Message], hint: str, schema: Mapping[str, object] | None
    ) -> Completion:
        for tries in range(1, _MAX_TRIES + 1):
            try:
                return await self._send_once(messages, hint, schema)
            except _RetryableError as busy:
                wait = _WAIT_S * 2 ** (tries - 1) if busy.after is None else busy.after
                if tries == _MAX_TRIES or wait > _MAX_WAIT_S:
                    raise busy.failure from None
            await asyncio.sleep(wait)
        raise AssertionError("the last try raises")

    async def _send_once(
        self, messages: Sequence[Message], hint: str, schema: Mapping[str, object] | None
    ) -> Completion:
        request: dict[str, object] = {
            "model": self._model,
            "messages": [{"role": one.role, "content": one.text} for one in messages],
        }
        if hint == "json_schema":
            request["response_format"] = {"type": hint, "json_schema": {"name": "answer", "schema": schema}}
        elif hint:
            request["response_format"] = {"type": hint}
        body = encode(request)
        headers: dict[bytes, bytes] = {b"content-type": b"application/json", b"accept-encoding": b"identity"}
        if self._key:
            headers[b"authorization"] = self._key.header()
        try:
            async with self._client.stream("POST", self._url, content=body, headers=headers) as reply:
                if reply.status_code != 200:
                    raise _failure_of_status(reply)
                return _read(await _body(reply))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise _RetryableError(
                ModelFailure(
                    UNAVAILABLE,
                    f"The language model's endpoint gave no answer ({type(error).__name__}). Look at {BASE_URL} and"
                    " whether it runs.",
                )
            ) from None


class LanguageModel:
    """Holds the configured model, if any. Created on the event loop that uses it.

    Args:
        config: The fields that begin with `llm_`.

    Raises:
        InvalidOption: The endpoint cannot be used.
    """

    def __init__(self, config: ServiceConfig) -> None:
        #: The missing settings, as part of a refusal; empty if there is a model.
        self.missing = missing_settings(config)
        if config.llm_base_url:
            check(config)
        #: The model; None if a setting is missing.
        self.model = None if self.missing else OpenAIEndpoint(config)

    def require(self, what: str) -> OpenAIEndpoint:
        """Return the model.

        Args:
            what: The feature that needs it, for the message.

        Raises:
            PageFailure: 503 with the name of the missing setting.
        """
        if self.model is None:
            raise not_configured(what, self.missing)
        return self.model

    async def aclose(self) -> None:
        """Close the model's connections."""
        if self.model is not None:
            await self.model.aclose()


def _failure_of_status(reply: httpx.Response) -> ModelFailure | _RetryableError:
    """Return the failure for a status other than 200."""
    status = reply.status_code
    said = f"The language model's endpoint answered with {status}"
    if status in (401, 403):
        return ModelFailure(_NOT_CONFIGURED, f"{said}: it does not take the key. Look at {API_KEY}.", status=503)
    if status in (404, 405) or 300 <= status < 400:
        text = f"{said}: there is no such model or address. Look at {MODEL} and {BASE_URL}."
        return ModelFailure(_NOT_CONFIGURED, text, status=503)
    if status == 429:
        text = f"{said}: too many requests, or its quota is used up. Try later, or look at the account of {API_KEY}."
        return _RetryableError(ModelFailure(RATE_LIMITED, text), _retry_after(reply.headers.get("retry-after")))
    if status >= 500 or status == 408:
        text = f"{said}. Try later, or look at {BASE_URL}."
        return _RetryableError(ModelFailure(UNAVAILABLE, text), _retry_after(reply.headers.get("retry-after")))
    text = f"{said}: it refuses the request. Look at {MODEL}, and at {PAGE_CHARS} where pages are long."
    return ModelFailure(REFUSED, text)


async def _body(reply: httpx.Response) -> bytes:
    body = bytearray()
    async for part in reply.aiter_bytes():
        body += part
        if len(body) > _MAX_RESPONSE_BYTES:
            raise _bad_response_failure(f"is longer than {_MAX_RESPONSE_BYTES} bytes")
    return bytes(body)


def _read(body: bytes) -> Completion:
    try:
        said = msgspec.json.decode(body)
        choice = said["choices"][0]
        text = choice["message"]["content"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        raise _bad_response_failure("is not a chat completion") from None
    if not isinstance(text, str):
        raise _bad_response_failure("holds no text")
    return Completion(text, cut=choice.get("finish_reason") == "length")


def _bad_response_failure(why: str) -> ModelFailure:
    return ModelFailure(BAD_REPLY, f"The reply of the language model's endpoint {why}. Look at {BASE_URL}.")


def _retry_after(header: str | None) -> float | None:
    with suppress(ValueError):
        return max(0.0, float(header)) if header else None
    return None
