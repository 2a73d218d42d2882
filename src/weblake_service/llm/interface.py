"""Messages to a language model, its responses and its failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    #: Whether the response was truncated at the model's own limit.
    cut: bool = False


class ModelFailure(PageFailure):
    """The model returned no usable response; the message omits the endpoint's text, which may repeat the key."""

    def __init__(self, code: str, message: str, *, status: int = 502) -> None:
        super().__init__(code, message, status=status)


#: Error codes of model failures; `FEATURE_NOT_CONFIGURED` and `SCRAPE_TIMEOUT` are the contract's.
UNAVAILABLE, RATE_LIMITED = "LLM_UNAVAILABLE", "LLM_RATE_LIMITED"
REFUSED, BAD_REPLY, INVALID_JSON = "LLM_REFUSED", "LLM_BAD_REPLY", "LLM_INVALID_JSON"
