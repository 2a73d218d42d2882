"""Tokenises text for the search index, and makes excerpts from it.

The index splits text at non-letters, but Chinese, Japanese, Korean, Thai and similar scripts do not separate words. In
these, every pair of adjacent characters becomes a word, and so does the last character, so that any part of the text is
found. An entry must be removed with exactly the words it was added with: a change here needs a new schema version.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

#: Maximum characters of one page that are searchable.
MAX_CHARS = 200_000
#: Characters of a passage.
_PASSAGE_CHARS = 240
#: Maximum matches of one page among which the best passage is selected.
_MAX_MATCHES = 200

_LINK_TARGET = re.compile(r"(?<=\])\((?:<[^<>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"\n]*\")?\)")
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\uac00-\ud7af"  # Korean
    "]+"
)
#: Vowel points that are usually omitted in Hebrew and Arabic, and the character that stretches a word.
_OPTIONAL_MARKS = re.compile("[\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]")
_MARKUP = re.compile(r"!?\[|\]|[*`|]+|(?m:^[ \t]*(?:#{1,6}|>+|[-+]|\d+\.|-{3,})[ \t]+)|-{3,}|\\(?=[^\w\s])")


def plain_text(markdown: str) -> str:
    """Return markdown without link targets, cut to the searchable length."""
    return _LINK_TARGET.sub("", markdown[: 2 * MAX_CHARS])[:MAX_CHARS]


def index_text(text: str) -> str:
    """Return text as tokens for the index."""
    if text.isascii():
        return text
    return _UNSPACED.sub(_pairs, _normalize(text))


def quote_phrase(text: str) -> str:
    """Return a searched text as a quoted FTS expression; empty if it has no word."""
    text = _normalize(text)
    if not any(unicodedata.category(letter)[0] in "LN" for letter in text):
        return ""
    text = text.strip()
    runs = list(_UNSPACED.finditer(text))
    paired, more = _UNSPACED.sub(_pairs, text).strip(), ""
    if runs and runs[-1].end() == len(text):
        # The page's text may continue here, so the last character need not be a token of its own.
        if len(runs[-1].group()) > 1:
            paired = paired[:-2]
        else:
            more = " *"
    return '"' + paired.replace('"', " ").replace("\0", " ") + '"' + more


def best_passage(text: str, sought: Sequence[str]) -> str:
    """Return the first passage of a text with the most searched words, in one line; empty if there is none."""
    pattern = _matcher(sought)
    if pattern is None:
        return ""
    matches = [match for match, _ in zip(pattern.finditer(text), range(_MAX_MATCHES), strict=False)]
    best, most = None, (0, 0)
    for place, match in enumerate(matches):
        within = [m for m in matches[place : place + 40] if m.end() <= match.start() + _PASSAGE_CHARS * 3 // 4]
        score = (len({m.group().lower() for m in within}), len(within))
        if score > most:
            best, most = match, score
    return _excerpt(text, best.start()) if best is not None else ""


def beginning(text: str) -> str:
    """Return the beginning of a text, in one line."""
    return _excerpt(text, 0)


def _excerpt(text: str, at: int) -> str:
    """Return the text around a position, without markup, cut at word boundaries."""
    start = max(0, at - _PASSAGE_CHARS // 4)
    if start:
        space = re.search(r"\s", text[start:at])
        start = start + space.end() if space else start
    window = text[start : start + _PASSAGE_CHARS * 2]
    line = " ".join(_MARKUP.sub(" ", window).split())
    whole = start + len(window) >= len(text) and len(line) <= _PASSAGE_CHARS
    if len(line) > _PASSAGE_CHARS:
        cut = line[:_PASSAGE_CHARS]
        head = cut.rpartition(" ")[0]
        line = head if len(head) > _PASSAGE_CHARS // 2 else cut
    return ("… " if start else "") + line + ("" if whole else " …")


def _matcher(sought: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that finds the searched words in the original text; endings may differ: the index uses stems."""
    parts = []
    for one in sought:
        for word in re.findall(r"\w+", one):
            if _UNSPACED.search(word):
                parts.append(re.escape(word))
            else:
                stem = word[: max(4, len(word) - 3)] if len(word) > 4 and word.isascii() else word
                parts.append(rf"\b{re.escape(stem)}" + (r"\w*" if stem != word else r"\b"))
    return re.compile("|".join(dict.fromkeys(parts)), re.IGNORECASE) if parts else None


def _normalize(text: str) -> str:
    return _OPTIONAL_MARKS.sub("", unicodedata.normalize("NFKC", text))


def _pairs(run: re.Match[str]) -> str:
    text = run.group()
    return " " + " ".join(map(str.__add__, text[:-1], text[1:])) + " " + text[-1] + " "
