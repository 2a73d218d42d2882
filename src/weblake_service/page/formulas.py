"""Gives each formula of a page once, as TeX between dollar signs, in whichever way the page carries it."""

from __future__ import annotations

import re
from html import unescape

from selectolax.lexbor import LexborHTMLParser, LexborNode

from weblake_service.page.ancestors import is_within

_ATTRIBUTES = ("alttext", "data-latex", "data-tex", "data-katex", "data-math", "data-value", "alt")
_CARRIERS = (
    "math, :is(span, div, p, i, code, img):is([data-latex], [data-tex], [data-katex]), [class*='math'][data-math], "
    ".ql-formula[data-value], img[class*='mwe-math'], img.tex, img.latex, img[eeimg], img[src*='latex.codecogs.com'], "
    "img[src*='/latex.php'], .math.inline, .math.display, .js-render-math, d-math, math-field, tex-math"
)
#: Classes of the elements that MathJax, KaTeX and MediaWiki put around the renderings of one formula.
_RENDERING = re.compile(
    r"(?:^|\s)(?:katex(?:-mathml|-display)?|mwe-math-(?:element|mathml-\S+)|MathJax\w*|MJX_\w+)(?!\S)"
)
_DELIMITED = re.compile(
    r"\\\((?:[^\\<]|\\[^()<])+\\\)|\$\$[^$<]+\$\$|\\\[(?:[^\\<]|\\[^\[\]<])+\\\]|"
    r"\\begin\{([a-zA-Z]+\*?)\}[^<]{1,1000}?\\end\{\1\}|\$(?![\s$])[^$<]*(?<!\s)\$(?!\d)"
)
#: Text that is not a formula, or that markdown does not change: prices, and brackets escaped in a text about markdown.
_NO_FORMULA = re.compile(r"\$(?:(?!\\[a-zA-Z]).)*|\\\[[\w\s,.-]*\\\]", re.DOTALL)
_WRAPPED = re.compile(r"(?:\$\$?|\\[(\[]|\{\\(?:display|text)style\b)(.*?)(?:\$\$?|\\[)\]]|\})", re.DOTALL)
#: Maximum number of delimiters, each within the other, that are taken off a formula.
_MAX_WRAPPED = 4
_COMMENT = re.compile(r"(?<!\\)%[^\n]*(\n|\Z)")
_PLACEHOLDER = re.compile("\uf8f1(\\d+)\uf8f2")
#: MathML elements as TeX; other elements are their content.
_MATHML = {
    **dict.fromkeys(("msub", "munder"), "{0}_{{{1}}}"),
    **dict.fromkeys(("msup", "mover"), "{0}^{{{1}}}"),
    **dict.fromkeys(("msubsup", "munderover"), "{0}_{{{1}}}^{{{2}}}"),
    **{"mfrac": r"\frac{{{0}}}{{{1}}}", "mroot": r"\sqrt[{1}]{{{0}}}", "msqrt": r"\sqrt{{{all}}}"},
    **{"mfenced": "({all})", "mtd": "{all} & ", "mtr": r"{all}\\ ", "annotation": "", "annotation-xml": ""},
}


def keep_tex_scripts(tree: LexborHTMLParser) -> None:
    """Replace each script with a formula, and the renderings before it, by a math element: scripts are not content."""
    for script in tree.css("script[type^='math/' i]"):
        kind = (script.attributes["type"] or "").lower()
        while (before := script.prev) is not None and (_is_rendering(before) or not (before.html or "").strip()):
            before.decompose()
        math = tree.create_node("math")
        markup = LexborHTMLParser(script.text()).css_first("math") if "mml" in kind else None
        math.attrs["alttext"] = script.text() if markup is None else _translate(markup)
        math.attrs["display"] = "block" if "display" in kind else "inline"
        script.insert_before(math, move=True)
        script.decompose()


class Formulas:
    """The formulas of a page: markdown is made with placeholders for them, because escapes would change TeX."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def take_elements(self, tree: LexborHTMLParser) -> None:
        """Replace each element with a formula, and the elements around all its renderings, by a placeholder."""
        chosen: dict[int, tuple[LexborNode, str]] = {}
        known: dict[int, bool] = {}
        for node in tree.css(_CARRIERS):
            whole = node
            while whole.parent is not None and _is_rendering(whole.parent):
                whole = whole.parent
            if whole.mem_id not in chosen and not is_within(whole, chosen, known) and (tex := _tex_of(node)):
                chosen[whole.mem_id] = (whole, self._take(tex, display=_is_display(node) or _is_display(whole)))
        for whole, placeholder in chosen.values():
            whole.insert_before(placeholder)
            whole.decompose()

    def take_text(self, html: str) -> str:
        """Return HTML with placeholders for TeX between delimiters."""
        if "$" not in html and "\\" not in html:
            return html
        return _DELIMITED.sub(
            lambda match: match[0] if _NO_FORMULA.fullmatch(match[0]) else self._take(unescape(match[0])), html
        )

    def restore(self, markdown: str) -> str:
        """Return the markdown with its formulas; each once, because a page may have such characters itself."""
        lines = markdown.replace("\uf8f2\uf8f1", "\uf8f2 \uf8f1").split("\n") if self._found else [markdown]
        for at, line in enumerate(lines):
            parts = _PLACEHOLDER.split(line)
            bar = r"\|" if line.lstrip(" >-").startswith("|") else "|"
            parts[1::2] = [self._found.pop(number, "").replace("|", bar) for number in parts[1::2]]
            lines[at] = "".join(parts)
        return "\n".join(lines)

    def _take(self, tex: str, *, display: bool = False) -> str:
        sign = "$$" if display or tex.startswith((r"\begin", r"\[", "$$")) else "$"
        for _ in range(_MAX_WRAPPED):
            wrapped = _WRAPPED.fullmatch(tex.strip())
            tex = tex if wrapped is None else wrapped[1]
        number = str(len(self._found))
        tex = _COMMENT.sub(lambda comment: " " if comment[1] else comment[0], tex)
        self._found[number] = f"{sign}{' '.join(tex.split())}{sign}"
        return f"\uf8f1{number}\uf8f2"


def _is_rendering(node: LexborNode) -> bool:
    named = node.tag in {"span", "div"} and _RENDERING.search(node.attributes.get("class") or "") is not None
    return named or (node.tag or "").startswith("mjx-")


def _is_display(node: LexborNode) -> bool:
    names = f"{node.attributes.get('class')} {node.attributes.get('data-math-style')}"
    return "display" in names or node.attributes.get("display") in {"block", "true"}


def _tex_of(node: LexborNode) -> str:
    """Return the TeX of an element; empty if its content is a rendering instead."""
    if node.tag == "math" and (annotation := node.css_first("annotation[encoding*='tex' i]")) is not None:
        return annotation.text().strip()
    if value := next(filter(None, map(node.attributes.get, _ATTRIBUTES)), ""):
        return value.strip()
    if node.tag == "math":
        return _translate(node).strip()
    return node.text().strip() if all(child.tag == "-text" for child in node.iter(include_text=True)) else ""


def _translate(node: LexborNode) -> str:
    """Return MathML as TeX."""
    if node.tag == "-text":
        return (node.text_content or "").strip(" \t\r\n\u2061\u2062\u2063")
    parts = [_translate(child) for child in node.iter(include_text=True, skip_empty=True)]
    return _MATHML.get(node.tag or "", "{all}").format(*parts, "", "", "", all="".join(parts))
