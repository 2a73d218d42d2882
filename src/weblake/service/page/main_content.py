"""Keeps what a page is about and drops what stands around it. Imports: failures.

A deterministic filter on landmarks, ARIA roles, and the words in class and id that sites use for navigation,
advertising and consent. It errs on the side of keeping: a word too many costs less than a paragraph lost. Two rules
hold it back: an element that holds the page's main landmark or most of its text is never dropped, and where too little
would be left the filter steps back, first to landmarks only, then to the whole page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from weblake.service.failures import PageFailure

#: Never content, whatever was asked for.
_MACHINERY = "script, style, template, link, meta, base, object, embed, applet, canvas, head > title"

#: Landmarks, by element and by role. A header or footer inside the main landmark belongs to what it heads or closes.
_LANDMARKS = ", ".join(
    [
        "nav",
        "aside",
        "dialog",
        "menu",
        "header:not(main *):not(article *):not(section *):not([role=main] *)",
        "footer:not(main *):not(article *):not([role=main] *)",
        "[role=navigation i]",
        "[role=banner i]:not(main *):not(article *)",
        "[role=contentinfo i]",
        "[role=complementary i]",
        "[role=search i]",
        "[role=dialog i]",
        "[role=alertdialog i]",
        "[role=menu i]",
        "[role=menubar i]",
        "[role=toolbar i]",
        "[aria-modal=true]",
        "select",
        "textarea",
        "datalist",
        "input",
        # The question of a folded answer is a button inside a heading.
        "button:not(h1 *):not(h2 *):not(h3 *):not(h4 *):not(h5 *):not(h6 *):not(dt *):not(summary *)",
    ]
)

#: Words that classes and ids of what stands around the content are made of: `site-nav`, `navBar`, `footer__links`.
_WORDS = (
    "nav navbar navigation menu submenu megamenu mainmenu offcanvas flyout drawer dropdown toolbar topbar topnav skip "
    "masthead footer colophon sidebar sidenav widget breadcrumb breadcrumbs pagination pager "
    "cookie cookies cookieconsent consent gdpr onetrust modal popup overlay lightbox "
    "ads adsbygoogle advert advertisement advertising sponsored promo banner "
    "share sharing social sharedaddy addtoany newsletter subscribe signup signin login "
    "related recommended recommendations yarpp searchform"
)

#: The frame of a document; never dropped.
_NEVER = frozenset({"html", "head", "body"})

_WORD_SET = frozenset(_WORDS.split())
_SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|[\s_-]+")

#: What no dropped element may hold.
_HEART = "main, [role=main i]"

#: An element with more than this share of the page's text is content, whatever it is called.
_MOST = 0.5
#: Less than this share left means that the words misled: landmarks only, then the whole page.
_TOO_LITTLE = 0.1
_NEXT_TO_NOTHING = 0.02


@dataclass(frozen=True, slots=True)
class Content:
    """The part of a page that was asked for."""

    tree: LexborHTMLParser
    #: What a user should know, such as a selector that met nothing; empty where all is well.
    warning: str = ""


def select_content(
    tree: LexborHTMLParser,
    *,
    only_main_content: bool = True,
    include_tags: Sequence[str] = (),
    exclude_tags: Sequence[str] = (),
) -> Content:
    """Returns the content of a page as a tree of its own; `tree` may be changed on the way.

    `include_tags` are CSS selectors that name the content, and then the filter stays out of it. `exclude_tags` are
    dropped in every case. A selector that cannot be read raises PageFailure with status 400.
    """
    _drop(tree.css(_MACHINERY))
    _drop_noscript(tree)
    for selector in exclude_tags:
        _drop(_matching(tree, selector, "excludeTags"))
    if include_tags:
        return _only(tree, include_tags)
    if not only_main_content or tree.body is None:
        return Content(tree)
    return Content(_main(tree))


def _drop_noscript(tree: LexborHTMLParser) -> None:
    """Drops what is only there for clients without scripts, unless it is all the text that such a client gets."""
    fallbacks = tree.css("noscript")
    if sum(len(node.text()) for node in fallbacks) * 2 > _length(tree):
        tree.unwrap_tags(["noscript"])
    else:
        _drop(fallbacks)


def _main(tree: LexborHTMLParser) -> LexborHTMLParser:
    whole = _length(tree)
    if whole == 0:
        return tree
    before = tree.clone()
    _drop_landmarks(tree, whole)
    _drop_furniture(tree, whole)
    if _length(tree) >= whole * _TOO_LITTLE:
        return tree
    gentle = before.clone()
    _drop_landmarks(gentle, whole)
    return gentle if _length(gentle) >= whole * _NEXT_TO_NOTHING else before


def _drop_landmarks(tree: LexborHTMLParser, whole: int) -> None:
    for node in tree.css(_LANDMARKS):
        if not _is_content(node, whole):
            node.decompose()


def _drop_furniture(tree: LexborHTMLParser, whole: int) -> None:
    for node in tree.css("[class],[id]"):
        if node.tag in _NEVER:
            continue
        attributes = node.attributes
        names = f"{attributes.get('class') or ''} {attributes.get('id') or ''}"
        words = {word.lower() for word in _SEAM.split(names)}
        if not _WORD_SET.isdisjoint(words) and not _is_content(node, whole):
            node.decompose()


def _is_content(node: LexborNode, whole: int) -> bool:
    """Whether a node must stay although its name says furniture."""
    if node.tag in _NEVER or node.css_first(_HEART) is not None:
        return True
    return len(node.text()) > whole * _MOST


def _only(tree: LexborHTMLParser, selectors: Sequence[str]) -> Content:
    """A tree that holds the elements the selectors name, outermost only, in document order."""
    wanted = {node.mem_id: node for node in _matching(tree, ", ".join(selectors), "includeTags")}
    outermost = [node for node in wanted.values() if not _within(node, wanted)]
    picked = LexborHTMLParser("<body>" + "".join(node.html or "" for node in outermost) + "</body>")
    if outermost:
        return Content(picked)
    return Content(picked, f"includeTags met nothing on this page: {', '.join(selectors)}.")


def _within(node: LexborNode, wanted: dict[int, LexborNode]) -> bool:
    above = node.parent
    while above is not None:
        if above.mem_id in wanted:
            return True
        above = above.parent
    return False


def _matching(tree: LexborHTMLParser, selector: str, where: str) -> list[LexborNode]:
    try:
        return tree.css(selector)
    except SelectolaxError as error:
        message = f"{where} has a CSS selector that cannot be read: {selector!r}. Mend it and send the request again."
        raise PageFailure("BAD_REQUEST", message, status=400) from error


def _drop(nodes: Sequence[LexborNode]) -> None:
    for node in nodes:
        if node.tag not in _NEVER:
            node.decompose()


def _length(tree: LexborHTMLParser) -> int:
    return len(tree.body.text()) if tree.body is not None else 0
