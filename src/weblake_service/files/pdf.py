"""Converts a PDF to markdown page by page; runs in a converter process.

One library finds headings, lists and columns but loses text on some pages; the other reads all text without structure.
A page of the first is used if it keeps four fifths of the words, otherwise the page of the second.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from html import escape

import pdf_inspector
import pypdfium2
import pypdfium2.raw as pdfium
from markdown_it import MarkdownIt

from weblake_service.files.conversion_messages import ConversionResult, ConversionTask

#: The minimum share of a page's words that its markdown must keep.
MIN_KEPT_SHARE = 0.8
#: Maximum number of links that are returned, and maximum bytes of one.
_MAX_LINKS, _MAX_LINK_BYTES = 10_000, 8192
_WORD = re.compile(r"\w+")
_UNDERLINE_TAG = re.compile(r"</?u>")
#: Metadata fields of a PDF, and their metadata keys.
_INFO = {
    "Title": "title",
    "Subject": "subject",
    "Keywords": "keywords",
    "Author": "author",
    "Creator": "creator",
    "Producer": "producer",
    "CreationDate": "creationDate",
    "ModDate": "modDate",
}


def read_pdf(body: bytes, task: ConversionTask) -> ConversionResult:
    """Return the pages of a PDF as markdown."""
    try:
        document = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        encrypted = "password" in str(error).lower() or "security" in str(error).lower()
        return ConversionResult(problem="encrypted" if encrypted else "broken", detail=str(error))
    try:
        total = len(document)
        if not total:
            return ConversionResult(problem="broken", detail="no pages")
        result = ConversionResult(total_pages=total, metadata=_document_info(document))
        count = min(total, task.max_pages or total)
        marked = _markdown_pages(body, count if count < total else None)
        read = [_read_page(document, number, marked.get(number, ""), result) for number in range(count)]
        found = max((number for number, page in enumerate(read, 1) if page is not None), default=0)
        if not found:
            return ConversionResult(problem="broken", detail="no page can be read")
        # A file of a few bytes can declare a million pages: those behind the last one are not pages.
        if found < count:
            result.total_pages = found
        pages = result.pages = [page or "" for page in read[:found]]
        if missing := read.count(None):
            result.warning = f"{missing} of {count} pages that the file declares cannot be read."
        if task.html:
            result.html = _html_of("\n\n".join(pages), result.metadata.get("title", ""))
        return result
    finally:
        document.close()


def _read_page(document: pypdfium2.PdfDocument, number: int, marked: str, result: ConversionResult) -> str | None:
    """Return the text of a page; None if neither library can read the page."""
    try:
        page = document[number]
    except pypdfium2.PdfiumError:
        # A page that cannot be opened loses its own text only.
        return marked or None
    try:
        chosen = choose_text(marked, _text_of(page))
        if not chosen and next(iter(page.get_objects(max_depth=2)), None) is not None:
            result.scanned.append(number + 1)
        _add_links(document, page, result.links)
        return chosen
    finally:
        page.close()


def choose_text(marked: str, plain: str) -> str:
    """Return the markdown of a page, or its plain text if the markdown lost too much text."""
    words = Counter(_WORD.findall(plain.lower()))
    kept = sum((words & Counter(_WORD.findall(marked.lower()))).values())
    return (
        marked.strip()
        if kept >= MIN_KEPT_SHARE * words.total() and (marked.strip() or not words)
        else _paragraphs(plain)
    )


def _markdown_pages(body: bytes, count: int | None) -> dict[int, str]:
    """Return the markdown of the first pages, by number from 0; empty if the library cannot read the document."""
    try:
        read = pdf_inspector.extract_pages_markdown_bytes(body, None if count is None else list(range(count)))
    except BaseException as error:
        # A panic of the Rust library is not an Exception.
        if isinstance(error, MemoryError):
            raise
        return {}
    # Underlining is inferred from lines drawn under text, which may be table borders.
    return {page.page: _UNDERLINE_TAG.sub("", page.markdown) for page in read.pages}


def _html_of(markdown: str, title: str) -> str:
    content = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).render(markdown)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>' if title else '<meta charset="utf-8">'
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{content}</body></html>\n"


def _text_of(page: pypdfium2.PdfPage) -> str:
    text = page.get_textpage()
    try:
        return str(text.get_text_bounded()).replace("\r\n", "\n").replace("\x00", "")
    except pypdfium2.PdfiumError:
        return ""
    finally:
        text.close()


def _paragraphs(text: str) -> str:
    """Return plain text as markdown that keeps its line breaks."""
    text = text.replace("\ufffe", "").strip()
    return re.sub(r"[ \t]+\n", "\n", text)


def _document_info(document: pypdfium2.PdfDocument) -> dict[str, str]:
    found = {ours: _info_value(document, theirs) for theirs, ours in _INFO.items()}
    return {name: text for name, text in found.items() if text.strip()}


def _info_value(document: pypdfium2.PdfDocument, name: str) -> str:
    """Return a metadata field; empty if it is broken UTF-16, because the document itself is readable."""
    try:
        return str(document.get_metadata_value(name)).replace("\x00", "")
    except UnicodeDecodeError:
        return ""


def _add_links(document: pypdfium2.PdfDocument, page: pypdfium2.PdfPage, links: list[str]) -> None:
    """Add the web URLs of a page's link annotations."""
    position, link = ctypes.c_int(0), pdfium.FPDF_LINK()
    while len(links) < _MAX_LINKS and pdfium.FPDFLink_Enumerate(page, position, link):
        action = pdfium.FPDFLink_GetAction(link)
        if not action:
            continue
        buffer = ctypes.create_string_buffer(_MAX_LINK_BYTES)
        length = pdfium.FPDFAction_GetURIPath(document, action, buffer, _MAX_LINK_BYTES)
        url = buffer.value.decode("utf-8", "replace") if 0 < length <= _MAX_LINK_BYTES else ""
        if url.startswith(("http://", "https://")) and url not in links:
            links.append(url)
