"""Converts HTML to markdown: headings, nested lists, GFM tables, fenced code with its language.

html-to-markdown does the conversion. This module first rewrites the tree: formulas, marks and numbers become text
(`formulas`, `shown_text`), links fit in one line, code blocks have their language, layout tables are unwrapped, and
inline (base64) images are replaced by their alt text and a placeholder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from html_to_markdown import ConversionOptions, PreprocessingOptions, convert
from selectolax.lexbor import LexborHTMLParser, LexborNode

from weblake_service.page.formulas import Formulas
from weblake_service.page.link_markup import as_block, normalize_links
from weblake_service.page.shown_text import write_shown_text

#: Replaces the URL of a base64 image.
IMAGE_PLACEHOLDER = "Base64-Image-Removed"

# Every option here disables a default that would lose or add text: front matter, "cleaned" navigation and forms, hidden
# tabs. Bullets are the same on every level, so that a diff of two scrapes shows only what changed.
_OPTIONS = ConversionOptions(
    extract_metadata=False,
    hidden_content="reachable",
    preprocessing=PreprocessingOptions(enabled=False),
    bullets="-",
    # HTML that markdown allows, because `103` and `CO^2` are wrong where no program reads `^` as a mark.
    sup_symbol="<sup>",
    sub_symbol="<sub>",
)

#: Graphics, and the line numbers beside code, which are not part of the code.
_OMITTED = "svg, iframe, td.linenos, td.gutter, .linenodiv, .line-numbers-rows, pre .lineno, pre .linenos, pre button"

#: A literal `<` before a letter would be read as a tag by a markdown renderer, and its text would be lost. In code it
#: is left unchanged.
_VERBATIM = re.compile(r"<(!--|(?:pre|code|kbd|samp)\b)")
_ENDS = {"!--": "-->", "pre": "</pre>", "code": "</code>", "kbd": "</kbd>", "samp": "</samp>"}
_LITERAL_TAG = re.compile(r"&lt;(?=[a-zA-Z/!?])")
#: Replaces such a `<` during conversion; a character that pages do not use.
_ESCAPED_TAG = "\uf8f0"
#: Keeps two quotations apart during conversion; and the line that it becomes.
_BETWEEN = "\uf8f7"
_BETWEEN_LINE = re.compile(rf"\n[> ]*\n[> ]*{_BETWEEN}(?=\n)")
_DATA_URL = re.compile(
    r"(\]\(\s{0,9}<?|^\s{0,3}\[[^\]\n]{1,200}\]:\s{0,9}<?)data:[^\s)>]*", re.IGNORECASE | re.MULTILINE
)
#: Elements with meaning but without text; a list item without any of them or text is an icon drawn by CSS.
_MEANINGFUL_TAGS = "img, picture, video, audio, input, object, math, table, pre"
_LAYOUT_TABLES = "table[role=presentation i], table[role=none i], table:has(table), table:has(pre)"
_LANGUAGE = re.compile(r"(?:^|\s)(?:language-|lang-|highlight-source-|highlight-|brush:\s*)([A-Za-z0-9+#_.-]+)")
#: Class words that follow `highlight-` but are not a language.
_NO_LANGUAGE = {"default", "text", "none", "plaintext", "nohighlight", "wrapper", "source", "block", "container"}


def to_markdown(tree: LexborHTMLParser, *, remove_base64_images: bool = True) -> tuple[str, bool]:
    """Return the tree as markdown, and whether it is complete: False if it nests too deep. Changes the tree."""
    # Inner elements first, here and below: a node's descendants are removed with it.
    formulas = Formulas()
    formulas.take_elements(tree)
    write_shown_text(tree)
    for node in reversed(tree.css(_OMITTED)):
        node.decompose()
    for link in tree.css("a:is([href^='javascript:' i], [href^='data:' i])"):
        del link.attrs["href"]
    for player in tree.css(":is(video, audio, source)[src^='data:' i]"):
        del player.attrs["src"]
    # The bold line that a summary becomes cannot hold a heading.
    for summary in reversed(tree.css("summary:has(h1, h2, h3, h4, h5, h6)")):
        as_block(summary)
    _prepare_images(tree, remove_base64_images)
    normalize_links(tree)
    _drop_bare_rows(tree)
    _unwrap_layout_tables(tree)
    for quote in tree.css("blockquote + blockquote"):
        quote.insert_before(_BETWEEN)
    for block in tree.css("code > pre"):
        if block.parent is not None:
            block.parent.unwrap()
    for block in tree.css("pre"):
        _set_language(block)
    # A soft hyphen is not shown, and keeps the word around it from being found.
    html = _outside_code((tree.html or "").replace("\u00ad", ""), formulas)
    result = convert(html, _OPTIONS)
    markdown = _BETWEEN_LINE.sub("", (result.content or "").replace(_ESCAPED_TAG, "\\<")).strip("\n")
    return formulas.restore(markdown), not result.warnings


def _prepare_images(tree: LexborHTMLParser, remove_base64_images: bool) -> None:
    for image in tree.css("img:not([src]), img[src='']"):
        image.decompose()
    # An inline image in another encoding than base64 is as long and as useless in markdown.
    for image in tree.css("img[src*='data:' i]") if remove_base64_images else ():
        if (image.attributes.get("src") or "").lstrip()[:5].lower() == "data:":
            image.attrs["src"] = IMAGE_PLACEHOLDER


def _drop_bare_rows(tree: LexborHTMLParser) -> None:
    for row in reversed(tree.css("li")):
        if not row.text(strip=True) and row.css_first(_MEANINGFUL_TAGS) is None:
            row.decompose()


def without_base64_images(markdown: str) -> str:
    """Return markdown from another source with a placeholder for each data URL."""
    return _DATA_URL.sub(rf"\1{IMAGE_PLACEHOLDER}", markdown)


def fenced(text: str, language: str = "") -> str:
    """Return text as a fenced block whose fence is longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _set_language(block: LexborNode) -> None:
    code = block.css_first("code")
    target = code if code is not None else block
    for node in (code, block, block.parent, block.parent.parent if block.parent is not None else None):
        language = _language_of(node) if node is not None else ""
        if language:
            target.attrs["class"] = f"language-{language}"
            return


def _language_of(node: LexborNode) -> str:
    attributes = node.attributes
    for name in ("data-lang", "data-language", *(("lang",) if node.tag in {"pre", "code"} else ())):
        value = (attributes.get(name) or "").strip()
        if value and len(value.split()) == 1:
            return value.lower()
    classes = attributes.get("class") or ""
    for match in _LANGUAGE.finditer(classes):
        if match[1].lower() not in _NO_LANGUAGE:
            return match[1].lower()
    words = classes.split()
    if "sourceCode" in words:
        return next((word.lower() for word in words if word != "sourceCode"), "")
    return ""


def _outside_code(html: str, formulas: Formulas) -> str:
    """Replace each literal `<` that would be read as a tag, and each formula between delimiters, outside of code.

    A tag within an attribute has no end tag behind it. One search for the last end tag tells this, and not one for each
    such tag.
    """

    def rewrite(text: str) -> str:
        return _LITERAL_TAG.sub(_ESCAPED_TAG, formulas.take_text(text))

    last = {name: html.rfind(end) for name, end in _ENDS.items()}
    parts: list[str] = []
    start = at = 0
    while (found := _VERBATIM.search(html, at)) is not None:
        name, at = found[1], found.end()
        if last[name] >= at:
            end = html.find(_ENDS[name], at)
            parts += (rewrite(html[start : found.start()]), html[found.start() : end])
            start = at = end
    return "".join((*parts, rewrite(html[start:])))


def _unwrap_layout_tables(tree: LexborHTMLParser) -> None:
    tables = tree.css(_LAYOUT_TABLES)
    if not tables:
        return
    # Found once for all tables: nested ones would otherwise be searched once for each table around them.
    cells: dict[int | None, list[LexborNode]] = {}
    for cell in tree.css("td, th, caption"):
        cells.setdefault(_table_of(cell), []).append(cell)
    # Inner tables first: an outer one takes the place of its content.
    for table in reversed(tables):
        own = cells.get(table.mem_id, ())
        if not any(cell.tag == "th" for cell in own):
            _unwrap_cells(table, own)


def _table_of(cell: LexborNode) -> int | None:
    above = cell.parent
    while above is not None and above.tag != "table":
        above = above.parent
    return above.mem_id if above is not None else None


def _unwrap_cells(table: LexborNode, cells: Iterable[LexborNode]) -> None:
    """Replace a layout table by its cells as blocks, in document order."""
    parser = table.parser
    for cell in cells:
        block = parser.create_node("div")
        while (child := cell.child) is not None:
            block.insert_child(child, move=True)
        table.insert_before(block, move=True)
    table.decompose()
