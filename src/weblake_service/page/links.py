"""Links and images of a page, with absolute URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

from weblake.api.page_keys import route_of
from weblake_service.page.content_types import text_of
from weblake_service.page.parser_limits import limit_nesting

#: Attributes that hold a URL, by tag.
_URL_ATTRIBUTES = (
    ("a[href], area[href], link[href]", "href"),
    ("img[src], source[src], video[src], audio[src], iframe[src], embed[src], track[src], script[src]", "src"),
    ("video[poster]", "poster"),
    ("form[action]", "action"),
    ("blockquote[cite], q[cite]", "cite"),
)
#: Attributes in which lazy-loading pages keep the image URL.
_LAZY_ATTRIBUTES = ("data-src", "data-lazy-src", "data-original", "data-lazy", "data-echo", "data-cfsrc", "data-ezsrc")
#: Sources that only hold the place of an image.
_PLACEHOLDER = re.compile(
    r"(?:data:|about:).*|\s*|"
    r"(?>[^?#]*/|)[^/?#]*?(?:spacer|placeholder|blank|transparent|pixel|lazy|loading|loader|1x1|dummy)[^/?#]*",
    re.IGNORECASE | re.DOTALL,
)
_IMAGE_FILE = re.compile(r"\.(?:png|jpe?g|gif|webp|avif|svg)(?:[?#]|$)", re.IGNORECASE)
_BREAKS = re.compile(r"[\t\n\r]")
#: Control characters and the space, which browsers remove at the ends of a reference.
_BLANKS = "".join(map(chr, range(33)))
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_WEB_SCHEME = re.compile(r"(https?):[\\/]*", re.IGNORECASE)
_SLASHES = re.compile(r"^/{2,}")
#: What is not escaped in a path, besides letters and digits.
_PATH_SAFE = "%/:@!$&'()*+,;=[]|~"
#: References that are parsed without `urllib`, with the same result: normalised absolute paths, and plain hosts.
_SEGMENT = r"[\w%~+=&,:@!$'()*-][\w%~+=&,:@!$'()*.-]*"
_ABSOLUTE_PATH = re.compile(rf"/(?:{_SEGMENT}/)*(?:{_SEGMENT})?(?:\?[\w%~+=&,:@!$'()*./-]+)?(?:#[\w.-]+)?", re.ASCII)
_ORIGIN = re.compile(r"https?://[a-zA-Z0-9.-]+(?::\d+)?(?=[/?#]|$)")
_SIMPLE_URL = re.compile(r"https?://[a-zA-Z0-9.-]+(?:[/?#]|$)")
#: Characters that no host has.
_NO_HOST = re.compile(r"[\s%<>^|\x00-\x1f\x7f]")
#: The content of a refresh: its delay, and its URL with or without "url=" and quotes.
_REFRESH = re.compile(
    r"""\s*(?:([\d.]+)(?:\s*[;,]\s*|\s+)|(?=url\s*=))(?:url\s*=\s*)?(?:"([^"]*)|'([^']*)|(.*))""",
    re.IGNORECASE | re.DOTALL,
)
#: Bytes of a page that are searched for a refresh, and the maximum delay in seconds and characters of text of a page
#: that only redirects.
_REFRESH_BYTES, _REFRESH_DELAY_S, _REFRESH_TEXT = 16_384, 10, 400


def base_of(tree: LexborHTMLParser, url: str) -> str:
    """Return the base URL for relative references."""
    node = tree.css_first("base[href]")
    declared = absolute(node.attributes.get("href"), url) if node is not None else ""
    return declared if is_web(declared) else url


def absolute(reference: str | None, base: str) -> str:
    """Return a reference as the absolute URL to which browsers resolve it; empty if there is none.

    One with another scheme, or that cannot be parsed, is returned without the blanks around it.
    """
    cleaned = (reference or "").strip(_BLANKS)
    # Most references are already absolute or empty, and joining dominates the run time.
    if not cleaned or cleaned.startswith("data:"):
        return cleaned
    if _ABSOLUTE_PATH.fullmatch(cleaned) and (origin := _ORIGIN.match(base)):
        return origin[0] + cleaned
    if (origin := _ORIGIN.match(cleaned)) and _ABSOLUTE_PATH.fullmatch(cleaned, origin.end()):
        return cleaned
    try:
        return _resolve(_BREAKS.sub("", cleaned), base)
    except ValueError:
        return cleaned


def _resolve(reference: str, base: str) -> str:
    """Return a reference as an absolute URL, by the URL standard; the host keeps its spelling."""
    if (scheme := _SCHEME.match(reference)) is not None and not _WEB_SCHEME.match(reference):
        return reference
    if scheme is not None and base.startswith(f"{scheme[0].lower()}//") and not re.match(r"\w+:[\\/]{2}", reference):
        reference = reference[scheme.end() :]
    place, mark, rest = re.match(r"([^?#]*)([?#]?)(.*)", reference, re.DOTALL).groups()  # type: ignore[union-attr]
    place = _WEB_SCHEME.sub(lambda found: f"{found[1].lower()}://", place.replace("\\", "/"))
    place = _SLASHES.sub("//", place)
    parts = urlsplit(urljoin(base, f"{place}{mark}{rest}"))
    path = parts.path
    if (scheme is not None or place.startswith("//")) and "/." in path and not path.startswith("//"):
        path = urljoin("/", path)
    return urlunsplit(
        parts._replace(
            path=quote(path, _PATH_SAFE, errors="replace"),
            query=quote(parts.query, _PATH_SAFE.replace("'", "") + "?`{}^\\", errors="replace"),
            fragment=quote(parts.fragment, _PATH_SAFE + "?#{}^\\", errors="replace"),
        )
    )


def is_web(url: str) -> bool:
    """Return whether this is an http or https URL with a host."""
    if _SIMPLE_URL.match(url):
        return True
    if not url[:8].lower().startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and _NO_HOST.search(parts.hostname or "") is None
    except ValueError:
        return False


def set_image_sources(tree: LexborHTMLParser) -> None:
    """Set the source of lazy-loaded images to the URL that they will load, also if it is in a noscript element."""
    for image in tree.css("img"):
        _set_image_source(image)
    for image in tree.css("body noscript > img[src]:only-child"):
        fallback = image.parent
        if fallback is None or fallback.parent is None:
            continue
        before = fallback.prev
        while before is not None and before.tag == "-text":
            before = before.prev
        lazy = before.css_first("img") if before is not None and before.tag in {"img", "picture"} else None
        if lazy is not None and _PLACEHOLDER.fullmatch(lazy.attributes.get("src") or ""):
            lazy.attrs["src"] = image.attributes["src"]
        # Elsewhere a lone image is a tracker.
        elif lazy is None and fallback.parent.tag in {"figure", "picture"}:
            fallback.unwrap()


def resolve_all(tree: LexborHTMLParser, base: str) -> None:
    """Make every URL in the tree absolute; call it after `links_in`, which recognises "#part" by its relative form."""
    for selector, name in _URL_ATTRIBUTES:
        for node in tree.css(selector):
            value = node.attributes.get(name)
            resolved = absolute(value, base)
            # A data: URL may be megabytes long and is already absolute.
            if resolved and resolved != value:
                node.attrs[name] = resolved
    for node in tree.css("img[srcset], source[srcset]"):
        node.attrs["srcset"] = ", ".join(
            " ".join((absolute(url, base), *width)) for url, *width in _candidates(node.attributes.get("srcset"))
        )


def links_in(tree: LexborHTMLParser, url: str, base: str, *, routes: bool = False) -> list[str]:
    """Return the http and https links in document order without duplicates; links within the same page are omitted.

    With `routes`, a fragment that is a route is another page, unless it names an element of this one.
    """
    links = (link for link in _read_hrefs(tree, base, routes=routes) if is_web(link))
    ids = {node.attributes["id"] for node in tree.css("[id]")} if routes else set()
    return _unique(link for link in links if not _same_page(link, url) or (routes and _is_route(link, ids)))


def images_in(tree: LexborHTMLParser, base: str) -> list[str]:
    """Return the http and https URLs of the images in document order without duplicates."""
    found = (absolute(node.attributes.get("src"), base) for node in tree.css("img[src]"))
    return _unique(image for image in found if is_web(image))


def refresh_target(content_type: str, body: bytes, url: str, header: str = "") -> str:
    """Return the URL that an HTML page redirects to by a refresh, as browsers do; empty if it does not.

    A refresh without delay always redirects; after some seconds it does if the page has hardly any text.

    Args:
        header: The Refresh header of the response.
    """
    start = body[:_REFRESH_BYTES]
    if not header and b"refresh" not in start.replace(b"\0", b"").lower():
        return ""
    tree = LexborHTMLParser(limit_nesting(text_of(content_type, start)))
    for node in tree.css("noscript, template, script, style"):
        node.decompose()
    base = base_of(tree, url)
    for content, base in [(header, url), *((content, base) for content in _refreshes(tree))]:
        delay, target = _parse_refresh(content)
        if not target or not is_web(target := absolute(target, base)):
            continue
        text = tree.body.text().split() if tree.body is not None else []
        only_redirects = len(body) <= _REFRESH_BYTES and len(" ".join(text)) <= _REFRESH_TEXT
        return target if delay < 1 or (delay <= _REFRESH_DELAY_S and only_redirects) else ""
    return ""


def _refreshes(tree: LexborHTMLParser) -> list[str]:
    return [node.attributes.get("content") or "" for node in tree.css("meta[http-equiv=refresh i][content]")]


def _parse_refresh(content: str) -> tuple[float, str]:
    """Return the delay in seconds and the URL of a refresh; the URL is empty if there is none.

    Without a delay it redirects nowhere in a browser, but its URL is a link.
    """
    match = _REFRESH.match(content)
    if match is None:
        return inf, ""
    delay = inf if match[1] is None else float(match[1].partition(".")[0] or 0)
    return delay, (match[2] or match[3] or match[4] or "").strip()


def _read_hrefs(tree: LexborHTMLParser, base: str, *, routes: bool) -> Iterator[str]:
    hrefs = dict.fromkeys(node.attributes.get("href") for node in tree.css("a[href], area[href]"))
    for href in hrefs:
        # "#part" links to the same page, even if <base> points elsewhere.
        if href and (not href.strip().startswith("#") or (routes and route_of(href.strip()[1:]))):
            yield absolute(href, base)
    for content in _refreshes(tree):
        if target := _parse_refresh(content)[1]:
            yield absolute(target, base)


def _same_page(link: str, url: str) -> bool:
    return "#" in link and link.partition("#")[0] == url.partition("#")[0]


def _is_route(link: str, ids: set[str | None]) -> bool:
    """Return whether a link within a page leads to another route; `#/page?id=name` may name an element of this one."""
    route = route_of(link.partition("#")[2])
    return bool(route) and unquote(route).rpartition("?id=")[2] not in ids


def _set_image_source(image: LexborNode) -> None:
    """Set the source of an image to the URL that it loads later, or that it shows in the place of a placeholder."""
    attributes = image.attributes
    found = [attributes.get(name) for name in _LAZY_ATTRIBUTES]
    if _PLACEHOLDER.fullmatch(attributes.get("src") or ""):
        found += [attributes.get("data-srcset"), attributes.get("data-lazy-srcset"), attributes.get("srcset")]
        if image.parent is not None and image.parent.tag == "picture":
            sources = (source.attributes for source in image.parent.css("source"))
            found += [one.get(name) for one in sources for name in ("srcset", "data-srcset")]
        named = (value for name, value in attributes.items() if name.startswith(("data-", "lazy")))
        found += [value for value in named if value and _IMAGE_FILE.search(value)]
    for candidates in map(_candidates, found):
        # Other values are flags, and templates that a script fills in.
        source = candidates[-1][0] if candidates else ""
        if not source.lower().startswith("data:") and "{" not in source and ("." in source or "/" in source):
            image.attrs["src"] = source
            return


def _candidates(srcset: str | None) -> list[list[str]]:
    """Return the candidates of a srcset with their widths; the last one is usually the largest."""
    if not srcset or srcset.lstrip().lower().startswith("data:"):
        return []
    return [part.split() for part in re.split(r",\s+", srcset.strip().rstrip(",")) if part.split()]


def _unique(urls: Iterator[str]) -> list[str]:
    return list(dict.fromkeys(urls))
