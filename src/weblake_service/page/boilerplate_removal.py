"""Drops blocks that are not the main content of a page.

Landmarks and unambiguous names are handled earlier, by `block_extraction`. The remaining blocks are judged by position
(outside of the main landmark, before the heading), by composition (links, fields), by ambiguous names, and by
repetition. Recall has priority: every rule keeps blocks with sentences of their own and any large part of a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from weblake_service.page.blocks import HEADINGS, Block, PageBlocks
from weblake_service.page.element_classification import ElementRole, words
from weblake_service.page.section_removal import drop_sections

#: Tags whose text may legitimately repeat.
_MAY_REPEAT = words("tr td th tbody thead p pre dt dd code blockquote")
_MAY_REPEAT_ANYWHERE = frozenset(["pre", "td", "th", "code", "blockquote"])
#: Tags that are parts of a table or a text and therefore never a list of links.
_NEVER_LINK_LISTS = frozenset(["td", "tr", "tbody", "table", "p", "dd"])
#: Minimum characters of a repeated block that is dropped: next to its twin, and anywhere on the page.
_MIN_ADJACENT_DUPLICATE_CHARS, _MIN_DUPLICATE_CHARS = 20, 80
#: Minimum characters of another block that counts as content outside of the main landmark.
_MIN_OUTSIDE_CHARS = 150
#: Minimum paragraphs and share of the sentences of the block with the text of an article, and minimum share of another
#: block in its sentences that is kept beside it.
_MIN_COLUMN_PARAGRAPHS, _MIN_COLUMN_SHARE, _MIN_OUTSIDE_SHARE = 5, 0.7, 0.6
#: Minimum characters of sentences of an article whose comments are longer than itself.
_MIN_ARTICLE_PROSE = 1500
#: Minimum number of links in a link list, and the minimum share of its text that is in them.
_MIN_LIST_LINKS, _MIN_LINKED_SHARE = 4, 0.85
#: A block that is named like boilerplate holds at most these characters of plain text, or this share.
_MAX_NAMED_CHARS, _MAX_NAMED_SHARE = 80, 0.3
#: Characters of sentences in an article; names must leave as many if they take more; and the share of the page's text
#: that they must leave.
_MIN_PROSE, _MIN_SHARE = 500, 0.02
#: Maximum number of blocks whose text is read for comparison.
_MAX_COMPARED_BLOCKS = 500


@dataclass(frozen=True, slots=True)
class PageSubject:
    """The subject of a page according to its metadata."""

    title: str = ""
    #: Whether the page is a discussion, so that the comments are the content.
    is_discussion: bool = False
    is_product: bool = False
    #: Whether the metadata calls the page an article; templates call other pages so too.
    is_article: bool = False


def drop_boilerplate(outline: PageBlocks, subject: PageSubject) -> None:
    """Mark the blocks that are not content as dropped."""
    root = outline.root
    _drop_named(outline)
    _drop_outside_of_main(outline)
    _drop_before_heading(outline)
    _drop_repetitions(outline)
    _drop_by_name(outline, subject)
    if subject.is_article and not (subject.is_discussion or subject.is_product or outline.is_product):
        _drop_outside_of_column(root)
    drop_sections(outline, comments=not subject.is_discussion)
    if root.prose * 2 >= root.text:
        _drop_link_lists(root)
    _drop_forms(outline)


def _drop_named(outline: PageBlocks) -> None:
    """Drop blocks that are named like boilerplate.

    A name is trusted on a small share of the main landmark that encloses it, or else of the page, and never on a block
    with the paragraphs of an article. If almost nothing would be left, no name is trusted.
    """
    root = outline.root
    named: list[Block] = []
    todo = [(root, outline.size)]
    while todo:
        block, whole = todo.pop()
        for child in block.children:
            if (
                child.roles & ElementRole.CHROME
                and not child.is_core
                and child.plain <= max(_MAX_NAMED_CHARS, _MAX_NAMED_SHARE * whole)
                and not (child.prose >= _MIN_PROSE and _column(child) is not None)
            ):
                named.append(child)
            else:
                todo.append((child, child.plain if child.is_main else whole))
    prose = sum(block.prose for block in named)
    text = root.text - sum(block.text for block in named)
    if prose > _MIN_PROSE > root.prose - prose or text <= _MIN_SHARE * outline.size:
        for block in outline.blocks:
            block.roles = 0
        return
    for block in named:
        block.drop()


def _remaining_blocks(root: Block) -> Iterator[Block]:
    """Yield every remaining block, outer before inner; blocks that the caller drops are not traversed."""
    todo = [root]
    while todo:
        for child in todo.pop().children:
            if not child.dropped:
                yield child
                if not child.dropped:
                    todo.append(child)


def _drop_outside_of_main(outline: PageBlocks) -> None:
    """Drop blocks outside of the main landmark, except the heading and blocks with a comparable amount of text."""
    root = outline.root
    mains = outline.mains
    if mains and sum(main.plain for main in mains) < 0.4 * root.plain:
        return
    if not mains:
        core = _drop_outside_of_core(root)
        if core is None:
            return
        mains = [core]
    _drop_outside_of(root, mains, max(_MIN_OUTSIDE_CHARS, sum(main.prose for main in mains) * 0.1))


def _drop_outside_of(root: Block, mains: list[Block], min_prose: float) -> None:
    """Drop blocks outside of `mains`, except the heading and blocks with `min_prose` characters of sentences."""
    paths = {id(block) for main in mains for block in _ancestors(main)}
    todo = [root]
    while todo:
        for child in todo.pop().children:
            if child.dropped or child in mains:
                continue
            if id(child) in paths or child.is_core:
                if child.tag not in HEADINGS:
                    todo.append(child)
            elif child.prose < min_prose or child.link * 2 > child.text:
                child.drop()


def _drop_outside_of_core(root: Block) -> Block | None:
    """Drop blocks outside of the core and return the core, or None.

    For pages without a main landmark: the core is the smallest block with nearly all sentences of a page that consists
    mainly of sentences.
    """
    if root.prose < 1000 or root.prose * 2 < root.text:
        return None
    block = root
    while True:
        inner = next((child for child in block.children if child.prose >= 0.85 * root.prose), None)
        if inner is None:
            return block if block is not root else None
        block = inner


def _drop_outside_of_column(root: Block) -> None:
    """Drop what stands around the text of an article: author boxes, offers, teasers of other articles."""
    column = _column(root)
    if column is not None and column is not root:
        _drop_outside_of(root, [column], _MIN_OUTSIDE_SHARE * column.prose)


def _column(root: Block) -> Block | None:
    """Return the innermost block with most sentences of a part of the page and several paragraphs as children."""
    column: Block | None = None
    block: Block | None = root
    while block is not None:
        if sum(child.tag == "p" for child in block.children) >= _MIN_COLUMN_PARAGRAPHS:
            column = block
        block = next((child for child in block.children if child.prose >= _MIN_COLUMN_SHARE * root.prose > 0), None)
    return column


def _ancestors(block: Block) -> Iterator[Block]:
    above = block.parent
    while above is not None:
        yield above
        above = above.parent


def _drop_before_heading(outline: PageBlocks) -> None:
    """Drop toolbars, breadcrumbs and calls to action above the heading: links, fields and short texts without
    sentences.
    """
    heading = outline.heading
    if heading is None or heading.is_gone():
        return
    above = []
    block = heading
    while block.parent is not None:
        for sibling in block.parent.children:
            if sibling is block:
                break
            if not sibling.dropped:
                above.append(sibling)
        block = block.parent
    if sum(sibling.text for sibling in above) > 0.3 * outline.root.text:
        return
    for sibling in above:
        odd = sibling.link * 2 > sibling.text or sibling.text < 60 or sibling.fields
        if odd and not (sibling.prose or sibling.headings or sibling.is_core):
            sibling.drop()


def _drop_repetitions(outline: PageBlocks) -> None:
    """Drop duplicates: cloned carousel slides, separate copies for mobile and desktop."""
    before: dict[tuple[int, int, str], Block] = {}
    left = _MAX_COMPARED_BLOCKS
    for block in outline.blocks:
        if block.own >= _MIN_DUPLICATE_CHARS and block.own == block.text and block.tag not in _MAY_REPEAT_ANYWHERE:
            key = (block.own, block.own_link, _words(block)[:1000])
            if key not in before:
                before[key] = block
            elif not block.is_gone() and not before[key].is_gone():
                block.drop()
        if len(block.children) > 1 and left > 0:
            left -= _drop_duplicate_children(block)


def _drop_duplicate_children(parent: Block) -> int:
    """Drop children whose text equals that of an earlier child; return the number of comparisons."""
    seen: dict[tuple[int, int], Block] = {}
    compared = 0
    for child in parent.children:
        if child.dropped or child.text < _MIN_ADJACENT_DUPLICATE_CHARS or child.tag in _MAY_REPEAT or child.is_core:
            continue
        first = seen.setdefault((child.text, child.link), child)
        if first is not child:
            compared += 1
            if compared > _MAX_COMPARED_BLOCKS:
                break
            if _words(first) == _words(child):
                child.drop()
    return compared


def _words(block: Block) -> str:
    return " ".join(block.node.text().split())


def _drop_by_name(outline: PageBlocks, subject: PageSubject) -> None:
    """Drop blocks by ambiguous names: comments unless they are the content, product reviews, links to related pages."""
    root = outline.root
    named = [block for block in outline.blocks if block.roles and not block.is_core]
    comments = 0
    if not subject.is_discussion and any(block.roles & ElementRole.COMMENTS for block in named):
        comments = sum(block.prose for block in _outermost(root, ElementRole.COMMENTS))
    drops = {
        ElementRole.COMMENTS: not subject.is_discussion
        and (comments * 2 <= root.prose or (subject.is_article and root.prose - comments >= _MIN_ARTICLE_PROSE)),
        ElementRole.REVIEWS: subject.is_product or outline.is_product,
    }
    for block in named:
        if not block.is_gone() and _matches_its_name(root, block, drops):
            block.drop()


def _matches_its_name(root: Block, block: Block, drops: Mapping[int, bool]) -> bool:
    roles = block.roles
    if roles & ElementRole.RELATED and block.prose * 2 <= root.prose and block.plain * 2.5 <= root.plain:
        return True
    if roles & ElementRole.COMMENTS and drops[ElementRole.COMMENTS]:
        return True
    if (
        roles & ElementRole.REVIEWS
        and drops[ElementRole.REVIEWS]
        and root.plain - block.plain >= max(500, root.plain * 0.25)
    ):
        return True
    return bool(roles & ElementRole.ASIDE) and block.plain * 4 <= root.plain and _is_supplementary(block)


def _outermost(root: Block, flag: int) -> Iterator[Block]:
    todo = [root]
    while todo:
        for child in todo.pop().children:
            if child.dropped:
                continue
            if child.roles & flag:
                yield child
            else:
                todo.append(child)


def _is_supplementary(block: Block) -> bool:
    """Return whether a banner, drawer or aside is supplementary: links, fields, or neither sentence nor heading."""
    return block.link > 0.35 * block.text or bool(block.fields) or not (block.prose or block.headings)


def _drop_link_lists(root: Block) -> None:
    """Drop lists of links from a page that consists of sentences; on a page that consists of links they are kept."""
    for block in _remaining_blocks(root):
        if block.links < _MIN_LIST_LINKS or block.prose or block.tag in _NEVER_LINK_LISTS or block.is_core:
            continue
        if block.link > _MIN_LINKED_SHARE * block.text and block.link < 0.15 * root.text:
            block.drop()


def _drop_forms(outline: PageBlocks) -> None:
    """Drop forms to be filled in, but not a form that wraps the whole page."""
    root = outline.root
    for block in outline.blocks:
        if block.tag != "form" or not block.fields or block.is_core or block.is_gone():
            continue
        if block.text * 2 < root.text and block.prose * 3 < root.prose and block.prose * 2 < block.text:
            block.drop()
