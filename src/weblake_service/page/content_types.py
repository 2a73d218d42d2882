"""Detects the content type and the encoding of a response body, and decodes it; XHTML becomes HTML."""

from __future__ import annotations

import codecs
import encodings
import re
from enum import Enum
from functools import lru_cache
from html import unescape
from xml.etree.ElementTree import ParseError, tostring

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring
from w3lib.encoding import html_body_declared_encoding, html_to_unicode, http_content_type_encoding

from weblake_service.files.file_types import HTML, OFFICE_TYPES, PDF, is_html, is_office, is_pdf, type_of_name
from weblake_service.page_failure import PageFailure

#: Bytes that are inspected if the Content-Type is missing or generic.
_INSPECTED_BYTES = 1024
_GENERIC_TYPE_LIST = (
    "application/octet-stream binary/octet-stream application/unknown application/x-download application/download "
    "application/force-download unknown/unknown */*"
)
_GENERIC_TYPES = frozenset(["", *_GENERIC_TYPE_LIST.split()])
_LEADING_BLANKS = b"\xef\xbb\xbf \t\r\n\x0c"
#: Office files are zip files, and some servers declare them as zip only.
_ZIP_TYPES = frozenset(["application/zip", "application/x-zip-compressed"])
_XHTML_TYPES = frozenset(["application/xhtml+xml", "application/vnd.wap.xhtml+xml"])
_HTML_TYPES = _XHTML_TYPES | {"text/html"}
_XML_TYPES = frozenset(["application/xml", "text/xml"])
_XHTML_ROOT = re.compile(rb"<(?:\w+:)?html\s[^<>]*http://www\.w3\.org/1999/xhtml")
#: Named entities, which XML does not define; in a CDATA section they are text.
_ENTITY = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)|&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z][A-Za-z0-9]{1,31};", re.DOTALL)
#: A document type with declarations of its own, and elements that are closed in XML only.
_SUBSET = re.compile(r"\A((?:<[?!][^<>\[]*>\s*)*<!DOCTYPE[^<>\[]*)\[[^\]]*\]")
_SELF_CLOSED = re.compile(r"<((script|style|title|iframe|textarea|noscript|video|a)\b[^<>]*)/>", re.IGNORECASE)
#: Namespaces whose elements HTML has, too; XHTML without a namespace is read as XHTML.
_NAMESPACES = frozenset(
    ["", "{http://www.w3.org/1999/xhtml", "{http://www.w3.org/2000/svg", "{http://www.w3.org/1998/Math/MathML"]
)
_TEXT_TYPE_LIST = (
    "application/json application/xml application/javascript application/x-javascript application/ecmascript "
    "application/x-ndjson application/jsonl application/yaml application/x-yaml application/toml application/csv "
    "application/x-sh application/sql application/graphql application/x-www-form-urlencoded"
)
_TEXT_TYPES = frozenset(_TEXT_TYPE_LIST.split())
#: Codecs of Python that decode any bytes to text and are no charsets.
_NO_CHARSETS = frozenset(
    ["punycode", "idna", "unicode-escape", "unicode_escape", "raw-unicode-escape", "raw_unicode_escape"]
)
#: Names of the Encoding Standard that Python does not have, without their usual prefixes and ends.
_LABEL_PARTS = re.compile(r"(?:x_)*(?:cs_?(?!_)|cn_)?(.*?)(?:_[ei])?")
_LABELS = {
    **dict.fromkeys(["unicode", "ucs_2", "iso_10646_ucs_2", "unicodefeff"], "utf-16-le"),
    **dict.fromkeys(["logical", "visual", "iso88598"], "iso8859-8"),
    **dict.fromkeys(["windows_949", "ks_c_5601_1989", "iso_ir_149", "ksc_5601"], "cp949"),
    **{"unicodefffe": "utf-16-be", "koi": "koi8-r", "koi8": "koi8-r", "koi8_ru": "koi8-u", "mac": "mac-roman"},
    **{"mac_ukrainian": "mac-cyrillic", "dos_874": "cp874", "gb_2312": "gbk", "eucpkdfmtjapanese": "euc_jp"},
}


def _codec_of_label(name: str) -> codecs.CodecInfo | None:
    label = _LABEL_PARTS.fullmatch(name)
    return encodings.search_function(_LABELS.get(label[1], label[1])) if label else None


codecs.register(_codec_of_label)


class ContentKind(Enum):
    """How a body can be processed."""

    HTML = "html"
    TEXT = "text"
    PDF = "pdf"
    OFFICE = "office"
    OTHER = "other"


def kind_of(content_type: str, body: bytes) -> ContentKind:
    """Return the kind of a body: by its Content-Type, or by its first bytes if the type is missing, vague or
    contradicted.

    Servers label unknown content as plain text, and some as HTML.
    """
    mime = re.split(r"[;,\s]", content_type.strip(), maxsplit=1)[0].lower()
    if body[:_INSPECTED_BYTES].lstrip(_LEADING_BLANKS).startswith(b"%PDF-"):
        return ContentKind.PDF
    if mime in PDF.types or mime in OFFICE_TYPES:
        return _document_kind(mime, body)
    if (mime in _HTML_TYPES or mime.startswith("text/")) and is_office(body):
        return ContentKind.OFFICE
    if mime in _HTML_TYPES or (mime in _XML_TYPES and _XHTML_ROOT.search(body[:_INSPECTED_BYTES])):
        return ContentKind.HTML
    if mime == "text/plain" and b"\0" in body[:_INSPECTED_BYTES] and not _is_wide_encoding(content_type, body):
        return ContentKind.OTHER
    if mime.startswith("text/") or mime in _TEXT_TYPES or mime.endswith(("+json", "/json")):
        return ContentKind.TEXT
    if mime.endswith("+xml") and mime != "image/svg+xml":
        return ContentKind.TEXT
    if (mime in _GENERIC_TYPES or mime in _ZIP_TYPES) and is_office(body):
        return ContentKind.OFFICE
    if mime not in _GENERIC_TYPES and "/" in mime:
        return ContentKind.OTHER
    if is_html(body):
        return ContentKind.HTML
    return ContentKind.OTHER if _is_binary(body[:_INSPECTED_BYTES]) else ContentKind.TEXT


def is_readable(content_type: str, body: bytes) -> bool:
    """Return whether a body is what its Content-Type says, and not still compressed."""
    kind = kind_of(content_type, body)
    if kind in {ContentKind.HTML, ContentKind.TEXT}:
        return _is_wide_encoding(content_type, body) or not _is_binary(body[:_INSPECTED_BYTES])
    return kind is ContentKind.OTHER or is_pdf(body) or is_office(body)


def kind_of_upload(name: str, body: bytes) -> ContentKind:
    """Return the kind of an uploaded file: by its bytes if they are conclusive, otherwise by its extension."""
    if is_pdf(body) and not is_html(body):
        return ContentKind.PDF
    if is_office(body):
        return ContentKind.OFFICE
    named = type_of_name(name)
    # Many programs write an HTML table and name the file .xls or .doc.
    if named is HTML or is_html(body):
        return ContentKind.HTML
    return ContentKind.PDF if named is PDF else ContentKind.OFFICE


def _document_kind(mime: str, body: bytes) -> ContentKind:
    """Return the kind of a body that is declared as a document; if the bytes do not match, it is usually an HTML error
    page.
    """
    if is_html(body):
        return ContentKind.HTML
    if is_pdf(body):
        return ContentKind.PDF
    if is_office(body):
        return ContentKind.OFFICE
    if mime in PDF.types:
        return ContentKind.PDF
    # Plain-text tables are often sent with a spreadsheet's type, so that a spreadsheet program opens them.
    return ContentKind.OFFICE if _is_binary(body[:_INSPECTED_BYTES]) else ContentKind.TEXT


def text_of(content_type: str, body: bytes) -> str:
    """Return the body as text.

    The encoding is taken from the byte order mark, then the header, then the page's declaration, then UTF-8, then
    Windows-1252. A declared name that no browser knows is ignored.
    """
    declared = http_content_type_encoding(content_type or None) or html_body_declared_encoding(body)
    # Two or four bytes for each ASCII character have a zero.
    is_narrow = str(declared).startswith(("utf-16", "utf-32")) and b"\0" not in body
    if declared is not None and (is_narrow or not _is_charset(declared)):
        content_type = f"text/html; charset={_guess_encoding(body)}"
    _, text = html_to_unicode(content_type or None, body, auto_detect_fun=_guess_encoding)
    return str(text).removeprefix("\ufeff")


def html_of(content_type: str, body: bytes) -> str:
    """Return the body as HTML: XHTML is read by the rules of XML, by which `<script/>` is closed, if it can be."""
    text = text_of(content_type, body)
    if content_type.partition(";")[0].strip().lower() not in _XHTML_TYPES | _XML_TYPES:
        return text
    text = _SUBSET.sub(r"\1", text.strip(), count=1)
    try:
        root = fromstring(_ENTITY.sub(lambda match: match[0] if match[0][0] == "<" else unescape(match[0]), text))
        for element in root.iter():
            namespace, _, name = element.tag.rpartition("}")
            element.tag = name if namespace in _NAMESPACES else "span"
            for key in [key for key in element.attrib if "}" in key]:
                element.attrib.setdefault(key.rpartition("}")[2], element.attrib.pop(key))
            if name in {"script", "style"}:
                element.text = (element.text or "").replace("</", "<\\/")
        return "<!DOCTYPE html>" + tostring(root, "unicode", "html")
    except (ParseError, DefusedXmlException, RecursionError, ValueError):
        return _SELF_CLOSED.sub(r"<\1></\2>", text)


def fence_language(content_type: str) -> str:
    """Return the language of the code fence for text of this type; empty if no fence is needed."""
    mime = content_type.partition(";")[0].strip().lower()
    if mime.endswith(("/json", "+json")):
        return "json"
    if mime.endswith(("/xml", "+xml")):
        return "xml"
    return ""


def unsupported(content_type: str, url: str) -> PageFailure:
    """Return the failure for a body that cannot be converted to text."""
    called = content_type or "binary data"
    if called.lower().startswith("text/"):
        called = f"binary data that it calls {content_type}"
    message = f"{url} answered with {called}, which holds no text. Leave this URL out."
    return PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)


@lru_cache(maxsize=256)
def _is_charset(name: str) -> bool:
    """Return whether the name of a Python codec is also a charset: other codecs fail, or need quadratic time."""
    if codecs.lookup(name).name in _NO_CHARSETS:
        return False
    try:
        b"a".decode(name, "replace")
    except (LookupError, UnicodeError):
        return False
    return True


def _guess_encoding(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # One invalid byte in a long UTF-8 page must not make the whole page decode as Windows-1252.
        return "windows-1252" if body[: error.start].isascii() else "utf-8"
    return "utf-8"


def _is_wide_encoding(content_type: str, body: bytes) -> bool:
    """Return whether a body is UTF-16 or UTF-32 text, which has NUL bytes but declares its encoding."""
    return (
        body.startswith((b"\xff\xfe", b"\xfe\xff"))
        or "utf-16" in content_type.lower()
        or "utf-32" in content_type.lower()
    )


def _is_binary(head: bytes) -> bool:
    if _is_wide_encoding("", head):
        return False
    return any(byte < 9 or 13 < byte < 27 or 27 < byte < 32 for byte in head)
