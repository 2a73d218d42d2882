"""The includePaths and excludePaths of a crawl.

The patterns are untrusted and are matched against every link of a site, so the engine must run in linear time: RE2, as
on the public service. It has no look-around and no back-references.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import re2  # type: ignore[import-untyped]

from weblake_service.page_failure import PageFailure

#: Maximum memory of one compiled pattern in bytes; a larger one is refused.
_MAX_PATTERN_BYTES = 1 << 20
#: Maximum patterns of one list, and maximum characters of one pattern.
_MAX_PATTERNS, _MAX_PATTERN_CHARS = 1000, 2000
_HINTS = (
    ("invalid perl operator", "look-around is not known: use includePaths and excludePaths together"),
    ("invalid escape sequence", "escapes such as \\1 or \\Z are not known"),
    ("pattern too large", "it is too large: write it shorter, or split it in two"),
)


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
        #: Whether the patterns are matched against the whole URL, or its path only.
        self.on_full_url = options.get("regex_on_full_url") is True

    def allows(self, text: str) -> bool:
        """Return whether no exclude pattern matches and, if there are include patterns, one of them matches."""
        if not (self._include or self._exclude):
            return True
        # RE2 works on UTF-8, and a lone surrogate cannot be encoded.
        text = text.encode("utf-8", "replace").decode("utf-8")
        if any(pattern.search(text) for pattern in self._exclude):
            return False
        return not self._include or any(pattern.search(text) for pattern in self._include)


def _compile_all(given: object, name: str) -> list[Any]:
    if not isinstance(given, list | tuple):
        return []
    if len(given) > _MAX_PATTERNS:
        raise _invalid_pattern(f"{name} holds {len(given)} patterns; at most {_MAX_PATTERNS} are taken.")
    return [_compile(str(text), name) for text in given]


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
