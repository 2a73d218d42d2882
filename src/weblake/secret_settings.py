"""Find the secrets among settings for deltalake, pyiceberg and fsspec, and remove them from texts.

Errors of these libraries may show settings, and catalogs may return what they were sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from urllib.parse import unquote, urlsplit

#: Length from which on the beginning of a secret is removed from a text; shorter ones could be words.
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


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text in which *** stands for each secret, also for one of which only the beginning is there.

    Messages have only the first 300 characters of an error of a library, which may end within a secret.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        while len(secret) > MIN_PREFIX and (at := text.find(secret[:MIN_PREFIX])) >= 0:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(text[at:], secret, strict=False))
            text = f"{text[:at]}***{text[at + sum(1 for _ in same) :]}"
    return text
