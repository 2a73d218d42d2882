"""Rewrites parts of an office file that its converter would lose, and finds the words that it lost nevertheless."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from html import escape, unescape

#: Maximum bytes of the parts that are rewritten and compared.
_MAX_BYTES = 64 << 20
_PARTS = re.compile(
    r"word/(?:document|footnotes|endnotes|comments|header\d*|footer\d*)\.xml|xl/(?:sharedStrings|"
    r"(?:comments/)?comments?\d*|worksheets/\w+|drawings/drawing\d*)\.xml|(?:word|xl|ppt)/(?:charts/chart|diagrams/data)"
    r"\d*\.xml|ppt/(?:slides|notesSlides|comments)/\w+\.xml|content\.xml"
)
#: Errors of a damaged or unusual zip file.
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError)
#: Elements around rows, paragraphs and runs that are part of the document, and the properties of such elements.
_WRAPPERS = re.compile(
    r"<w:((?:sdt|customXml|smartTag)(?:End)?Pr)>.*?(?:</w:\1>|\Z)|"
    r"</?w:(?:sdt|sdtContent|customXml|smartTag|ins|moveTo)(?:\s[^<>]*)?/?>",
    re.DOTALL,
)
_SYMBOL = re.compile(r'<w:sym\s(?=[^<>]*w:font="(\w*))[^<>]*w:char="[0-9A-Fa-f]{2}([0-9A-Fa-f]{2})"[^<>]*/>')
#: Characters of two fonts by their codes, as pairs; a box replaces others.
_SYMBOLS = {
    "Symbol": "aαbβgγdδeεzζhηqθiιkκlλmμnνxξpπrρsσtτuυfφcχyψwωDΔGΓQΘLΛXΞPΠSΣFΦYΨWΩ°°±±£≤³≥´×®→¥∞»≈¹≠",
    "Wingdings": "ü✓û✗þ☑ý☒ø→¨☐o☐l●n■",
}
_RUBY = re.compile(
    r"<w:ruby>((?:(?!<w:ruby(?:Base)?>).)*)<w:rubyBase>((?:(?!<w:ruby>).)*?)</w:rubyBase></w:ruby>", re.DOTALL
)
#: Rich text: a group that is raised or lowered, by control words before its text.
_RICH_TEXT = re.compile(rb"\\(super|sub)(?![a-z0-9])((?:\\[a-z]{1,20}+-?\d{0,9}+){0,9}+) ?([^{}\\;]+)(?=\})")
_RICH_MARKS = {b"super": rb"\2\\uc1\\u-1805?\3\\u-1804?", b"sub": rb"\2\\uc1\\u-1803?\3\\u-1802?"}
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_RAISED = re.compile(
    r'((?:Align (?:w:)?val="(su\w+)script"|baseline="(-?)[1-9]\d*")[^<>]*>)((?:(?!<(?:w:|a:)?r[ >]|Align|baseline).)*?)'
    r"(?=</(?:w:|a:)?r>)",
    re.DOTALL,
)
#: OpenDocument: styles of raised and lowered text, and text that may have them.
_POSITION = re.compile(
    r'<style:style style:name="([^"]+)"(?:(?!</?style:style\b).)*?text-position="(?:(-|sub)|super|[1-9])', re.DOTALL
)
_SPAN = re.compile(r'(<text:span text:style-name="([^"]+)">)([^<]+)(?=</text:span>)')
_TEXT = re.compile(r"(<(?:w:|a:)?t(?:\s[^<>]*)?>)([^<]*)|</(?:w:|a:)?(?:p|si|is)>|<(?:w:|a:)(?:tab|br|cr|ptab)\b")
#: Raised and lowered text, marked by characters that pass the converter.
_MARKS = dict.fromkeys(("super", ""), "\uf8f3{}\uf8f4") | dict.fromkeys(("sub", "-"), "\uf8f5{}\uf8f6")
_NO_WORD = re.compile("[\u00ad\u200b\ufeff\uf8f3-\uf8f6]")
_TAGS = str.maketrans({"\uf8f3": "<sup>", "\uf8f4": "</sup>", "\uf8f5": "<sub>", "\uf8f6": "</sub>"})
#: Text that the document does not have, or has twice, and elements within words.
_NO_TEXT = re.compile(
    r"<(mc:Fallback|w:moveFrom|a:fld|rPh|text:tracked-changes)\b(?:[^<>]*/>|.*?(?:</\1>|\Z))", re.DOTALL
)
_INLINE = re.compile(r"</?(?:strong|em|code|del|a|sup|sub|text:(?:span|a))(?:\s[^<>]*)?/?>|\\(?=[\W_])")
_TAG = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"\w+")


def rewrite_parts(body: bytes) -> bytes:
    """Return an office file in which the converter finds all text; unchanged if it is no zip file."""
    if body.startswith(b"{\\rtf"):
        return _RICH_TEXT.sub(lambda match: match.expand(_RICH_MARKS[match[1]]), body)
    file = io.BytesIO(body)
    try:
        with zipfile.ZipFile(file) as archive:
            parts = [(info.filename, part, _rewritten(info.filename, part)) for info, part in _parts(archive)]
        if changed := {name: after for name, before, after in parts if after != before}:
            with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
                # The directory at the end of the file then names the new parts only.
                archive.filelist[:] = [info for info in archive.filelist if info.filename not in changed]
                for name, part in changed.items():
                    del archive.NameToInfo[name]
                    archive.writestr(name, part)
    except ZIP_ERRORS:
        return body
    return file.getvalue()


def with_marks(text: str) -> str:
    """Return converted text with raised and lowered text as HTML."""
    return text.translate(_TAGS)


def missing_words(body: bytes, result: str) -> str:
    """Return a warning that names the parts of a file with words that its HTML or markdown lacks; empty for none."""
    found = _words(_TAG.sub(" ", _INLINE.sub("", result)))
    lost = []
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for info, part in _parts(archive):
                words = _words(_text_of(_NO_TEXT.sub("", part)))
                if info.filename.startswith(("word/header", "word/footer")):
                    words = Counter({word: count for word, count in words.items() if not word.isdigit()})
                if missing := (words - found).total():
                    lost.append(f"{info.filename} ({missing} word{'s' * (missing > 1)})")
                found -= words
    except ZIP_ERRORS:
        return ""
    return f"Text of these parts of the file is not in the result: {', '.join(lost[:10])}." if lost else ""


def _parts(archive: zipfile.ZipFile) -> Iterator[tuple[zipfile.ZipInfo, str]]:
    room = _MAX_BYTES
    for info in archive.infolist():
        if _PARTS.fullmatch(info.filename) and (room := room - info.file_size) >= 0:
            yield info, archive.read(info).decode("utf-8")


def _rewritten(name: str, part: str) -> str:
    if name.startswith("word/"):
        part = _WRAPPERS.sub("", part).replace("<w:noBreakHyphen/>", "<w:t>-</w:t>")
        part = _RUBY.sub(lambda match: f"<w:t>{_text_of(match[2])}({_text_of(match[1])})</w:t>", part)
        part = _SYMBOL.sub(lambda match: f"<w:t>{_symbol(match[1], chr(int(match[2], 16)))}</w:t>", part)
    if name.startswith("xl/") and _ESCAPED.search(part):
        part = re.sub(r">[^<>]*<", lambda match: _ESCAPED.sub(_character, match[0]), part)
    if name == "content.xml":
        marks = {style: _MARKS[lowered] for style, lowered in _POSITION.findall(part)}
        return _SPAN.sub(lambda match: match[1] + marks.get(match[2], "{}").format(match[3]), part)
    return _RAISED.sub(lambda match: match[1] + _marked(match[4], _MARKS[match[2] or match[3]]), part)


def _marked(run: str, mark: str) -> str:
    return _TEXT.sub(lambda match: match[1] + mark.format(match[2]) if match[2] else match[0], run)


def _symbol(font: str, code: str) -> str:
    known = _SYMBOLS.get(font, "")
    return known[known.index(code) + 1] if code in known[::2] else "□"


def _character(match: re.Match[str]) -> str:
    """Return the character that a spreadsheet escapes; empty for a control character or half of one."""
    character = chr(int(match[1], 16))
    return escape(character) if character.isprintable() or character in "\t\n" else ""


def _text_of(part: str) -> str:
    if "<office:body" in part:
        return _TAG.sub(" ", _INLINE.sub("", part.partition("<office:body")[2]))
    return "".join(" " if match[2] is None else match[2] for match in _TEXT.finditer(part))


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(_NO_WORD.sub("", unescape(text)).lower()))
