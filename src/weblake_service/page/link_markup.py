"""Rewrites links so that markdown can express them.

In HTML a link can contain a whole card with a heading, a picture and a list, or nothing at all. In markdown a link is
inline: a card would become one long line in which the heading is lost.
"""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS = "h1, h2, h3, h4, h5, h6"
#: Link texts that documentation generators put beside a heading as its permalink; words count only within a heading.
_PERMALINKS = frozenset("¶#§🔗⚓∞")
_PERMALINK_WORDS = re.compile(r"(?:direct |perma)?link(?: (?:to|for) .*)?|anchor(?: (?:for|link) .*)?", re.IGNORECASE)
#: Characters without a shape of their own: zero-width ones, variation selectors, and those of icon fonts.
_INVISIBLE = re.compile(r"[\s\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\ue000-\uf8ef]+")
#: Blocks in a link that is not a card with a heading; their pictures would be only words in a line of text.
_BLOCKS = (
    "a[href] div, a[href] p, a[href] figure, a[href] figcaption, a[href] section, a[href] article, a[href] header, "
    "a[href] ul, a[href] ol, a[href] li"
)
#: Elements that make a link visible without text.
_VISIBLE_TAGS = "img, picture, video, audio, object, input, math"
#: Maximum number of ancestors of a heading that are searched for an enclosing link.
_MAX_ANCESTORS = 12


def normalize_links(tree: LexborHTMLParser) -> None:
    """Rewrite the links of a tree so that each fits in one line. Changes the tree in place."""
    for link in tree.css("pre a"):
        link.unwrap()
    for link in tree.css("a:not([href])"):
        link.unwrap(delete_empty=True)
    for heading in tree.css(_HEADINGS):
        _move_link_into_heading(heading)
    for block in tree.css(_BLOCKS):
        block.insert_before(" ")
        block.insert_after(" ")
        block.unwrap(delete_empty=True)
    for heading in reversed(tree.css(_HEADINGS)):
        shown = _INVISIBLE.sub("", heading.text())
        for link in reversed(heading.css("a[href*='#']")):
            text = _INVISIBLE.sub("", link.text())
            if text != shown and (not text or _PERMALINK_WORDS.fullmatch(link.text(strip=True))):
                link.decompose()
    for link in reversed(tree.css("a[href]")):
        text = _INVISIBLE.sub("", link.text())
        here = "#" in (link.attributes.get("href") or "")
        if text:
            if here and text in _PERMALINKS:
                link.decompose()
        elif link.css_first(_VISIBLE_TAGS) is None:
            named = link.attributes.get("aria-label") or link.attributes.get("title") or ""
            _set_link_text(link, "" if here else " ".join(named.split()))


def _set_link_text(link: LexborNode, name: str) -> None:
    """Set the text of an icon-only link to its accessible name; unwrap the link if it has none."""
    while (child := link.child) is not None:
        child.decompose()
    if name:
        link.insert_child(name)
    else:
        link.decompose()


def _move_link_into_heading(heading: LexborNode) -> None:
    """Move the link of a card into the card's heading; the rest of the card is unchanged."""
    above = heading.parent
    for _ in range(_MAX_ANCESTORS):
        if above is None or above.tag in {"a", "body", "main", "article"}:
            break
        above = above.parent
    if above is None or above.tag != "a" or not above.attributes.get("href"):
        return
    if not heading.text(strip=True):
        return
    link = heading.parser.create_node("a")
    link.attrs["href"] = above.attributes["href"] or ""
    while (child := heading.child) is not None:
        link.insert_child(child, move=True)
    heading.insert_child(link, move=True)
    as_block(above)


def as_block(node: LexborNode, tag: str = "div") -> None:
    """Replace a node by a plain block, or by another element, with the same children."""
    block = node.parser.create_node(tag)
    while (child := node.child) is not None:
        block.insert_child(child, move=True)
    node.insert_before(block, move=True)
    node.decompose()
