"""The interface of a language model: messages in, one text out. `openai_endpoint.OpenAIEndpoint` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from weblake_service.page_failure import PageFailure


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """The response of a model."""

    text: str
    #: Input and output tokens that the endpoint counted; 0 if it does not report them.
    tokens_in: int = 0
    tokens_out: int = 0
    #: Whether the response was truncated at the model's own limit.
    cut: bool = False


class Model(Protocol):
    """A language model."""

    @property
    def page_chars(self) -> int:
        """Return the maximum characters of a page that the model is given."""

    @property
    def clean_chars(self) -> int:
        """Return the maximum characters that the model can be asked to rewrite."""

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, object] | None = None) -> Completion:
        """Return the model's response; the caller sets the timeout, with `asyncio.timeout`.

        Args:
            messages: The conversation, in order.
            schema: A JSON Schema of the response, as a hint for endpoints that support it; the caller validates
                the response.

        Raises:
            ModelFailure: There is no response. The message names the setting to check.
        """


class ModelFailure(PageFailure):
    """The model returned no usable response; the message omits the endpoint's text, which may repeat the key."""

    def __init__(self, code: str, message: str, *, status: int = 502) -> None:
        super().__init__(code, message, status=status)


#: Error codes of model failures; `FEATURE_NOT_CONFIGURED` and `SCRAPE_TIMEOUT` are the contract's.
UNAVAILABLE, RATE_LIMITED = "LLM_UNAVAILABLE", "LLM_RATE_LIMITED"
REFUSED, BAD_REPLY, INVALID_JSON = "LLM_REFUSED", "LLM_BAD_REPLY", "LLM_INVALID_JSON"
