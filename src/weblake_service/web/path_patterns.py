"""The includePaths and excludePaths of a crawl.

The patterns are untrusted and are matched against every link of a site, so the engine must run in linear time: RE2, as
on the public service. It has no look-around and no back-references.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import re2  # type: ignore[import-untyped]

from weblake_service.files.conversion_messages import ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page_failure import PageFailure

#: Maximum memory of one compiled pattern in bytes; a larger one is refused.
_MAX_PATTERN_BYTES = 1 << 20
#: Maximum patterns of one list, and maximum characters of one pattern.
_MAX_PATTERNS, _MAX_PATTERN_CHARS = 1000, 2000
#: Maximum instructions of all patterns of one list, into which RE2 compiles them.
_MAX_INSTRUCTIONS = 200_000
#: Steps that take some hundredths of a second: RE2 needs at most one for each instruction and each character; the call
#: of one pattern takes as long as 150 of them.
_HARMLESS_STEPS, _CALL_STEPS = 3_000_000, 150
#: Seconds for matching some texts in a converter process.
_TIMEOUT_S = 10.0
_HINTS = (
    ("invalid perl operator", "look-around is not known: use includePaths and excludePaths together"),
    ("invalid escape sequence", "escapes such as \\1 or \\Z are not known"),
    ("pattern too large", "it is too large: write it shorter, or split it in two"),
)


#: A class of characters, or characters that a URL has in escaped form.
_BEYOND_ASCII = re.compile(r"\[[^\[\]]*\]|[^\0-\x7f]+")


class PathPatterns:
    """The paths that a crawl's options allow.

    Args:
        options: Crawl options by snake_case name; include_paths and exclude_paths are read, and regex_on_full_url.

    Raises:
        PageFailure: 400; a pattern is invalid.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        self._include = _compile_all(options.get("include_paths"), "includePaths")
        self._exclude = _compile_all(options.get("exclude_paths"), "excludePaths")
        self._options: Mapping[str, Any] = options
        self._steps_per_text = _CALL_STEPS * (len(self._include) + len(self._exclude))
        self._steps_per_char = sum(pattern.programsize for pattern in (*self._include, *self._exclude))
        #: Texts that were found to be allowed in a converter process.
        self._allowed: set[str] = set()
        #: Whether the patterns are matched against the whole URL, or its path only.
        self.on_full_url = options.get("regex_on_full_url") is True

    def allows(self, text: str) -> bool:
        """Return whether no exclude pattern matches and, if there are include patterns, one of them matches."""
        if not (self._include or self._exclude):
            return True
        if text in self._allowed:
            return True
        if any(pattern.search(text) for pattern in self._exclude):
            return False
        return not self._include or any(pattern.search(text) for pattern in self._include)

    def is_costly(self, texts: Sequence[str]) -> bool:
        """Return whether matching these texts could block the event loop."""
        steps = self._steps_per_text * len(texts) + self._steps_per_char * sum(map(len, texts))
        return bool(steps > _HARMLESS_STEPS)

    async def match(self, texts: Sequence[str], converters: ConverterPool) -> set[str]:
        """Match texts in a converter process; return those that are allowed, and remember them for `allows`."""
        lists = {name: self._options.get(name) or () for name in ("include_paths", "exclude_paths")}
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                result = await converters.convert(ConversionTask("paths", options={**lists, "texts": texts}), b"")
        except TimeoutError as error:
            message = f"includePaths and excludePaths take more than {_TIMEOUT_S:g} s on {len(texts)} URLs."
            raise PageFailure("SCRAPE_TIMEOUT", f"{message} Use fewer or simpler patterns.", status=408) from error
        self._allowed.update(result.links)
        return self._allowed.intersection(texts)


def _compile_all(given: object, name: str) -> list[Any]:
    if not isinstance(given, list | tuple):
        return []
    if len(given) > _MAX_PATTERNS:
        raise _invalid_pattern(f"{name} holds {len(given)} patterns; at most {_MAX_PATTERNS} are taken.")
    compiled: list[Any] = []
    room = _MAX_INSTRUCTIONS
    for text in given:
        compiled.append(_compile(_BEYOND_ASCII.sub(_either_spelling, str(text)), name))
        room -= compiled[-1].programsize
        if room < 0:
            raise _invalid_pattern(f"{name} is too large as a whole. Use fewer or simpler patterns.")
    return compiled


def _either_spelling(found: re.Match[str]) -> str:
    """Return a pattern for characters as such and as they are escaped in a URL; in a class, only as such."""
    return found[0] if found[0].startswith("[") else f"(?:{found[0]}|{quote(found[0], errors='replace')})"


def _compile(text: str, name: str) -> Any:
    if len(text) > _MAX_PATTERN_CHARS:
        raise _invalid_pattern(
            f"{name} holds a pattern of {len(text)} characters; at most {_MAX_PATTERN_CHARS} are taken."
        )
    options = re2.Options()
    options.max_mem = _MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        given = error.args[0] if error.args else ""
        said = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(error)
        hint = next((more for start, more in _HINTS if said.startswith(start)), "mend it and try again")
        message = f"{name} holds {text!r}, which cannot be used as a regular expression ({said}): {hint}."
        raise _invalid_pattern(message) from None


def _invalid_pattern(message: str) -> PageFailure:
    return PageFailure("BAD_REQUEST", message, status=400)
