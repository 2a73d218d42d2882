"""Searches the ancestors of elements."""

from __future__ import annotations

from collections.abc import Container

from selectolax.lexbor import LexborNode


def is_within(node: LexborNode, wanted: Container[int], known: dict[int, bool]) -> bool:
    """Return whether an ancestor of a node is one of `wanted`, which are values of `mem_id`.

    `known` is empty for the first node, and shared by all nodes that are looked up in one tree: without it, the cost of
    many nodes within many others would grow with the square of the page.
    """
    path: list[int] = []
    found = False
    above = node.parent
    while above is not None:
        mem_id = above.mem_id
        if mem_id in wanted or mem_id in known:
            found = mem_id in wanted or known[mem_id]
            break
        path.append(mem_id)
        above = above.parent
    known.update(dict.fromkeys(path, found))
    return found
