"""Decides whether scripts fill a page: whether what the server sent is the shell of an application, without its text.

No single sign is enough: an empty element, a "Loading…" or a short text stand on many pages that are complete. A page
is a shell if it runs scripts, has hardly any text outside of its navigation, and shows a place that is still to be
filled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

from weblake_service.page.element_classification import (
    ElementRole,
    roles_from_aria,
    roles_from_names,
    roles_from_tag,
    words,
)

#: The attribute of elements that a browser does not show; they are no content, but their links count.
HIDDEN_MARK = "data-weblake-hidden"
#: Characters of text below which a page can be a shell: with a part that is filled later, with a sign of loading or a
#: well-known mount point, and with any empty element.
_MAX_PARTLY_FILLED, _MAX_LOADING, _MAX_EMPTY = 400, 200, 60
#: Links, pictures and table cells from which a short page counts as complete.
_MAX_LINKS, _MAX_PICTURES, _MAX_CELLS = 2, 2, 3
#: A noscript element with so much text has the content of the page; with a call for JavaScript it must have more.
_NOSCRIPT_CHARS, _LONG_NOSCRIPT_CHARS = 200, 1000
_SCRIPTS = "script:not([type]), script[type=''], script[type=module i], script[type*=javascript i]"
#: Parts of a page that a script of a framework fills; the second kind stays marked when it has its text.
_LATER = "astro-island[client=only][ssr], template[data-dgst], [aria-busy=true]"
_LATER_IF_EMPTY = (
    "[hx-get][hx-trigger*=load], [hx-get][hx-trigger*=revealed], [data-hx-get][data-hx-trigger*=load], template[x-for]"
)
_FIELDS = "input:not([type=hidden i], [type=submit i], [type=button i], [type=checkbox i]), select, textarea"
_SKIPPED = words("script style template svg math link meta -comment head")
_PARTS = words("article section main")
_EMBEDDED = words("iframe video audio object embed")
_MAIN = "main, article, [role=main i]"
_CONTAINERS = words("div main section article ul ol tbody")
#: Attributes that name the value that a script writes into an element.
_BINDINGS = ("x-text", "x-html", "v-text", "v-html", "ng-bind", "data-bind")
#: Words in the id of a mount point, and in that of an empty element that is not filled with the page's content.
_MOUNT_NAME = re.compile(
    r"_*(?:\w+[-_])?(?:root|app|application|main|content|page|view|outlet|mount|container|shell|next|nuxt|gatsby|ui)"
    r"(?:[-_](?:root|app|main|content|view|outlet|mount|container|wrapper))?",
    re.IGNORECASE,
)
#: Mount points whose only picture is that of a splash screen.
_SPLASH = frozenset(["root", "app", "__next", "__nuxt", "___gatsby"])
_AUXILIARY_NAME = re.compile(
    r"modal|portal|toast|dialog|tooltip|overlay|drawer|popup|popover|dropdown|wormhole|lightbox|notif|alert|message|error|"
    r"banner|cookie|consent|captcha|chat|widget|badge|gtm|gtag|fb-root|pixel|track|analytic|google|ads?(?:$|[-_])|map|"
    r"share|social|comment|disqus|giscus|utteranc|search|suggest|autocomplete|status|spinner|loader|skip|anchor|clear|"
    r"sentinel|announcer|router-outlet|teleport|chart|button|icon|slider|carousel|swiper|particles|background|player|"
    r"countdown|timer|clock|g_id|(?:^|[-_])(?:bg|top)(?:$|[-_])",
    re.IGNORECASE,
)
_LOADING = re.compile(
    r"(?:(?:the )?(?:app\w*|page|content|data|site) )?(?:is )?(?:loading|initiali[sz]ing|starting(?! (?:at|from|on)\b)|"
    r"fetching|redirecting(?= (?:you )?to |\W*$)|wird geladen|l[aä]dt|lade|chargement|cargando|caricamento|carregando|"
    r"laden|загрузка|加载中|正在加载|読み込み中|로딩)\b(?!.*comment)"
    r"(?:(?: .{0,24}?)?[.…!,:;–-].{0,24}| (?:\w+ )?(?:app\w*|page|site|content|data|seite|daten))?|"
    r"(?:please wait|(?:one|just a) moment|bitte warten|veuillez patienter)\b.{0,24}|\.{3}|…",
    re.IGNORECASE,
)
_CALLS_FOR_SCRIPTS = re.compile(r"java\s?script", re.IGNORECASE)


@dataclass(slots=True)
class _PageParts:
    """What a page shows outside of its navigation."""

    text: int = 0
    links: int = 0
    pictures: int = 0
    cells: int = 0
    has_fields: bool = False
    is_embedding: bool = False
    is_loading: bool = False
    calls_for_scripts: bool = False
    #: The elements that could be mount points if they are empty.
    named: list[LexborNode] = field(default_factory=list)

    @property
    def is_short(self) -> bool:
        """Return whether the page has none of what a short page can consist of."""
        few = self.links <= _MAX_LINKS and self.pictures <= _MAX_PICTURES and self.cells <= _MAX_CELLS
        return few and not self.is_embedding


def script_reason(tree: LexborHTMLParser) -> str:
    """Return why scripts seem to fill this page, as a clause; empty if it has its text.

    `tree` is the page as received, or the DOM of a browser, before its content is selected; it is not changed. Shadow
    roots must have been unwrapped.
    """
    body = tree.body
    if body is None or tree.css_first(_SCRIPTS) is None:
        return ""
    main = tree.css_first(_MAIN)
    # Most pages are complete, and their main part shows it at once.
    if main is not None and _parts(main).text >= _MAX_PARTLY_FILLED:
        return ""
    found = _parts(body)
    if found.text >= _MAX_PARTLY_FILLED:
        return ""
    if not found.has_fields and (tree.css_first(_LATER) or any(map(_is_unfilled, tree.css(_LATER_IF_EMPTY)))):
        return "a part of it is marked as filled later"
    mounts = [node for node in found.named if _is_empty(node)]
    main_mount = next(filter(_is_main_mount, mounts), None)
    most = _MAX_PARTLY_FILLED if main_mount is not None and main_mount.attributes.get("id") in _SPLASH else _MAX_LOADING
    if not found.is_short or found.text >= most or tree.css_first("input[type=password i]") is not None:
        return ""
    if main_mount is not None and (not found.has_fields or found.text < _MAX_EMPTY):
        return f"{_shown(main_mount)} is empty"
    if found.has_fields:
        return ""
    if found.is_loading:
        return "its text says that it is loading"
    if found.text >= _MAX_EMPTY:
        return ""
    if mounts:
        return f"{_shown(mounts[0])} is empty"
    if found.calls_for_scripts:
        return "it asks for JavaScript"
    return "" if found.text or found.pictures else "it has no text"


def _parts(body: LexborNode) -> _PageParts:
    """Return the parts of a page; the traversal ends as soon as there is text enough for a complete page."""
    found = _PageParts()
    todo = [(body, False)]
    while todo and found.text < _MAX_PARTLY_FILLED:
        node, inside = todo.pop()
        for child in node.iter(include_text=True):
            tag = child.tag or ""
            if tag == "-text":
                _add_text(found, child.text_content or "")
            elif tag == "noscript":
                _add_noscript(found, child)
            elif tag not in _SKIPPED and not _is_marginal(found, child, tag, inside=inside):
                _add_element(found, child, tag)
                todo.append((child, inside or tag in _PARTS))
    return found


def _add_text(found: _PageParts, text: str) -> None:
    text = text.strip()
    if text and ("{{" in text or _LOADING.fullmatch(text)):
        found.is_loading = True
    else:
        found.text += len(text)


def _add_noscript(found: _PageParts, node: LexborNode) -> None:
    if HIDDEN_MARK in node.attributes:
        return
    text = " ".join(node.text(separator=" ").split())
    calls = _CALLS_FOR_SCRIPTS.search(text) is not None
    if len(text) >= (_LONG_NOSCRIPT_CHARS if calls else _NOSCRIPT_CHARS):
        found.text += len(text)
    found.calls_for_scripts |= calls


def _add_element(found: _PageParts, node: LexborNode, tag: str) -> None:
    attributes = node.attributes
    if tag == "a":
        found.links += 1
    elif tag == "img":
        found.pictures += 1
        found.text += len((attributes.get("alt") or "").strip())
    elif tag == "td":
        found.cells += 1
    elif tag in ("input", "select", "textarea"):
        found.has_fields |= node.css_matches(_FIELDS)
    elif tag in _EMBEDDED:
        found.is_embedding = True
    elif any(name in attributes for name in _BINDINGS) and not node.text(strip=True):
        found.is_loading = True
    elif tag in _CONTAINERS or "-" in tag:
        name = attributes.get("id") or ""
        if (name or "-" in tag or tag == "main") and not _AUXILIARY_NAME.search(f"{tag} {name}"):
            found.named.append(node)


def _is_unfilled(node: LexborNode) -> bool:
    """Return whether a marked part has no text yet; a template is filled by what comes after it."""
    if node.tag != "template":
        text = node.text(strip=True)
        return not text or _LOADING.fullmatch(text) is not None
    following = node.next
    while following is not None and (following.tag == "-comment" or not following.text(strip=True)):
        following = following.next
    return following is None


def _is_empty(node: LexborNode) -> bool:
    """Return whether an element has no content, or only the picture of a splash screen."""
    is_splash = node.attributes.get("id") in _SPLASH and len(node.css("img")) == 1
    content = "input, iframe, video" if is_splash else "img, input, iframe, video"
    return node.css_first(content) is None and not node.text(strip=True)


def _is_main_mount(node: LexborNode) -> bool:
    """Return whether the name of an empty element says that the whole page goes there."""
    names = (node.tag or "", node.attributes.get("id") or "")
    return names[0] in ("main", "tbody") or any(map(_MOUNT_NAME.fullmatch, names))


def _shown(node: LexborNode) -> str:
    name = node.attributes.get("id")
    return f"<{node.tag} id={name[:40]}>" if name else f"<{node.tag}>"


def _is_marginal(found: _PageParts, node: LexborNode, tag: str, *, inside: bool) -> bool:
    """Return whether an element is navigation, a dialog or hidden, and has not the text of a page.

    Its fields count all the same: a log-in form is often named like navigation.
    """
    attributes = node.attributes
    if HIDDEN_MARK in attributes:
        return True
    roles = roles_from_tag(tag, inside=inside) | roles_from_aria((attributes.get("role") or "").lower(), inside=inside)
    roles |= roles_from_names(attributes.get("class") or "") | roles_from_names(attributes.get("id") or "")
    style = (attributes.get("style") or "").replace(" ", "").lower()
    hidden = "hidden" in attributes or "display:none" in style
    if not (roles & ElementRole.CHROME or hidden):
        return False
    text = len(node.text(strip=True))
    if text >= _MAX_PARTLY_FILLED and text - sum(map(_linked_chars, node.css("a"))) >= _MAX_PARTLY_FILLED:
        return False
    found.has_fields |= not roles & ElementRole.LANDMARK and not hidden and node.css_first(_FIELDS) is not None
    return True


def _linked_chars(link: LexborNode) -> int:
    return len(link.text(strip=True))
