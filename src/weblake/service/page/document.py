"""One URL in, one scrape document out.

Imports: depth, failures, fetch, links, main_content, markdown, media, metadata.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape

from selectolax.lexbor import LexborHTMLParser

from weblake.service.failures import PageFailure
from weblake.service.page.depth import flatten
from weblake.service.page.links import base_of, images_in, links_in, resolve_all, settle_images
from weblake.service.page.main_content import Content, select_content
from weblake.service.page.markdown import fenced, to_markdown
from weblake.service.page.media import Kind, fence_of, kind_of, refuse, text_of
from weblake.service.page.metadata import read_metadata
from weblake.service.web.fetch import Fetched, Fetcher

__all__ = ["Page", "PageFailure", "page_of", "scrape"]

#: Formats made here; the rest needs a browser or a language model.
FORMATS = frozenset(["markdown", "html", "rawHtml", "links", "images"])
#: Bytes from which on a page is converted in a thread, so that the event loop goes on.
_LARGE = 50_000
_TOO_DEEP = "The page nests deeper than can be converted; text at the bottom is missing from the markdown."


@dataclass(frozen=True, slots=True)
class Page:
    """A scraped page."""

    #: The document in its wire form, without a scrape id.
    document: dict[str, object]
    #: Where the redirects led.
    final_url: str
    #: The http and https links of the whole page in document order, each once, whatever was asked for.
    links: list[str]
    credits: int = 1


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The options that say what goes into a document."""

    formats: frozenset[str]
    only_main_content: bool
    include_tags: tuple[str, ...]
    exclude_tags: tuple[str, ...]
    remove_base64_images: bool
    parse_pdf: bool


async def scrape(url: str, options: Mapping[str, object], *, fetcher: Fetcher) -> Page:
    """Fetches a URL and returns it as a page; a target that answers 404 is a page with that status.

    `options` are scrape options by their snake_case names: formats (default markdown), only_main_content (true),
    include_tags, exclude_tags, headers, timeout (milliseconds, 60000), skip_tls_verification (true),
    remove_base64_images (true), parsers (pdf). Raises PageFailure where there is no page to return.
    """
    wanted = _wanted(options)
    timeout_s = _number(options.get("timeout"), 60_000) / 1000
    headers = options.get("headers")
    try:
        async with asyncio.timeout(timeout_s):
            fetched = await fetcher.get(
                url,
                headers={str(k): str(v) for k, v in headers.items()} if isinstance(headers, Mapping) else None,
                timeout_s=timeout_s,
                verify=options.get("skip_tls_verification") is False,
            )
            make = partial(_page, fetched, url, wanted)
            return await asyncio.to_thread(make) if len(fetched.body) > _LARGE else make()
    except TimeoutError as error:
        message = f"{url} was not converted within {timeout_s:g} s. Allow more with `timeout`."
        raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error


def page_of(fetched: Fetched, source_url: str, options: Mapping[str, object]) -> Page:
    """Returns what was fetched, or uploaded, as a page; the part of `scrape` that needs no network."""
    return _page(fetched, source_url, _wanted(options))


def _page(fetched: Fetched, source_url: str, wanted: _Wanted) -> Page:
    kind = kind_of(fetched.content_type, fetched.body)
    if kind is Kind.HTML:
        document, links = _html_document(fetched, wanted)
    elif kind is Kind.TEXT:
        document, links = _text_document(fetched, wanted), []
    elif kind is Kind.PDF and not wanted.parse_pdf:
        encoded = base64.b64encode(fetched.body).decode("ascii")
        document, links = dict.fromkeys(sorted(wanted.formats & {"markdown", "html", "rawHtml"}), encoded), []
    else:
        raise refuse(kind, fetched.content_type, source_url)
    for name in ("links", "images"):
        if name in wanted.formats:
            document.setdefault(name, [])
    own = document.pop("metadata", {})
    metadata = dict(own) if isinstance(own, dict) else {}
    metadata |= {"sourceURL": source_url, "url": fetched.url, "statusCode": fetched.status}
    if fetched.content_type:
        metadata["contentType"] = fetched.content_type
    if fetched.status >= 400:
        metadata["error"] = fetched.reason or f"HTTP {fetched.status}"
    metadata |= {"proxyUsed": "basic", "cacheState": "miss"}
    return Page({**document, "metadata": metadata}, fetched.url, links)


def _html_document(fetched: Fetched, wanted: _Wanted) -> tuple[dict[str, object], list[str]]:
    raw = text_of(fetched.content_type, fetched.body)
    source = flatten(raw)
    tree = LexborHTMLParser(source)
    base = base_of(tree, fetched.url)
    links = links_in(tree, fetched.url, base)
    metadata = read_metadata(tree, base)
    content = _content(tree, wanted)
    document: dict[str, object] = {}
    warnings = [content.warning] if content.warning else []
    if "links" in wanted.formats:
        document["links"] = links_in(content.tree, fetched.url, base)
    if "images" in wanted.formats:
        document["images"] = images_in(content.tree, base)
    resolve_all(content.tree, base)
    if "html" in wanted.formats:
        document = {"html": content.tree.html or "", **document}
    if "markdown" in wanted.formats:
        markdown, whole = to_markdown(content.tree, remove_base64_images=wanted.remove_base64_images)
        if not whole:
            shallow = _content(LexborHTMLParser(flatten(source, surely=True)), wanted)
            resolve_all(shallow.tree, base)
            markdown, whole = to_markdown(shallow.tree, remove_base64_images=wanted.remove_base64_images)
        if not whole:
            warnings.append(_TOO_DEEP)
        document = {"markdown": markdown, **document}
    if "rawHtml" in wanted.formats:
        document["rawHtml"] = raw
    if warnings:
        document["warning"] = " ".join(warnings)
    return {**document, "metadata": metadata}, links


def _content(tree: LexborHTMLParser, wanted: _Wanted) -> Content:
    settle_images(tree)
    return select_content(
        tree,
        only_main_content=wanted.only_main_content,
        include_tags=wanted.include_tags,
        exclude_tags=wanted.exclude_tags,
    )


def _text_document(fetched: Fetched, wanted: _Wanted) -> dict[str, object]:
    """Text that is no HTML: JSON and XML in a fence, everything else as it is."""
    text = text_of(fetched.content_type, fetched.body)
    document: dict[str, object] = {}
    if "markdown" in wanted.formats:
        language = fence_of(fetched.content_type)
        document["markdown"] = fenced(text, language) if language and text.strip() else text
    if "html" in wanted.formats:
        document["html"] = f"<pre>{escape(text, quote=False)}</pre>"
    if "rawHtml" in wanted.formats:
        document["rawHtml"] = text
    return document


def _wanted(options: Mapping[str, object]) -> _Wanted:
    parsers = options.get("parsers")
    formats = options.get("formats")
    return _Wanted(
        formats=_formats(["markdown"] if formats is None else _items(formats)),
        only_main_content=options.get("only_main_content") is not False,
        include_tags=tuple(str(tag) for tag in _items(options.get("include_tags"))),
        exclude_tags=tuple(str(tag) for tag in _items(options.get("exclude_tags"))),
        remove_base64_images=options.get("remove_base64_images") is not False,
        parse_pdf=parsers is None or any(_name(parser) == "pdf" for parser in _items(parsers)),
    )


def _formats(asked: Iterable[object]) -> frozenset[str]:
    names = ["rawHtml" if _name(entry) == "raw_html" else _name(entry) for entry in asked]
    for name in names:
        if name not in FORMATS:
            message = f"The format {name!r} is not made by this part of the service. Choose from {sorted(FORMATS)}."
            raise PageFailure("BAD_REQUEST", message, status=400)
    return frozenset(names)


def _name(entry: object) -> str:
    return str(entry.get("type", "")) if isinstance(entry, Mapping) else str(entry)


def _items(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else []


def _number(value: object, default: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else default
