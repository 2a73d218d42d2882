"""Tokenises text for the search index, and makes excerpts from it.

The index splits text where letters end, which Chinese, Japanese, Korean, Thai and their like do not do between words.
There every two neighbouring characters become a word, and the last one alone, so that any part of such a text is
found. What is indexed must be taken out with the very same words: a change here needs a new schema version.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

#: Characters of one page that can be searched.
MOST_TEXT = 200_000
#: Characters of a passage.
_PASSAGE = 240
#: Matches of one page among which the best passage is sought.
_MOST_MATCHES = 200

_LINK_TARGET = re.compile(r"(?<=\])\((?:<[^<>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"\n]*\")?\)")
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
    "\uac00-\ud7af"  # Korean
    "]+"
)
#: Vowel points that most writers of Hebrew and Arabic leave out, and the stroke that stretches a word.
_POINTS = re.compile("[\u0591-\u05bd\u05bf\u05c1-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]")
_MARKUP = re.compile(r"!?\[|\]|[*`|]+|(?m:^[ \t]*(?:#{1,6}|>+|[-+]|\d+\.|-{3,})[ \t]+)|-{3,}|\\(?=[^\w\s])")


def plain_text(markdown: str) -> str:
    """Markdown without the targets of its links, no longer than can be searched."""
    return _LINK_TARGET.sub("", markdown[: 2 * MOST_TEXT])[:MOST_TEXT]


def index_text(text: str) -> str:
    """Text as the index takes it."""
    if text.isascii():
        return text
    return _UNSPACED.sub(_pairs, _normalized(text))


def quote_phrase(text: str) -> str:
    """Return a searched text as an expression of the index in which nothing of it is syntax; empty where it has no word."""
    text = _normalized(text)
    if not any(unicodedata.category(letter)[0] in "LN" for letter in text):
        return ""
    text = text.strip()
    runs = list(_UNSPACED.finditer(text))
    paired, more = _UNSPACED.sub(_pairs, text).strip(), ""
    if runs and runs[-1].end() == len(text):
        # The page's text may go on here, so the last character need not stand alone in it.
        if len(runs[-1].group()) > 1:
            paired = paired[:-2]
        else:
            more = " *"
    return '"' + paired.replace('"', " ").replace("\0", " ") + '"' + more


def best_passage(text: str, sought: Sequence[str]) -> str:
    """Return the part of a text that has the most of the sought words, the first of several, in one line; empty for none."""
    pattern = _matcher(sought)
    if pattern is None:
        return ""
    matches = [match for match, _ in zip(pattern.finditer(text), range(_MOST_MATCHES), strict=False)]
    best, most = None, (0, 0)
    for place, match in enumerate(matches):
        within = [m for m in matches[place : place + 40] if m.end() <= match.start() + _PASSAGE * 3 // 4]
        score = (len({m.group().lower() for m in within}), len(within))
        if score > most:
            best, most = match, score
    return _cut(text, best.start()) if best is not None else ""


def beginning(text: str) -> str:
    """Return the first words of a text, in one line."""
    return _cut(text, 0)


def _cut(text: str, at: int) -> str:
    """Return the window around a place, without markup, begun and ended between words."""
    start = max(0, at - _PASSAGE // 4)
    if start:
        space = re.search(r"\s", text[start:at])
        start = start + space.end() if space else start
    window = text[start : start + _PASSAGE * 2]
    line = " ".join(_MARKUP.sub(" ", window).split())
    whole = start + len(window) >= len(text) and len(line) <= _PASSAGE
    if len(line) > _PASSAGE:
        cut = line[:_PASSAGE]
        head = cut.rpartition(" ")[0]
        line = head if len(head) > _PASSAGE // 2 else cut
    return ("… " if start else "") + line + ("" if whole else " …")


def _matcher(sought: Sequence[str]) -> re.Pattern[str] | None:
    """What finds the sought words in a text as it was written; endings may differ, as the index takes stems."""
    parts = []
    for one in sought:
        for word in re.findall(r"\w+", one):
            if _UNSPACED.search(word):
                parts.append(re.escape(word))
            else:
                stem = word[: max(4, len(word) - 3)] if len(word) > 4 and word.isascii() else word
                parts.append(rf"\b{re.escape(stem)}" + (r"\w*" if stem != word else r"\b"))
    return re.compile("|".join(dict.fromkeys(parts)), re.IGNORECASE) if parts else None


def _normalized(text: str) -> str:
    return _POINTS.sub("", unicodedata.normalize("NFKC", text))


def _pairs(run: re.Match[str]) -> str:
    text = run.group()
    return " " + " ".join(map(str.__add__, text[:-1], text[1:])) + " " + text[-1] + " "
