"""The data model of a page as blocks, with counts of text, links and fields.

A block is an element that is more than formatting within a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from selectolax.lexbor import LexborNode

HEADINGS = frozenset(["h1", "h2", "h3", "h4", "h5", "h6"])


class Block:
    """One block and what it holds, in characters and numbers; what is dropped counts no more."""

    __slots__ = (
        "children",
        "dropped",
        "fields",
        "headings",
        "is_core",
        "is_main",
        "link",
        "links",
        "node",
        "own",
        "own_link",
        "parent",
        "prose",
        "roles",
        "tag",
        "text",
    )

    def __init__(self, node: LexborNode, tag: str, parent: Block | None, says: int, *, is_heart: bool) -> None:
        self.node = node
        self.tag = tag
        self.parent = parent
        self.roles = says
        #: Whether this is, or holds, the main landmark or the heading of the page.
        self.is_core = is_heart
        self.is_main = False
        self.children: Sequence[Block] = ()
        self.dropped = False
        #: All text, the part of it in links, and the part of it in sentences.
        self.text = self.link = self.prose = 0
        #: Text that is in no block within this one, and the part of it in links.
        self.own = self.own_link = 0
        self.links = self.headings = self.fields = 0

    @property
    def plain(self) -> int:
        """Characters outside of links."""
        return self.text - self.link

    def add(self, other: Block, sign: int) -> None:
        """Counts what another block holds as held by this one, or no more so."""
        self.text += sign * other.text
        self.link += sign * other.link
        self.prose += sign * other.prose
        self.links += sign * other.links
        self.headings += sign * other.headings
        self.fields += sign * other.fields

    def drop(self) -> None:
        """Takes the block out of the page."""
        self.dropped = True
        above = self.parent
        while above is not None:
            above.add(self, -1)
            above = above.parent

    def is_gone(self) -> bool:
        """Whether the block or anything around it was dropped."""
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
    #: All blocks in document order.
    blocks: list[Block] = field(default_factory=list)
    #: Elements that are no content, outermost only.
    furniture: list[LexborNode] = field(default_factory=list)
    #: Pictures with an alt text, and the blocks that they are in.
    pictures: list[tuple[LexborNode, Block]] = field(default_factory=list)
    #: The main landmarks, outermost only, and the block that is the heading of the page.
    mains: list[Block] = field(default_factory=list)
    heading: Block | None = None
    #: Whether something here can be put into a cart.
    sells: bool = False

    def release(self) -> None:
        """Cuts the ties between the blocks; else they would hold the tree until the garbage collector comes by."""
        for block in self.blocks:
            block.parent = None
            block.children = ()
