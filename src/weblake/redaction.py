"""Removes the API key, and the secrets among settings for deltalake, pyiceberg and fsspec, from texts.

Errors of these libraries may show settings, and services and catalogs may return what they were sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

#: Characters; the beginning of a secret with at least this length is removed from a text.
MIN_PREFIX = 8
_SECRET_NAME = re.compile(
    r"secret|passw|passphrase|credential|authorization|private|signature|token$|(access|account|api|sas)[-_.]?key$"
    r"|service[-_.]account[-_.]key|connection[-_.]string",
    re.IGNORECASE,
)
#: The beginning of a URL. Connection strings and key files contain URLs, too.
_URL = re.compile(r"[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
#: Values that are no secrets, whatever their names say: masked, they would disappear from every line of a log.
_NO_SECRET = re.compile(r"(true|false|none|null|[\d.]*)", re.IGNORECASE)


def secrets_in(settings: Mapping[str, object]) -> Iterator[str]:
    """Yield the secrets among settings of storage and catalogs, each as a whole, and its parts if it has some."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
            continue
        text = str(value)
        if _URL.match(text):
            with suppress(ValueError):
                if password := urlsplit(text).password:
                    yield from (password, unquote(password))
        elif _SECRET_NAME.search(name) and not _NO_SECRET.fullmatch(text):
            yield text.partition(":")[2] or text if name == "credential" else text  # a credential is id:secret
            yield from secrets_in(_parts(text))


def _parts(secret: str) -> Mapping[str, object]:
    """Return the fields of a secret that has some: the key file of a service account, or a connection string.

    An error may show one of them alone.
    """
    with suppress(ValueError):
        found = json.loads(secret)
        return found if isinstance(found, Mapping) else {}
    fields = (part.partition("=") for part in secret.split(";"))
    return {name: value for name, _, value in fields if value}


def redact(text: str, secret: str) -> str:
    """Return the text with each occurrence of a secret as `***`: plain, percent-encoded or truncated.

    Texts may end within a secret: a message has only the first 300 characters of an error of a library.
    """
    prefix = "".join(f"(?:{_forms_of(one)})" for one in secret[:MIN_PREFIX])
    shown, end = [], 0
    for found in re.finditer(prefix, text) if secret else ():
        if found.start() < end:
            continue
        shown.append(text[end : found.start()])
        end = found.end()
        for one in secret[MIN_PREFIX:]:  # "%" alone is where the text was truncated
            more = re.compile(f"{_forms_of(one)}|%").match(text, end)
            if more is None:
                break
            end = more.end()
    return "***".join([*shown, text[end:]])


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with `redact` applied for each secret, except short ones, which could be words."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = redact(text, secret) if len(secret) > MIN_PREFIX else text
    return text


def _forms_of(character: str) -> str:
    """Return a pattern for a character, plain or percent-encoded."""
    encoded = "".join(f"%{byte:02x}" for byte in character.encode(errors="replace"))
    return f"{re.escape(character)}|(?i:{encoded})"
