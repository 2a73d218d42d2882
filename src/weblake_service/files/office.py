"""Converts office files to HTML; runs in a converter process.

The document's structure is converted to HTML, so that formats, tag selectors and images work as on a web page.
Footnotes keep the markdown mark, `[^1]`, in both.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

import anydoc

from weblake_service.files.conversion_messages import ConversionResult, ConversionTask
from weblake_service.files.office_parts import missing_words, rewrite_parts, with_marks
from weblake_service.files.office_properties import properties_of

#: Maximum bytes of inline images in the HTML; further images keep their position and alt text only.
MAX_IMAGE_BYTES = 32 << 20
_NAMED_KINDS = frozenset(["docx", "doc", "odt", "rtf", "xlsx", "xls"])
_SPREADSHEET_KINDS = frozenset(["xlsx", "ods"])
_STYLES = (("code", "code"), ("bold", "strong"), ("italic", "em"), ("strike", "del"))
_NUMBERING = {"lower_alpha": "a", "upper_alpha": "A", "lower_roman": "i", "upper_roman": "I"}
_PROBLEMS: tuple[tuple[type[anydoc.ConvertError], str], ...] = (
    (anydoc.EncryptedError, "encrypted"),
    (anydoc.ResourceLimitError, "large"),
    (anydoc.UnsupportedError, "unsupported"),
)


def read_office(body: bytes, task: ConversionTask) -> ConversionResult:
    """Return an office file as an HTML document."""
    try:
        found = anydoc.format_from_bytes(body)
        if found == "pdf":
            return ConversionResult(problem="broken", detail="a PDF inside another file")
        if found is None and task.named in _NAMED_KINDS:
            found = anydoc.format_from_extension(task.named)
        body = rewrite_parts(body)
        # A sheet of a million cells would take gigabytes as objects, and its markdown does not need them.
        pages = None
        if found in _SPREADSHEET_KINDS:
            pages = [with_marks(anydoc.to_markdown_bytes(body, found, ocr="reject").strip("\n"))]
            if not task.html:
                return ConversionResult(
                    pages=pages, metadata=properties_of(body), warning=missing_words(body, pages[0])
                )
        document = anydoc.to_document(body, found)
    except anydoc.ConvertError as error:
        problem = next((name for kind, name in _PROBLEMS if isinstance(error, kind)), "broken")
        return ConversionResult(problem=problem, detail=str(error))
    writer = _HtmlWriter(document, task.pictures)
    content = with_marks(writer.blocks(document.blocks) + writer.notes(document.notes))
    metadata = properties_of(body)
    title = f"<title>{escape(metadata['title'])}</title>" if "title" in metadata else ""
    html = f'<!DOCTYPE html>\n<html><head><meta charset="utf-8">{title}</head><body>\n{content}</body></html>\n'
    warning = " ".join(filter(None, (writer.warning, missing_words(body, html))))
    return ConversionResult(html=html, pages=pages, metadata=metadata, warning=warning)


class _HtmlWriter:
    def __init__(self, document: anydoc.Document, pictures: bool) -> None:
        self._assets = document.assets
        self._numbers = {note.id: number for number, note in enumerate(document.notes, 1)}
        self._pictures = pictures
        self._room = MAX_IMAGE_BYTES
        self.warning = ""

    def blocks(self, blocks: Sequence[anydoc.Block]) -> str:
        return "".join(self._block(block) for block in _merge_lists(blocks))

    def notes(self, notes: Sequence[anydoc.Note]) -> str:
        return "".join(
            f'<p id="note-{self._numbers[note.id]}">[^{self._numbers[note.id]}]: {self._inside(note.blocks).strip()}'
            "</p>\n"
            for note in notes
        )

    def _block(self, block: anydoc.Block | _MergedList) -> str:
        if isinstance(block, _MergedList):
            return self._list(block.first, block.items)
        match block.kind:
            case "heading":
                level = min(max(block.level or 1, 1), 6)
                return f"<h{level}>{self._inlines(block.content, plain=True)}</h{level}>\n"
            case "paragraph":
                inner = self._inlines(block.content)
                return f"<p>{inner}</p>\n" if inner.strip() else ""
            case "list" if block.list is not None:
                return self._list(block.list, block.list.items)
            case "table" if block.table is not None:
                return self._table(block.table)
            case "block_quote":
                return f"<blockquote>\n{self.blocks(block.blocks or [])}</blockquote>\n"
            case "code_block":
                language = f' class="language-{escape(block.lang)}"' if block.lang else ""
                return f"<pre><code{language}>{escape(block.text or '', quote=False)}</code></pre>\n"
            case "rule":
                return "<hr>\n"
            case "math":
                return f"<p>$${escape(block.text or '', quote=False)}$$</p>\n"
        return ""

    def _list(self, found: anydoc.List, items: Sequence[anydoc.ListItem]) -> str:
        tag = "ul" if found.marker == "bullet" else "ol"
        start = f' start="{found.start}"' if tag == "ol" and found.start != 1 else ""
        kind = f' type="{_NUMBERING[found.marker]}"' if found.marker in _NUMBERING else ""
        inner = "".join(f"<li>{self._item(item)}</li>\n" for item in items)
        return f"<{tag}{start}{kind}>\n{inner}</{tag}>\n"

    def _item(self, item: anydoc.ListItem) -> str:
        label = f"{escape(item.marker_label)} " if item.marker_label else ""
        return label + self._inside(item.blocks)

    def _inside(self, blocks: Sequence[anydoc.Block]) -> str:
        """Return the blocks in an item or a cell.

        A single paragraph, or the first one before a list, is written without a paragraph element.
        """
        if blocks and blocks[0].kind == "paragraph" and all(block.kind == "list" for block in blocks[1:]):
            return self._inlines(blocks[0].content) + self.blocks(blocks[1:])
        return self.blocks(blocks)

    def _table(self, table: anydoc.Table) -> str:
        cells = [[slot.cell for slot in row if slot.cell is not None] for row in table.grid]
        if table.kind == "layout":
            return "".join(f"<div>{self.blocks(cell.blocks)}</div>\n" for row in cells for cell in row)
        head = "".join(self._row(row, "th") for row in cells[: table.header_rows])
        rows = "".join(self._row(row, "td") for row in cells[table.header_rows :])
        head = f"<thead>\n{head}</thead>\n" if head else ""
        return f"<table>\n{head}<tbody>\n{rows}</tbody>\n</table>\n"

    def _row(self, row: Iterable[anydoc.Cell], tag: str) -> str:
        return f"<tr>{''.join(self._cell(cell, tag) for cell in row)}</tr>\n"

    def _cell(self, cell: anydoc.Cell, tag: str) -> str:
        spans = f' colspan="{cell.col_span}"' if cell.col_span > 1 else ""
        spans += f' rowspan="{cell.row_span}"' if cell.row_span > 1 else ""
        return f"<{tag}{spans}>{self._inside(cell.blocks)}</{tag}>"

    def _inlines(self, inlines: Sequence[anydoc.Inline] | None, *, plain: bool = False) -> str:
        """Return the inlines as HTML; adjacent ones of equal style are merged, since word processors split text
        arbitrarily.

        `plain` omits the styles: a heading is already bold.
        """
        parts: list[str] = []
        text = ""
        style: tuple[str, ...] = ()
        for inline in inlines or ():
            if inline.kind == "text":
                now = () if plain else _style_of(inline)
                if now != style and (inline.text or "").strip():
                    parts.append(_apply_style(text, style))
                    text, style = "", now
                text += inline.text or ""
                continue
            parts += [_apply_style(text, style), self._inline(inline)]
            text, style = "", ()
        return "".join([*parts, _apply_style(text, style)])

    def _inline(self, inline: anydoc.Inline) -> str:
        match inline.kind:
            case "link":
                return self._link(inline)
            case "image":
                return self._image(inline)
            case "note_ref":
                return f"<sup>[^{self._numbers.get(inline.note_id or '', '?')}]</sup>"
            case "line_break":
                return "<br>"
            case "math":
                return f"${escape(inline.text or '', quote=False)}$"
            case "checkbox":
                return "[x] " if inline.checked else "[ ] "
        return ""

    def _link(self, inline: anydoc.Inline) -> str:
        inner, target = self._inlines(inline.content), inline.target
        if target is None or target.kind == "anchor" or target.value.lower().lstrip().startswith("javascript:"):
            return inner
        return f'<a href="{escape(target.value)}">{inner or escape(target.value)}</a>'

    def _image(self, inline: anydoc.Inline) -> str:
        alt, source = escape(inline.alt or ""), inline.source
        if source is None or source.kind == "unavailable":
            return alt
        if source.url is not None:
            return f'<img src="{escape(source.url)}" alt="{alt}">'
        return f'<img src="{self._data_url(source.asset_id)}" alt="{alt}">'

    def _data_url(self, number: int | None) -> str:
        asset = self._assets[number] if number is not None and number < len(self._assets) else None
        kind = asset.media_type if asset is not None and asset.media_type.startswith("image/") else "image/png"
        data = ""
        if self._pictures and asset is not None:
            if len(asset.data) <= self._room:
                self._room -= len(asset.data)
                data = base64.b64encode(asset.data).decode("ascii")
            else:
                self.warning = f"Pictures beyond {MAX_IMAGE_BYTES >> 20} MiB are left out."
        return f"data:{escape(kind)};base64,{data}"


class _MergedList:
    """Several lists merged into one numbered list: some word processors make each item a separate list."""

    def __init__(self, first: anydoc.List) -> None:
        self.first = first
        self.items = list(first.items)


def _merge_lists(blocks: Sequence[anydoc.Block]) -> list[anydoc.Block | _MergedList]:
    joined: list[anydoc.Block | _MergedList] = []
    for block in blocks:
        found = block.list if block.kind == "list" else None
        if found is None or found.marker == "bullet":
            joined.append(block)
        elif joined and isinstance(last := joined[-1], _MergedList) and last.first.marker == found.marker:
            last.items += found.items
        else:
            joined.append(_MergedList(found))
    return joined


def _style_of(inline: anydoc.Inline) -> tuple[str, ...]:
    style = inline.style
    return tuple(tag for name, tag in _STYLES if style is not None and getattr(style, name))


def _apply_style(text: str, style: Sequence[str]) -> str:
    """Return text with its style; surrounding spaces are kept outside, as markdown requires."""
    inner = text.strip()
    if not inner or not style:
        return escape(text, quote=False)
    before, _, after = text.partition(inner)
    opened = "".join(f"<{tag}>" for tag in style)
    closed = "".join(f"</{tag}>" for tag in reversed(style))
    return f"{before}{opened}{escape(inner, quote=False)}{closed}{after}"
