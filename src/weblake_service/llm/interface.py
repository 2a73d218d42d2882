"""The interface of a language model: messages in, one text out. `openai_endpoint.OpenAIEndpoint` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from weblake_service.page_failure import PageFailure


@dataclass(frozen=True, slots=True)
class Message:
    """One message to a model."""

    role: Literal["system", "user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model answered."""

    text: str
    #: Tokens that the endpoint counted: what it was given, and what it wrote; 0 where it does not say.
    tokens_in: int = 0
    tokens_out: int = 0
    #: Whether the model stopped at its own limit, so that the end is missing.
    cut: bool = False


class Model(Protocol):
    """A language model."""

    @property
    def page_chars(self) -> int:
        """Characters of a page that it is given at most."""

    @property
    def clean_chars(self) -> int:
        """Characters that it can be asked to write again at most."""

    async def complete(self, messages: Sequence[Message], schema: Mapping[str, object] | None = None) -> Completion:
        """Answer; the caller bounds the time, with `asyncio.timeout`.

        Args:
            messages: What is said, in order.
            schema: A JSON Schema of the answer, as a hint to endpoints that can use it; the caller checks the answer.

        Raises:
            ModelFailure: There is no answer. The message names the setting to look at.
        """


class ModelFailure(PageFailure):
    """A model was needed and gave nothing of use; the message holds no word of the endpoint, which may know the key."""

    def __init__(self, code: str, message: str, *, status: int = 502) -> None:
        super().__init__(code, message, status=status)


#: Codes of what goes wrong with a model; `FEATURE_NOT_CONFIGURED` and `SCRAPE_TIMEOUT` are the contract's.
UNAVAILABLE, RATE_LIMITED = "LLM_UNAVAILABLE", "LLM_RATE_LIMITED"
REFUSED, BAD_REPLY, INVALID_JSON = "LLM_REFUSED", "LLM_BAD_REPLY", "LLM_INVALID_JSON"
