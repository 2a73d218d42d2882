"""Limits nesting and open formatting in pages that would exhaust a parser.

Two patterns do. Elements nested ten thousand deep take quadratic time to parse, and their text is lost below the
depth at which a converter stops. Inline formatting that is left open is rebuilt inside every block that follows, so
that 30 KB of source become more than a gigabyte of tree. The text of a page is never changed, and ordinary pages are
returned unchanged. Other costly pages, such as a tag with a hundred thousand attributes, end at the deadline of their
process.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

#: Maximum nesting depth that is kept; pages written by people have fewer than a hundred levels.
MAX_DEPTH = 200
#: Maximum depth of formatting within formatting that is kept.
MAX_FORMATTING = 50
#: Maximum number of elements that open formatting may add to the tree.
MAX_REOPENED = 400_000
#: So many tags, and as many end tags, are parsed in a tenth of a second even if each is nested in the one before.
_HARMLESS_TAGS = 10_000

_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9:-]*)([^<>]*)>?|<!--")
_FORMATTING = frozenset(["b", "big", "code", "em", "font", "i", "s", "small", "strike", "strong", "tt", "u"])
# The names are tested only if a tag begins with one of their first letters, which most tags do not. Formatting that
# ends after its text is not open in what follows.
_OPEN_FORMATTING = re.compile(
    r"<(?=[bcefistu])(b|big|code|em|font|i|s|small|strike|strong|tt|u)(?=[\s/>])(?![^<>]*>[^<>]*</\1>)", re.IGNORECASE
)
#: Void elements, and elements with an optional end tag: leaving them open is normal and adds no depth.
_FLAT_TAG_LIST = (
    "area base br col embed hr img input link meta param source track wbr html head body p li dt dd option optgroup "
    "tr td th thead tbody tfoot caption colgroup rt rp rb rtc a"
)
_FLAT_TAGS = frozenset(_FLAT_TAG_LIST.split())
_END_TAGS = {
    name: re.compile(rf"</{name}\b", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}
_END_OF_COMMENT = re.compile(r"--!?>")


def limit_nesting(html: str, *, always_scan: bool = False) -> str:
    """Return the page with nesting and open formatting reduced to what a parser can handle.

    A page with few tags is returned without a scan, because no arrangement of them is harmful; `always_scan` forces the
    scan, for a page that turned out to be too deep for the converter.
    """
    ends = html.count("</")
    tags = html.count("<") - ends
    harmless = max(tags, ends) < _HARMLESS_TAGS and tags * len(_OPEN_FORMATTING.findall(html)) < MAX_REOPENED
    if harmless and not always_scan:
        return html
    depth, formatting, rebuilt = _measure_nesting(html)
    if depth > MAX_DEPTH:
        html = _drop_deep_tags(html)
    if formatting > MAX_FORMATTING or rebuilt > MAX_REOPENED:
        html = _without_formatting(html)
    return html


def _tags(html: str) -> Iterator[re.Match[str]]:
    """Yield every tag outside comments, scripts, and other raw text."""
    text_until = 0
    for match in _TAG.finditer(html):
        if match.start() < text_until:
            continue
        if match[2] is None:
            end = _END_OF_COMMENT.search(html, match.start() + 2)
        elif not match[1] and (closer := _END_TAGS.get(match[2].lower())) is not None:
            end = closer.search(html, match.end())
            if end is not None:
                text_until = end.start()
                continue
        else:
            yield match
            continue
        text_until = end.end() if end is not None else len(html)


def _measure_nesting(html: str) -> tuple[int, int, int]:
    """Return the deepest nesting, the most formatting open at once, and the number of elements that open formatting
    adds.
    """
    opened: Counter[str] = Counter()
    depth = deepest = formatting = most = rebuilt = 0
    for match in _tags(html):
        name = match[2].lower()
        step = -1 if match[1] else 1
        if step == -1 and name not in _FLAT_TAGS and not opened[name]:
            continue
        if name in _FORMATTING:
            opened[name] += step
            formatting += step
            most = max(most, formatting)
            continue
        if step == 1:
            rebuilt += formatting
        if name in _FLAT_TAGS or _closes_itself(match, opened):
            continue
        opened[name] += step
        depth += step
        deepest = max(deepest, depth)
    return deepest, most, rebuilt


def _drop_deep_tags(html: str) -> str:
    """Return the page without the tags below the deepest level that is kept, and without their end tags."""
    kept: list[str] = []
    opened: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    depth = start = 0
    for match in _tags(html):
        name = match[2].lower()
        if name in _FLAT_TAGS or name in _FORMATTING or _closes_itself(match, opened):
            continue
        if match[1]:
            if left_out[name]:
                left_out[name] -= 1
            elif opened[name]:
                opened[name] -= 1
                depth -= 1
                continue
            else:
                continue
        elif depth < MAX_DEPTH:
            opened[name] += 1
            depth += 1
            continue
        else:
            left_out[name] += 1
        # A space keeps the words apart that the tag separated.
        kept += (html[start : match.start()], " ")
        start = match.end()
    return "".join((*kept, html[start:]))


def _without_formatting(html: str) -> str:
    kept: list[str] = []
    start = 0
    for match in _tags(html):
        if match[2].lower() in _FORMATTING:
            kept.append(html[start : match.start()])
            start = match.end()
    return "".join((*kept, html[start:]))


def _closes_itself(match: re.Match[str], opened: Counter[str]) -> bool:
    """Return whether `<path/>` is closed by its slash, which is the case only within SVG and MathML."""
    return bool(match[3]) and match[3].endswith("/") and not match[1] and bool(opened["svg"] or opened["math"])
