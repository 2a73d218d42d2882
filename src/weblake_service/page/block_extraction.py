"""Extracts the blocks of a page and measures their text and links in one traversal of the tree.

Elements that are certainly not content are not traversed. Characters are counted without surrounding white space; a
sentence is a text of a minimum length that is not mostly links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from weblake_service.page.ancestors import is_within
from weblake_service.page.blocks import HEADINGS, Block, PageBlocks, length
from weblake_service.page.element_classification import (
    ROLE_TAGS,
    ElementRole,
    roles_from_aria,
    roles_from_names,
    roles_from_tag,
    words,
)
from weblake_service.page.parser_limits import MAX_DEPTH

_INLINE = words(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr picture q rp rt ruby s "
    "samp small span strike strong sub sup time tt u var"
)
_SKIPPED = words("svg math iframe video audio canvas map progress meter datalist source br wbr -comment -undef")
_LINE_TAGS = frozenset(["img", "select", "textarea", "input", "button"])
_FIELDS = frozenset(["select", "textarea", "input"])
#: Fields that a page has without being a form: a search box, a subscription, filter check boxes.
_TEXT_INPUT_TYPES = words(" text email tel search url password number date")
#: Elements that are classified by their text and not by their name.
_TEXT_TAGS = HEADINGS | words("p td th tr tbody thead pre blockquote figcaption figure dt dd hr")
_SECTION_TAGS = frozenset(["article", "section"])
_MAIN = "main, [role=main i]"
#: The bodies of articles, by the names that themes and microdata give them.
_ARTICLE_BODY = (
    "article, [itemprop~=articleBody i], .entry-content, .post-content, .post-body, .article-body, .article-content"
)
WORD = re.compile(r"\w+")
#: Characters before and after a picture that are searched for the words of its alt text.
NEAR_CHARS = 400
#: Minimum length, in characters, of a text that counts as a sentence.
_MIN_SENTENCE_CHARS = 80
#: Maximum length of a heading in characters.
_MAX_HEADING_CHARS = 250
#: Maximum number of h1 elements that are examined.
_MAX_HEADINGS = 50
#: Maximum share of the page's plain text that a landmark of boilerplate may hold.
_MAX_LANDMARK_SHARE = 0.6
#: Maximum number of times that the page's text is read again to measure boilerplate; nested names would otherwise make
#: it quadratic.
_MAX_READINGS = 20


def extract_blocks(tree: LexborHTMLParser, body: LexborNode, title: str) -> PageBlocks:
    """Return the blocks of a page and their roles; landmarks of boilerplate are no blocks."""
    return _BlockExtractor(tree, body, title).found


#: Position flags of an element: within an article or section, the main landmark, an article.
_IN_PART, _IN_MAIN, _IN_ARTICLE = 1, 2, 4
#: Roles that a name alone does not give to a block within an article, because it may hold a part of the text.
_UNTRUSTED = ElementRole.CHROME | ElementRole.RELATED


class _BlockExtractor:
    def __init__(self, tree: LexborHTMLParser, body: LexborNode, title: str) -> None:
        self.whole = length(body)
        self.readings = self.whole * _MAX_READINGS
        mains = tree.css(_MAIN)
        self.mains = {node.mem_id for node in mains}
        self.bodies = {node.mem_id for node in tree.css(_ARTICLE_BODY)}
        heading = _heading(tree, title, self.mains)
        self.heading = heading.mem_id if heading is not None else None
        self.core: set[int] = set()
        for node in [*mains, *([heading] if heading is not None else ())]:
            self._mark_ancestors(node)
        self.found = PageBlocks(Block(body, "body", None, 0, is_core=True), self.whole)
        self._visit(body)

    def _mark_ancestors(self, node: LexborNode | None) -> None:
        while node is not None and node.mem_id not in self.core:
            self.core.add(node.mem_id)
            node = node.parent

    def _visit(self, body: LexborNode) -> None:
        root = self.found.root
        self.found.blocks.append(root)
        stack: list[tuple[Block, Iterator[LexborNode], bool, int]] = [(root, _children(body), False, 0)]
        while stack:
            block, children, in_link, where = stack[-1]
            for node in children:
                tag = node.tag or ""
                if tag == "-text":
                    self._count(node, block, in_link)
                elif tag in _INLINE or (len(stack) > MAX_DEPTH and tag not in _SKIPPED):
                    # Below the maximum depth no block begins: one costs as much to drop as it is deep.
                    linked = in_link or tag == "a"
                    block.links += tag == "a"
                    if not self._is_single_text(node, block, linked):
                        stack.append((block, _children(node), linked, where))
                        break
                elif tag in _LINE_TAGS and self._is_part_of_a_line(node, tag, block):
                    continue
                elif tag not in _SKIPPED:
                    inner = self._open(node, tag, block, where)
                    if inner is None:
                        continue
                    if self._is_single_text(node, inner, in_link):
                        _finish_block(inner)
                    else:
                        deeper = where | (_IN_PART if tag in _SECTION_TAGS else 0) | (_IN_MAIN if inner.is_main else 0)
                        deeper |= _IN_ARTICLE if inner.is_body else 0
                        stack.append((inner, _children(node), in_link, deeper))
                        break
            else:
                stack.pop()
                if not stack or stack[-1][0] is not block:
                    _finish_block(block)

    def _is_single_text(self, node: LexborNode, block: Block, in_link: bool) -> bool:
        """Count an element that contains only one text node, as most links do; return False if it contains more."""
        first = node.first_child
        if first is None:
            return True
        if first.tag != "-text" or first.next is not None:
            return False
        self._count(first, block, in_link)
        return True

    def _count(self, node: LexborNode, block: Block, in_link: bool) -> None:
        text = (node.text_content or "").strip()
        if text:
            self.found.texts.append(
                text if len(text) <= 2 * NEAR_CHARS else f"{text[:NEAR_CHARS]} {text[-NEAR_CHARS:]}"
            )
            block.own += len(text)
            if in_link:
                block.own_link += len(text)

    def _is_part_of_a_line(self, node: LexborNode, tag: str, block: Block) -> bool:
        """Record pictures, fields and buttons, which are not blocks; a button in a heading counts as heading text."""
        if tag == "img":
            if node.attributes.get("alt"):
                self.found.pictures.append((node, len(self.found.texts)))
            return True
        if tag in _FIELDS:
            if (node.attributes.get("type") or "text").lower() in _TEXT_INPUT_TYPES:
                block.fields += 1
            return True
        if tag == "button" and not _in_heading(block):
            self.found.boilerplate.append(node)
            return True
        return False

    def _open(self, node: LexborNode, tag: str, parent: Block, where: int) -> Block | None:
        """Return the new block of an element, or None if the element is boilerplate."""
        roles = 0 if tag in _TEXT_TAGS else self._roles(node, tag, inside=where != 0)
        if where & _IN_ARTICLE and not roles & ElementRole.LANDMARK and roles & _UNTRUSTED:
            roles = roles & ~_UNTRUSTED | ElementRole.ASIDE
        mem_id = node.mem_id
        is_core = mem_id in self.core
        if roles & ElementRole.LANDMARK and not is_core and self._is_small(node):
            self.found.boilerplate.append(node)
            return None
        block = Block(node, tag, parent, roles, is_core=is_core)
        if is_core and mem_id in self.mains:
            block.is_main = True
            if not where & _IN_MAIN:
                self.found.mains.append(block)
        block.is_body = mem_id in self.bodies
        if mem_id == self.heading:
            self.found.heading = block
        if roles & ElementRole.CART:
            self.found.is_product = True
        if isinstance(parent.children, list):
            parent.children.append(block)
        else:
            parent.children = [block]
        self.found.blocks.append(block)
        return block

    def _roles(self, node: LexborNode, tag: str, *, inside: bool) -> int:
        roles = roles_from_tag(tag, inside=inside) if tag in ROLE_TAGS else 0
        if roles & ElementRole.CHROME:
            return roles
        attributes = node.attributes
        if attributes:
            if role := attributes.get("role"):
                roles |= roles_from_aria(role.lower(), inside=inside)
            if attributes.get("aria-modal") == "true":
                roles |= ElementRole.CHROME | ElementRole.LANDMARK
            if classes := attributes.get("class"):
                roles |= roles_from_names(classes)
            if name := attributes.get("id"):
                roles |= roles_from_names(name)
        return roles | roles_from_names(tag) if "-" in tag else roles

    def _is_small(self, node: LexborNode) -> bool:
        """Return whether a landmark holds so small a share of the page that it can be trusted to be boilerplate."""
        text = length(node)
        self.readings -= text
        if self.readings < 0:
            return False
        if text <= self.whole * _MAX_LANDMARK_SHARE:
            return True
        self.readings -= text
        return text - sum(length(link) for link in node.css("a")) <= self.whole * _MAX_LANDMARK_SHARE


def _children(node: LexborNode) -> Iterator[LexborNode]:
    return node.iter(include_text=True, skip_empty=True)


def _heading(tree: LexborHTMLParser, title: str, mains: set[int]) -> LexborNode | None:
    """Return the page's main h1, or None.

    Candidates are inside the main landmark or repeat the title; the longest one wins.
    """
    words = set(WORD.findall(title.lower()))
    best, best_rank = None, (False, False, 0)
    known: dict[int, bool] = {}
    for node in tree.css("h1")[:_MAX_HEADINGS]:
        text = " ".join(node.text().split())
        own = WORD.findall(text.lower())
        named = bool(own) and sum(word in words for word in own) * 2 >= len(own)
        rank = (is_within(node, mains, known), named, len(text))
        if len(text) <= _MAX_HEADING_CHARS and rank > best_rank and (rank[0] or named or not words):
            best, best_rank = node, rank
    return best


def _in_heading(block: Block | None) -> bool:
    """Return whether a button at this place is heading text, such as the question of a collapsed FAQ answer."""
    for _ in range(3):
        if block is None:
            return False
        if block.tag in HEADINGS or block.tag in {"dt", "summary"}:
            return True
        block = block.parent
    return False


def _finish_block(block: Block) -> None:
    """Compute the totals of a block after all of its content was read."""
    block.text += block.own
    block.link += block.own_link
    plain = block.own - block.own_link
    if (block.own >= _MIN_SENTENCE_CHARS and plain * 2 > block.own) or block.tag == "pre":
        block.prose += plain
    if block.own and block.tag in HEADINGS:
        block.headings += 1
    above = block.parent
    if above is not None:
        above.text += block.text
        above.link += block.link
        above.prose += block.prose
        above.links += block.links
        above.headings += block.headings
        above.fields += block.fields
