"""Unwraps declarative shadow roots: `<template shadowrootmode>` becomes the content of its element, as in browsers."""

from __future__ import annotations

from selectolax.lexbor import LexborHTMLParser, LexborNode

_ROOTS = "template[shadowrootmode]"
#: Maximum nesting of shadow roots that are unwrapped.
_MAX_LEVELS = 20
_WRAPPER = "weblake-shadow"


def unwrap_shadow_roots(tree: LexborHTMLParser, levels: int = _MAX_LEVELS) -> None:
    """Put the content of each shadow root in its place, and the children of its element into its slots."""
    for template in tree.css(_ROOTS):
        host = template.parent
        if host is None:
            continue
        for name in template.attributes:
            del template.attrs[name]
        # The content of a template is reachable only through its source.
        source = (template.html or "")[len("<template>") : -len("</template>")]
        content = LexborHTMLParser(f"<body><{_WRAPPER}>{source}</{_WRAPPER}>")
        if levels > 1:
            unwrap_shadow_roots(content, levels - 1)
        wrapper = content.css_first(_WRAPPER)
        if wrapper is not None:
            template.insert_before(wrapper)
        placed = template.prev
        template.decompose()
        if wrapper is not None and placed is not None:
            _fill_slots(host, placed)
            placed.unwrap(delete_empty=True)


def _fill_slots(host: LexborNode, root: LexborNode) -> None:
    slots = {slot.attributes.get("name") or "": slot for slot in reversed(root.css("slot"))}
    used = set[str]()
    for child in [one for one in host.iter(include_text=True) if one.mem_id != root.mem_id]:
        name = "" if child.tag == "-text" else child.attributes.get("slot") or ""
        if name not in slots or (child.tag == "-text" and not (child.text_content or "").strip()):
            continue
        slots[name].insert_before(child, move=True)
        used.add(name)
    for name, slot in slots.items():
        if name in used:
            slot.decompose()
        else:
            slot.unwrap(delete_empty=True)
