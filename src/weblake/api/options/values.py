"""Checks of single values that a range cannot express: URLs, ids, files, free JSON.

A function named `…_problem` returns the problem as the end of a sentence, or None. A function named after a value
returns the checked value or raises.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from urllib.parse import urlsplit

from weblake.errors import InvalidOption

#: Maximum bytes of a file that is parsed.
MAX_FILE_BYTES = 50 << 20
EXTENSIONS = (".html", ".htm", ".pdf", ".docx", ".doc", ".odt", ".rtf", ".xlsx", ".xls")
#: Maximum nesting of free JSON; deeper JSON is a mistake and would exhaust the stack of parsers.
MAX_DEPTH = 100

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SESSION = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?!\d+(?:[/?#]|$))")
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_INVALID_IN_HOST = re.compile(r"[\s<>\"{}|\\^`]")
_USER_INFO = re.compile(r"//[^/@]*@")
#: The form of most URLs, which needs no further check: a batch may have a hundred thousand URLs.
_USUAL_URL = re.compile(r"https?://(?:[a-z0-9-]{1,60}\.){1,8}[a-z]{2,20}(?:[/?#][!-~]*)?")


def url_problem(text: str) -> str | None:
    """Return why a text is not the URL of a page, or None; permitted are http, https, or a host without a scheme."""
    if _USUAL_URL.fullmatch(text):
        return None
    if not text.strip():
        return "is empty"
    if _CONTROL_CHARACTERS.search(text) or text != text.strip():
        return "holds a control character, or begins or ends with a space"
    scheme = _SCHEME.match(text)
    if scheme and scheme[1].lower() not in ("http", "https"):
        return f"has the scheme {scheme[1][:20]!r}; only http and https are scraped"
    rest = text[scheme.end() :] if scheme else f"//{text}"
    try:
        parts = urlsplit(f"http:{rest}")
        host = parts.hostname if rest.startswith("//") and parts.port != 0 else None
    except ValueError:
        return "cannot be read as a URL"
    if not host or not re.search(r"\w", host) or _INVALID_IN_HOST.search(parts.netloc):
        return "names no host"
    # Without a scheme these are an e-mail address, or a scheme with characters that resemble http.
    if not scheme and ("@" in parts.netloc or parts.netloc.endswith(":")):
        return "names no host"
    return None


def uuid_problem(text: str) -> str | None:
    """Return why a text is not a UUID in the usual form, or None."""
    return None if _UUID.fullmatch(text) else "is not a UUID such as 01234567-89ab-cdef-0123-456789abcdef"


def text_problem(text: str) -> str | None:
    """Return why a text cannot be encoded as JSON, or None."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which is not a character"
    return None


def job_id(value: object, name: str = "job_id") -> str:
    """Return the id of a job or a scrape, checked for use in a path.

    Raises:
        InvalidOption: The value is not a UUID.
    """
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value
    raise InvalidOption(
        f"`{name}` is {quote_value(value)}, not a UUID.", hint="Take the id of the job or the scrape from its response."
    )


def session_id(value: object) -> str:
    """Return the id of a browser session, checked for use in a path.

    Raises:
        InvalidOption: The value is not 1 to 128 letters, digits, `_` and `-`.
    """
    if isinstance(value, str) and _SESSION.fullmatch(value):
        return value
    raise InvalidOption(
        f"`session_id` is {quote_value(value)}, not 1 to 128 letters, digits, `_` and `-`.",
        hint="Take the id from create_browser or list_browsers.",
    )


def file_name(name: str, size: int) -> str:
    """Return the name, without directories, of a file that can be parsed.

    Raises:
        InvalidOption: The extension is not one of the nine documented ones, or the file has more than 50 MB.
    """
    bare = PurePath(name.replace("\\", "/")).name
    if PurePath(bare.lower()).suffix not in EXTENSIONS:
        raise InvalidOption(
            f"`file` is named {quote_value(bare)}, and such files are not parsed.",
            hint=f"Files that are parsed end in {', '.join(EXTENSIONS)}; name the kind with `filename`.",
        )
    if text_problem(bare) or _CONTROL_CHARACTERS.search(bare):
        raise InvalidOption(f"`file` is named {quote_value(bare)}, which no form can carry.", hint="Give a `filename`.")
    if size > MAX_FILE_BYTES:
        raise InvalidOption(
            f"`file` has {size} bytes, and at most {MAX_FILE_BYTES} (50 MB) are parsed.", hint="Split the file."
        )
    return bare


def value_of_text(text: str) -> object:
    """Return the value that a text has as JSON, or as Python writes it; the text itself if it has none."""
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(text.strip())
    return text


def quote_value(value: object) -> str:
    """Return a value for a message: short, on one line, and without the user, query and fragment of a URL."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(int(value)) if value.bit_length() <= 64 else "a giant integer"
    if isinstance(value, str):
        bare = re.split(r"[?#]", _USER_INFO.sub("//", value), maxsplit=1)[0] if "://" in value else value
        return ascii(bare) if len(bare) <= 80 else ascii(bare[:79]) + "…"
    return kind(value)


def kind(value: object) -> str:
    """Return the type of a value in words, without the value, which may be secret."""
    if value is None or isinstance(value, bool):
        return repr(value)
    words = {"str": "a text", "int": "an integer", "float": "a number", "dict": "an object", "list": "a list"}
    name = type(value).__name__
    return words.get(name, f"a {name}")


def free_json(value: object, path: str, depth: int = 0, *, received: bool = False) -> object:
    """Return the value as plain dicts, lists and scalars; names in it are unchanged.

    A very large integer that was `received` becomes the nearest float, as in most JSON parsers.

    Raises:
        InvalidOption: The value cannot be encoded as JSON.
    """
    if depth > MAX_DEPTH:
        raise InvalidOption(f"`{path[:80]}…` is nested more than {MAX_DEPTH} deep.")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or text_problem(key):
                raise InvalidOption(f"`{path}` has the key {quote_value(key)}, and a JSON key is a text.")
        return {key: free_json(item, f"{path}.{key}", depth + 1, received=received) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [free_json(item, f"{path}[{at}]", depth + 1, received=received) for at, item in enumerate(value)]
    if received and isinstance(value, int) and 64 < value.bit_length() < 1024:
        return float(value)
    return _scalar(value, path)


def _scalar(value: object, path: str) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if problem := text_problem(value):
            raise InvalidOption(f"`{path}` {problem}.")
        return str.__str__(value)
    if isinstance(value, int) and value.bit_length() <= 64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    raise InvalidOption(f"`{path}` is {quote_value(value)}, which JSON cannot carry.")
