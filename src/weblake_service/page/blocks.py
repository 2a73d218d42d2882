"""The data model of a page as a tree of blocks, with counts of text, links and fields.

A block is an element other than inline formatting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode

HEADINGS = frozenset(["h1", "h2", "h3", "h4", "h5", "h6"])


class Block:
    """One block and its content, in characters and counts; dropped descendants are subtracted."""

    #: Whether this block is the main landmark.
    is_main = False
    #: Whether this block is an article, or is named as the body of one.
    is_body = False
    dropped = False
    children: Sequence[Block] = ()
    #: Characters of all text, of text in links, and of text in sentences.
    text = link = prose = 0
    #: Characters of text that is in no inner block, and of the part of it in links.
    own = own_link = 0
    links = headings = fields = 0

    def __init__(self, node: LexborNode, tag: str, parent: Block | None, roles: int, *, is_core: bool) -> None:
        self.node = node
        self.tag = tag
        self.parent = parent
        self.roles = roles
        #: Whether this block is or contains the main landmark or the heading of the page.
        self.is_core = is_core

    @property
    def plain(self) -> int:
        """Return the number of characters outside of links."""
        return self.text - self.link

    def drop(self) -> None:
        """Drop the block from the page."""
        self.dropped = True
        above = self.parent
        while above is not None:
            above.text -= self.text
            above.link -= self.link
            above.prose -= self.prose
            above.links -= self.links
            above.headings -= self.headings
            above.fields -= self.fields
            above = above.parent

    def is_gone(self) -> bool:
        """Return whether the block or one of its ancestors was dropped."""
        block: Block | None = self
        while block is not None:
            if block.dropped:
                return True
            block = block.parent
        return False


@dataclass(slots=True)
class PageBlocks:
    """A page as blocks."""

    root: Block
    #: Characters of the page that are not white space, with its boilerplate.
    size: int
    #: All blocks in document order.
    blocks: list[Block] = field(default_factory=list)
    #: Boilerplate elements, outermost only.
    boilerplate: list[LexborNode] = field(default_factory=list)
    #: The texts of all blocks in document order; of long ones, the beginning and the end.
    texts: list[str] = field(default_factory=list)
    #: Pictures with an alt text, each with the number of texts before it.
    pictures: list[tuple[LexborNode, int]] = field(default_factory=list)
    #: The main landmarks, outermost only, and the block that is the heading of the page.
    mains: list[Block] = field(default_factory=list)
    heading: Block | None = None
    #: Whether the page has a control that puts a product into a cart.
    is_product: bool = False

    def release(self) -> None:
        """Break the reference cycles between the blocks, so that the tree is freed without the garbage collector."""
        for block in self.blocks:
            block.parent = None
            block.children = ()


def length(node: LexborNode) -> int:
    """Return the number of characters that are not white space."""
    return len("".join(node.text().split()))
