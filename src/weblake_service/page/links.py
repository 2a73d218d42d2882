"""Links and images of a page, with absolute URLs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from selectolax.lexbor import LexborHTMLParser, LexborNode

#: Attributes that hold a URL, by tag.
_URL_ATTRIBUTES = (
    ("a[href], area[href], link[href]", "href"),
    ("img[src], source[src], video[src], audio[src], iframe[src], embed[src], track[src], script[src]", "src"),
    ("video[poster]", "poster"),
    ("form[action]", "action"),
    ("blockquote[cite], q[cite]", "cite"),
)
#: Attributes in which lazy-loading pages keep the image URL.
_LAZY_ATTRIBUTES = ("data-src", "data-lazy-src", "data-original")
#: Sources that only hold the place of an image.
_PLACEHOLDER = re.compile(
    r"(?:data:|about:).*|\s*|[^?#]*(?:spacer|placeholder|blank|transparent|pixel|lazy|loading|loader|1x1|dummy)[^/?#]*",
    re.IGNORECASE | re.DOTALL,
)
_BREAKS = re.compile(r"[\t\n\r]")
#: References that are parsed without `urllib`, with the same result: normalised absolute paths, and plain hosts.
_SEGMENT = r"[\w%~+=&,:@!$'()*-][\w%~+=&,:@!$'()*.-]*"
_ABSOLUTE_PATH = re.compile(rf"/(?:{_SEGMENT}/)*(?:{_SEGMENT})?(?:\?[\w%~+=&,:@!$'()*./-]+)?", re.ASCII)
_ORIGIN = re.compile(r"https?://[a-zA-Z0-9.-]+(?::\d+)?(?=[/?#]|$)")
_SIMPLE_URL = re.compile(r"https?://[a-zA-Z0-9.-]+(?:[/?#]|$)")
_REFRESH = re.compile(r"^\s*(?:[\d.]+\s*)?(?:[;,]\s*)?url\s*=\s*[\"']?([^\"']+)", re.IGNORECASE)


def base_of(tree: LexborHTMLParser, url: str) -> str:
    """Return the base URL for relative references."""
    node = tree.css_first("base[href]")
    declared = absolute(node.attributes.get("href"), url) if node is not None else ""
    return declared if is_web(declared) else url


def absolute(reference: str | None, base: str) -> str:
    """Return a reference as an absolute URL; unchanged if it cannot be parsed, empty if there is none."""
    cleaned = (reference or "").strip()
    if _BREAKS.search(cleaned):
        cleaned = _BREAKS.sub("", cleaned)
    # Most references are already absolute or empty, and joining dominates the run time.
    if not cleaned or cleaned.startswith(("http://", "https://", "data:")):
        return cleaned
    if _ABSOLUTE_PATH.fullmatch(cleaned) and (origin := _ORIGIN.match(base)):
        return origin[0] + cleaned
    try:
        return urljoin(base, cleaned)
    except ValueError:
        return cleaned


def is_web(url: str) -> bool:
    """Return whether this is an http or https URL with a host."""
    if _SIMPLE_URL.match(url):
        return True
    if not url.startswith(("http://", "https://")):
        return False
    try:
        parts = urlsplit(url)
        return bool(parts.hostname)
    except ValueError:
        return False


def set_image_sources(tree: LexborHTMLParser) -> None:
    """Set the source of lazy-loaded images to the URL that they will load, also if it is in a noscript element."""
    for image in tree.css("img"):
        _set_image_source(image)
    for image in tree.css("body noscript img[src]"):
        fallback = image.parent
        before = fallback.prev if fallback is not None else None
        while before is not None and before.tag == "-text":
            before = before.prev
        lazy = before.css_first("img") if before is not None and before.tag in {"img", "picture"} else None
        if lazy is not None:
            if _PLACEHOLDER.fullmatch(lazy.attributes.get("src") or ""):
                lazy.attrs["src"] = image.attributes["src"]
        # Elsewhere a lone image is a tracker.
        elif fallback is not None and fallback.parent is not None and fallback.parent.tag in {"figure", "picture"}:
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


def links_in(tree: LexborHTMLParser, url: str, base: str) -> list[str]:
    """Return the http and https links in document order without duplicates; links within the same page are omitted."""
    return _unique(link for link in _read_hrefs(tree, base) if is_web(link) and not _same_page(link, url))


def images_in(tree: LexborHTMLParser, base: str) -> list[str]:
    """Return the http and https URLs of the images in document order without duplicates."""
    found = (absolute(node.attributes.get("src"), base) for node in tree.css("img[src]"))
    return _unique(image for image in found if is_web(image))


def _read_hrefs(tree: LexborHTMLParser, base: str) -> Iterator[str]:
    hrefs = dict.fromkeys(node.attributes.get("href") for node in tree.css("a[href], area[href]"))
    for href in hrefs:
        # "#part" links to the same page, even if <base> points elsewhere.
        if href and not href.strip().startswith("#"):
            yield absolute(href, base)
    for node in tree.css("meta[http-equiv=refresh i][content]"):
        match = _REFRESH.match(node.attributes.get("content") or "")
        if match:
            yield absolute(match[1], base)


def _same_page(link: str, url: str) -> bool:
    return "#" in link and link.partition("#")[0] == url.partition("#")[0]


def _set_image_source(image: LexborNode) -> None:
    """Set the source of an image to the URL that it loads later, or that it shows in the place of a placeholder."""
    attributes = image.attributes
    found = [attributes.get(name) for name in _LAZY_ATTRIBUTES]
    if _PLACEHOLDER.fullmatch(attributes.get("src") or ""):
        found += [attributes.get("data-srcset"), attributes.get("data-lazy-srcset"), attributes.get("srcset")]
        if image.parent is not None and image.parent.tag == "picture":
            sources = (source.attributes for source in image.parent.css("source"))
            found += [one.get(name) for one in sources for name in ("srcset", "data-srcset")]
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
