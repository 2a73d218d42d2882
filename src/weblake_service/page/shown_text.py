"""Writes out as text what browsers show by markup: numbers, marks, states, and the names of icons."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser

from weblake_service.page.link_markup import as_block

#: Line numbers in code: elements of these classes that contain digits only.
_LINE_NUMBERS = "pre :is(.ln, .lnt, .line-number, .line-numbers, .linenumber, .hljs-ln-numbers), .rouge-gutter"
_BOX = ":is(input[type=checkbox i], [role=checkbox][aria-checked]:not(:has(input)))"
_ICON = ":is(svg, i:empty, span:empty)"
_WITHOUT_TEXT = (
    ":not([type=hidden i], [type=password i], [type=checkbox i], [type=radio i], [type=file i], [type=image i])"
)
_RAISED_STYLE = re.compile(r"vertical-align:\s*(sup|sub)", re.IGNORECASE)
#: Text that is read correctly without its raised position: notes in brackets, signs, and the ends of ordinal numbers.
_READABLE = re.compile(r"\[.*|\W*|st|nd|rd|th|tm|sm|er|re|e|ème|ère", re.IGNORECASE | re.DOTALL)


def write_shown_text(tree: LexborHTMLParser) -> None:
    """Write out as text what the markdown would lose. Changes the tree."""
    _write_scripts(tree)
    for icon in tree.css(f"td {_ICON}, th {_ICON}"):
        title = icon.css_first("title")
        names = (icon.attributes.get("aria-label"), icon.attributes.get("title"), title.text() if title else "")
        icon.insert_before(next(filter(None, names), ""))
    for player in reversed(tree.css("video, audio")):
        for child in list(player.iter(include_text=True)):
            if child.tag not in {"source", "track"}:
                child.decompose()
    _write_fields(tree)
    if tree.css_first("pre") is not None:
        _write_lines(tree)
    _write_lists(tree)


def _write_scripts(tree: LexborHTMLParser) -> None:
    """Keep raised and lowered text as such where the markdown can, and where it matters."""
    for span in tree.css("span[style*='vertical-align' i]"):
        if (raised := _RAISED_STYLE.search(span.attributes.get("style") or "")) is not None:
            as_block(span, raised[1].lower())
    for script in tree.css("pre :is(sup, sub), code :is(sup, sub), kbd :is(sup, sub), samp :is(sup, sub)"):
        script.insert_before("^" if script.tag == "sup" else "_")
        script.unwrap(delete_empty=True)
    for script in tree.css("sup, sub"):
        if _READABLE.fullmatch(script.text()) or script.css_first("a[href]") is not None:
            script.unwrap(delete_empty=True)


def _write_fields(tree: LexborHTMLParser) -> None:
    for box in tree.css(f"li {_BOX}, td {_BOX}, th {_BOX}"):
        checked = "checked" in box.attributes or box.attributes.get("aria-checked") == "true"
        box.insert_before("[x] " if checked else "[ ] ")
    for field in tree.css(f"input[value]{_WITHOUT_TEXT}"):
        field.insert_before(field.attributes["value"] or "")
    for gauge in tree.css("meter[value], progress[value]"):
        if not gauge.text(strip=True):
            gauge.insert_before(f" {gauge.attributes['value']}/{gauge.attributes.get('max') or 1} ")
    for reading in tree.css("rt"):
        reading.insert_before("(")
        reading.insert_after(")")
    for mark in reversed(tree.css("rp, input")):
        mark.decompose()
    tree.unwrap_tags(["meter", "progress", "output", "object", "ruby", "rb", "rt", "rtc"])


def _write_lines(tree: LexborHTMLParser) -> None:
    """Make the rows of a list or a table in code lines of text, without their numbers."""
    for number in reversed(tree.css(_LINE_NUMBERS)):
        if not number.text(strip=True).strip("0123456789 \n"):
            number.decompose()
    for row in tree.css("pre :is(li, tr)"):
        row.insert_after("\n")
    for box in tree.css("pre :is(ol, ul, li, table, tbody, tr, td)"):
        box.unwrap(delete_empty=True)


def _write_lists(tree: LexborHTMLParser) -> None:
    """Put a list that is a child of a list into the item above it, and begin a new list where the number jumps."""
    for inner in tree.css(":is(ul, ol, menu) > :is(ul, ol, menu)"):
        before = inner.prev
        while before is not None and before.tag in {"-text", "-comment"}:
            before = before.prev
        if before is not None and before.tag == "li":
            before.insert_child(inner, move=True)
    for whole in reversed(tree.css("ol[reversed], ol:has(> li[value])")):
        items = [item for item in whole.iter() if item.tag == "li"]
        step = -1 if "reversed" in whole.attributes else 1
        number = _integer(whole.attributes.get("start"), len(items) if step < 0 else 1)
        part, following = whole, None
        for item in items:
            number = _integer(item.attributes.get("value"), number)
            if number != following:
                part = tree.create_node("ol")
                part.attrs["start"] = str(number)
                whole.insert_before(part, move=True)
            part.insert_child(item, move=True)
            number, following = number + step, number + 1
        whole.unwrap(delete_empty=True)


def _integer(value: str | None, default: int) -> int:
    return int(value) if value and re.fullmatch(r"-?[0-9]{1,9}", value) else default
