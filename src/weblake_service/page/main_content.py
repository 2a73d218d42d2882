"""Selects the main content of a page: boilerplate removal by landmarks and names, then by link density and position.

If names leave too little, only landmarks are used; if these do too, the whole page is kept.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from weblake_service.page.ancestors import is_within
from weblake_service.page.block_extraction import NEAR_CHARS, WORD, extract_blocks
from weblake_service.page.blocks import Block, PageBlocks
from weblake_service.page.boilerplate_removal import PageSubject, drop_boilerplate
from weblake_service.page_failure import PageFailure

#: Tags that are never content, with any options.
_NEVER_CONTENT = "script, style, template, link, meta, base, embed, applet, canvas, head > title"

#: Tags that are never main content: fields, and the fallback text of media players.
_NEVER_MAIN_CONTENT = (
    "select, textarea, datalist, input:not([type=checkbox i]), video > :not(source, track), audio > :not(source, track)"
)
#: Text for screen readers only, and skip links; an element with a heading or a paragraph is kept.
_SCREEN_READER_TEXT = (
    ".screen-reader-text, .sr-only, .visually-hidden, .visuallyhidden, "
    "a[href^='#'][class*=skip i], a[href^='#'][class*=jump i], a[href^='#'][id*=skip i]"
)
_WITH_STRUCTURE = "h1, h2, h3, h4, h5, h6, p, ul, table"

#: The structural tags of a document; never dropped.
_STRUCTURAL_TAGS = frozenset({"html", "head", "body"})

#: Words in the type or name of a document, or in its linked data, that identify the kind of page.
_DISCUSSION = re.compile(r"forum|thread|topic|discussion|phpbb|vbulletin|xenforo|discourse", re.IGNORECASE)
LINKED_DATA_TYPE = re.compile(r'"@type"\s*:\s*(?:\[\s*)?"([A-Za-z]+)"')
_LINKED_DATA = "script[type='application/ld+json' i]"
#: Maximum characters of linked data that are read.
_MAX_LINKED_DATA_CHARS = 20_000

#: Minimum characters, and minimum share of the page, outside of landmarks; below them the page is kept whole.
_MIN_CHARS, _MIN_SHARE = 250, 0.02


@dataclass(frozen=True, slots=True)
class Content:
    """The requested part of a page."""

    tree: LexborHTMLParser
    #: A warning for the user, such as a selector without a match; empty if there is none.
    warning: str = ""


def select_content(
    tree: LexborHTMLParser,
    *,
    only_main_content: bool = True,
    include_tags: Sequence[str] = (),
    exclude_tags: Sequence[str] = (),
) -> Content:
    """Return the content of a page as a tree of its own; `tree` may be changed.

    `include_tags` are CSS selectors that select the content; the main-content filter is then not applied.
    `exclude_tags` are always dropped. An invalid selector raises PageFailure with status 400.
    """
    subject = _subject(tree) if only_main_content and not include_tags else PageSubject()
    _drop(tree.css(_NEVER_CONTENT))
    _drop_noscript(tree)
    for selector in exclude_tags:
        _drop(_matching(tree, selector, "excludeTags"))
    if include_tags:
        return _select_only(tree, include_tags)
    if not only_main_content or tree.body is None:
        return Content(tree)
    _keep_main_content(tree, tree.body, subject)
    return Content(tree)


def _drop_noscript(tree: LexborHTMLParser) -> None:
    """Drop the content of noscript elements, unless it is all the text of the page without scripts."""
    fallbacks = tree.css("noscript")
    if fallbacks and tree.body is not None and sum(len(node.text()) for node in fallbacks) * 2 > len(tree.body.text()):
        tree.unwrap_tags(["noscript"])
    else:
        _drop(fallbacks)


def _subject(tree: LexborHTMLParser) -> PageSubject:
    """Return the subject of the page from its metadata; called before the metadata is dropped."""
    title = tree.css_first("head > title")
    data = " ".join(node.text() for node in tree.css(_LINKED_DATA))[:_MAX_LINKED_DATA_CHARS]
    types = set(LINKED_DATA_TYPE.findall(data))
    kind = tree.css_first("meta[property='og:type' i]")
    page_type = (kind.attributes.get("content") or "").lower() if kind is not None else ""
    is_article = page_type == "article" or any(t.endswith(("Article", "BlogPosting")) for t in types)
    names = " ".join(_names(node) for node in (tree.root, tree.body) if node is not None)
    is_discussion = "DiscussionForumPosting" in types or _DISCUSSION.search(names) is not None
    return PageSubject(
        title=title.text() if title is not None else "",
        # On question-and-answer pages the answers are content and the comments below them are not.
        is_discussion=is_discussion and "question" not in names,
        is_article=is_article or "single-post" in names,
        is_product=not types.isdisjoint({"Product", "ProductGroup"}) or "product" in page_type or "product" in names,
    )


def _names(node: LexborNode) -> str:
    attributes = node.attributes
    return " ".join((attributes.get(name) or "")[:1000] for name in ("class", "id", "itemtype", "data-template"))


def _keep_main_content(tree: LexborHTMLParser, body: LexborNode, subject: PageSubject) -> None:
    found = extract_blocks(tree, body, subject.title)
    if found.root.text >= _MIN_CHARS or found.root.text > found.size * _MIN_SHARE:
        drop_boilerplate(found, subject)
        _drop_repeated_alt_text(found)
        _remove_selected(tree, found)
    found.release()


def _remove_selected(tree: LexborHTMLParser, found: PageBlocks) -> None:
    for node in found.boilerplate:
        node.decompose()
    for block in _outermost_dropped(found.root):
        block.node.decompose()
    _drop(tree.css(_NEVER_MAIN_CONTENT))
    for node in tree.css(_SCREEN_READER_TEXT):
        if node.css_first(_WITH_STRUCTURE) is None and node.tag not in _STRUCTURAL_TAGS:
            node.decompose()


def _outermost_dropped(root: Block) -> list[Block]:
    dropped: list[Block] = []
    todo = [root]
    while todo:
        for child in todo.pop().children:
            (dropped if child.dropped else todo).append(child)
    return dropped


def _drop_repeated_alt_text(found: PageBlocks) -> None:
    """Clear the alt text of a picture if half of its words stand in the text around the picture."""
    words_of = functools.cache(lambda place: frozenset(WORD.findall(found.texts[place].lower())))
    begins = list(itertools.accumulate(map(len, found.texts), initial=0))
    for image, place in found.pictures:
        words = WORD.findall((image.attributes.get("alt") or "").lower())
        first = bisect.bisect_left(begins, begins[place] - NEAR_CHARS) - 1
        last = bisect.bisect_right(begins, begins[place] + NEAR_CHARS)
        near = frozenset[str]().union(*map(words_of, range(max(0, first), min(last, len(found.texts)))))
        if words and sum(word in near for word in words) * 2 >= len(words):
            image.attrs["alt"] = ""


def _select_only(tree: LexborHTMLParser, selectors: Sequence[str]) -> Content:
    """Return a tree with the elements that the selectors match, outermost only, in document order."""
    wanted = {node.mem_id: node for node in _matching(tree, ", ".join(selectors), "includeTags")}
    known: dict[int, bool] = {}
    outermost = [node for node in wanted.values() if not is_within(node, wanted, known)]
    picked = LexborHTMLParser("<body>" + "".join(node.html or "" for node in outermost) + "</body>")
    if outermost:
        return Content(picked)
    return Content(picked, f"includeTags met nothing on this page: {', '.join(selectors)}.")


def _matching(tree: LexborHTMLParser, selector: str, where: str) -> list[LexborNode]:
    try:
        return tree.css(selector)
    except SelectolaxError as error:
        message = f"{where} has a CSS selector that cannot be read: {selector!r}. Mend it and send the request again."
        raise PageFailure("BAD_REQUEST", message, status=400) from error


def _drop(nodes: Sequence[LexborNode]) -> None:
    for node in nodes:
        if node.tag not in _STRUCTURAL_TAGS:
            node.decompose()
