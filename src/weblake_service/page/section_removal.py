"""Drops sections by their heading: "Related articles", "Leave a comment".

The heading alone is not sufficient. The section must consist of links or of little text, or be a comment section; and
it must be a small part of the page.
"""

from __future__ import annotations

import re

from weblake_service.page.blocks import HEADINGS, Block, PageBlocks

#: Headings of sections that link to other pages.
_RELATED_HEADING = re.compile(
    r"\W*(?:(?:more |further |see )?related\b|you (?:may|might) (?:also )?|similar (?:threads|products|articles|posts|"
    r"items|topics|jobs|questions)|recommended (?:for|reading|products|articles|posts|content|stories|videos|topics)|"
    r"recently viewed|people also|customers (?:who|also)|frequently bought|also (?:bought|viewed|like)|"
    r"more (?:from|like|stories|articles|news|posts)\b|(?:latest|recent|popular|trending|featured|top) (?:articles|"
    r"posts|news|stories|topics|products|content|searches|resources|blogs?|videos|guides)|from (?:the|our) blog|"
    r"read (?:next|more|also)|keep reading|what to read next|explore (?:more|related)|discover more|"
    r"other (?:articles|posts|products|users)|follow us|share this|about the author|table of contents|"
    r"on this page|in this article|advertisement|sponsored)",
    re.IGNORECASE,
)
#: Headings of sections with readers' comments, or a comment form.
_COMMENT_HEADING = re.compile(
    r"\W*(?:sign up|subscribe|newsletter|stay (?:connected|in touch|up to date|informed)|join (?:our|the) "
    r"(?:newsletter|mailing)|leave a (?:reply|comment|review)|post a comment|add a comment|customer (?:reviews|"
    r"ratings)|ratings? (?:&|and) reviews|"
    r"reviews?\s*(?:\(|$)|comments?\s*(?:\(|$)|\d+ (?:comments?|responses|replies|reviews|"
    r"thoughts)\b)",
    re.IGNORECASE,
)
#: Maximum characters of such a heading, and the maximum number of them that are processed on one page.
_MAX_HEADING_CHARS, _MAX_SECTIONS = 80, 50


def drop_sections(outline: PageBlocks, *, comments: bool) -> None:
    """Drop these sections; `comments`: whether comments and reviews are dropped too."""
    followed = 0
    for block in outline.blocks:
        if block.tag not in HEADINGS or not 0 < block.own < _MAX_HEADING_CHARS or block.is_core:
            continue
        text = " ".join(block.node.text().split())
        is_comments = comments and _COMMENT_HEADING.match(text) is not None
        if not is_comments and not _RELATED_HEADING.match(text):
            continue
        followed += 1
        if followed > _MAX_SECTIONS:
            return
        if not block.is_gone():
            _drop_section(outline.root, block, is_comments=is_comments)


def _drop_section(root: Block, heading: Block, *, is_comments: bool) -> None:
    section = _section(heading)
    text = sum(part.text for part in section)
    prose = sum(part.prose for part in section)
    link = sum(part.link for part in section)
    if any(part.is_core for part in section) or text * 4 > root.text or (prose * 3 > root.prose and prose > 400):
        return
    if is_comments or link >= 0.3 * text or prose <= 0.25 * text:
        for part in section:
            part.drop()


def _section(heading: Block) -> list[Block]:
    """Return the section of a heading.

    It is the largest block that begins with the heading and has no other of its rank; otherwise the blocks up to the
    next heading.
    """
    block = heading
    while block.parent is not None and block.parent.parent is not None and _begins(block.parent, block):
        if block.parent.is_core or _has_peer(block.parent, heading):
            break
        block = block.parent
    section = [block]
    if block.text > heading.text + 10 or block.parent is None:
        return section
    after = iter(block.parent.children)
    for sibling in after:
        if sibling is block:
            break
    for sibling in after:
        if not sibling.dropped:
            if _rank(sibling) <= _rank(heading):
                break
            section.append(sibling)
    return section


def _begins(parent: Block, block: Block) -> bool:
    for child in parent.children:
        if child is block:
            return True
        if not child.dropped and child.text:
            return False
    return False


def _has_peer(parent: Block, heading: Block) -> bool:
    rank = _rank(heading)
    todo = list(parent.children)
    while todo:
        block = todo.pop()
        if block.dropped or block is heading:
            continue
        if block.tag in HEADINGS and block.own and int(block.tag[1]) <= rank:
            return True
        if block.headings:
            todo.extend(block.children)
    return False


def _rank(block: Block) -> int:
    """Return the rank of the highest heading in a block, 1 to 6; 9 if it has none."""
    best = 9
    todo = [block]
    while todo:
        inner = todo.pop()
        if inner.tag in HEADINGS and inner.own:
            best = min(best, int(inner.tag[1]))
        if inner.headings:
            todo.extend(child for child in inner.children if not child.dropped)
    return best
