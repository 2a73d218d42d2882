"""Settings of a language model, and which of them are missing.

In Python they are the fields of `ServiceConfig` that begin with `llm_`; `weblake serve` and the in-process service read
fields that are not set from the environment, under the names below.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from urllib.parse import urlsplit

from weblake.credentials import ApiKey, is_loopback
from weblake.errors import InvalidOption
from weblake_service.config import ServiceConfig

BASE_URL, API_KEY, MODEL = "WEBLAKE_LLM_BASE_URL", "WEBLAKE_LLM_API_KEY", "WEBLAKE_LLM_MODEL"
PAGE_CHARS, CLEAN_CHARS = "WEBLAKE_LLM_PAGE_CHARS", "WEBLAKE_LLM_CLEAN_CHARS"
CONCURRENCY = "WEBLAKE_LLM_CONCURRENCY"
_TEXTS = {"llm_base_url": BASE_URL, "llm_api_key": API_KEY, "llm_model": MODEL}
_NUMBERS = {"llm_page_chars": PAGE_CHARS, "llm_clean_chars": CLEAN_CHARS, "llm_concurrency": CONCURRENCY}


def with_environment(config: ServiceConfig) -> ServiceConfig:
    """Return the configuration with unset model fields read from the environment.

    Raises:
        InvalidOption: A number in the environment is invalid.
    """
    if config.llm_base_url:
        return config
    texts = {field: os.environ.get(name, "").strip() or None for field, name in _TEXTS.items()}
    numbers = {field: _number(name) for field, name in _NUMBERS.items() if os.environ.get(name, "").strip()}
    return replace(config, **texts, **numbers)  # type: ignore[arg-type]


def missing_settings(config: ServiceConfig) -> str:
    """Return the settings that are missing for the use of a model, as part of a refusal; empty if none are."""
    if not config.llm_base_url:
        return f"a language model (weblake[llm]: set {BASE_URL})"
    if not config.llm_model:
        return f"a language model (weblake[llm]: set {MODEL})"
    return "" if _has_validator() else "the extra for language models (pip install 'weblake[llm]')"


def check(config: ServiceConfig) -> None:
    """Refuse an unusable endpoint; messages do not contain the key.

    Raises:
        InvalidOption: The base URL is not an http(s) URL, contains a password, or the key cannot be sent in a header.
    """
    key = ApiKey(config.llm_api_key or "")
    try:
        parts = urlsplit(config.llm_base_url or "")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise InvalidOption(
            f"{BASE_URL} is not the address of an endpoint: it begins with https:// or http:// and names a host.",
            hint="It usually ends in /v1, such as http://127.0.0.1:11434/v1.",
        )
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidOption(
            f"{BASE_URL} holds a user name, a password or a query.", hint=f"The key goes into {API_KEY} only."
        )
    if key:
        try:
            key.check()
        except InvalidOption:
            raise InvalidOption(
                f"{API_KEY} holds characters that no HTTP header can carry.", hint="Copy the key again, without quotes."
            ) from None


def sends_key_in_clear(config: ServiceConfig) -> bool:
    """Return whether the key is sent to another machine without TLS."""
    parts = urlsplit(config.llm_base_url or "")
    return bool(config.llm_api_key) and parts.scheme == "http" and not is_loopback(parts.hostname or "")


def _number(name: str) -> int:
    text = os.environ[name].strip()
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise InvalidOption(
            f"{name} is not a whole number above 0.", hint="Set it to a whole number above 0, or unset it."
        )
    return int(text)


@cache
def _has_validator() -> bool:
    found: Callable[[str], object] = find_spec
    return found("jsonschema_rs") is not None
