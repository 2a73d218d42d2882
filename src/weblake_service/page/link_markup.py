"""Rewrites links so that markdown can express them.

HTML lets a link hold a whole card with its heading, its picture and its list, and lets it hold nothing at all. Markdown
knows links within one line only: of a card it would make one long line in which the heading is lost.
"""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode

_HEADINGS = "h1, h2, h3, h4, h5, h6"
#: What generators of documentation write beside a heading, so that it can be linked to.
_PERMALINKS = frozenset(["¶", "#", "§", "🔗"])
#: Blocks in a link that is no card with a heading: in one line their pictures would be no more than words.
_BLOCKS = (
    "a[href] div, a[href] p, a[href] figure, a[href] figcaption, a[href] section, a[href] article, a[href] header, "
    "a[href] ul, a[href] ol, a[href] li"
)
#: What a link can show besides words.
_SEEN = "img, picture, video, audio, object, input, math"
#: How far up from a heading a link around it is looked for.
_ABOVE = 12


def normalize_links(tree: LexborHTMLParser) -> None:
    """Makes the links of a tree such that each can be written in one line. Changes the tree."""
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
    for link in reversed(tree.css("a[href]")):
        text = link.text(strip=True)
        if text and text not in _PERMALINKS:
            continue
        here = "#" in (link.attributes.get("href") or "")
        if text:
            if here:
                link.decompose()
        elif link.css_first(_SEEN) is None:
            _set_link_text(link, "" if here else " ".join((link.attributes.get("aria-label") or "").split()))


def _set_link_text(link: LexborNode, name: str) -> None:
    """Gives a link that shows no more than an icon the name that it has for those who do not see it; else ends it."""
    while (child := link.child) is not None:
        child.decompose()
    if name:
        link.insert_child(name)
    else:
        link.decompose()


def _move_link_into_heading(heading: LexborNode) -> None:
    """Moves the link of a card into its heading, and leaves the rest of the card as it is."""
    above = heading.parent
    for _ in range(_ABOVE):
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


def as_block(node: LexborNode) -> None:
    """Puts a plain block with all that the node holds in its place."""
    block = node.parser.create_node("div")
    while (child := node.child) is not None:
        block.insert_child(child, move=True)
    node.insert_before(block, move=True)
    node.decompose()
