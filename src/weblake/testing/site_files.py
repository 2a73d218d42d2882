"""Builds small valid files: PDF, DOCX, PNG. Equal content gives equal bytes."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from textwrap import wrap
from xml.sax.saxutils import escape

_LINE, _TOP, _LEFT, _LEADING = 84, 780, 60, 16
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def make_pdf(title: str, pages: Sequence[str]) -> bytes:
    """Return a PDF with a page for each text, in Helvetica; characters outside Windows-1252 become question marks."""
    count = len(pages)
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%b] >>" % (count, b" ".join(b"%d 0 R" % (5 + 2 * n) for n in range(count))),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        b"<< /Title (%b) >>" % _pdf_text(title),
    ]
    for number, text in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >>"
            b" /Contents %d 0 R >>" % (6 + 2 * number)
        )
        shown = _shown(title if number == 0 else "", text)
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(shown), shown))
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info 4 0 R >>\n" % (len(objects) + 1)
    out += b"startxref\n%d\n%%%%EOF\n" % start
    return bytes(out)


def make_docx(title: str, paragraphs: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> bytes:
    """Return a Word document with a heading, paragraphs, and a table."""
    parts = [_paragraph(title, "Heading1"), *(_paragraph(text) for text in paragraphs)]
    if rows:
        lines = "".join(f"<w:tr>{''.join(f'<w:tc>{_paragraph(cell)}</w:tc>' for cell in row)}</w:tr>" for row in rows)
        parts.append(f"<w:tbl><w:tblPr/>{lines}</w:tbl>")
    files = {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{_WORD_TYPE}.document.main+xml"/>'
        f'<Override PartName="/word/styles.xml" ContentType="{_WORD_TYPE}.styles+xml"/></Types>',
        "_rels/.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1"'
        f' Type="{_OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r1"'
        f' Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
        "word/styles.xml": f'{_XML}<w:styles xmlns:w="{_WORD}"><w:style w:type="paragraph" w:styleId="Heading1">'
        '<w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style></w:styles>',
        "word/document.xml": f'{_XML}<w:document xmlns:w="{_WORD}"><w:body>{"".join(parts)}<w:sectPr/></w:body>'
        "</w:document>",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), text.encode(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def make_png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """Return a PNG image of one colour."""
    rows = (b"\x00" + bytes(colour) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")


_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_WORD_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"


def _paragraph(text: str, style: str = "") -> str:
    dressed = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{dressed}<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def _shown(title: str, text: str) -> bytes:
    lines = [b"BT /F1 20 Tf %d %d Td (%b) Tj ET" % (_LEFT, _TOP, _pdf_text(title))] if title else []
    lines.append(b"BT /F1 11 Tf %d TL %d %d Td" % (_LEADING, _LEFT, _TOP - 40))
    for paragraph in text.split("\n\n"):
        lines += [b"(%b) Tj T*" % _pdf_text(line) for line in (*wrap(paragraph, _LINE), "")]
    return b"\n".join([*lines, b"ET"])


def _pdf_text(text: str) -> bytes:
    escaped = text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")
    return escaped.encode("windows-1252", "replace")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
