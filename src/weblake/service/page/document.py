"""One URL or one file in, one scrape document out.

Imports: asked, converted, depth, failures, fetch, files, links, main_content, markdown, media, metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from urllib.parse import quote

from selectolax.lexbor import LexborHTMLParser

from weblake.service.failures import PageFailure
from weblake.service.files.converters import Converters
from weblake.service.files.kinds import HTML, PDF, kind_of_name
from weblake.service.files.upload import Upload
from weblake.service.page.asked import Wanted, number, read_wanted
from weblake.service.page.blocked_ads import drop_ads
from weblake.service.page.converted import Readable, as_base64, read_document
from weblake.service.page.depth import flatten
from weblake.service.page.links import base_of, images_in, links_in, resolve_all, settle_images
from weblake.service.page.main_content import Content, select_content
from weblake.service.page.markdown import fenced, to_markdown, without_base64_images
from weblake.service.page.media import Kind, fence_of, kind_of, kind_of_upload, refuse, text_of
from weblake.service.page.metadata import read_metadata
from weblake.service.page.selectors import refuse_costly
from weblake.service.web.fetch import Fetched, Fetcher

__all__ = ["Page", "PageFailure", "page_of", "page_of_upload", "scrape"]

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
    #: What it costs: one, or one for each page of a PDF.
    credits: int = 1


@dataclass(frozen=True, slots=True)
class Source:
    """Where a page comes from."""

    #: As it was asked for.
    url: str
    #: What relative addresses are resolved against; empty for nothing.
    base: str
    #: What messages call it, where that is not its URL.
    name: str = ""

    @property
    def shown(self) -> str:
        return self.name or self.url


async def scrape(
    url: str, options: Mapping[str, object], *, fetcher: Fetcher, converters: Converters | None = None
) -> Page:
    """Fetches a URL and returns it as a page; a target that answers 404 is a page with that status.

    `options` are scrape options by their snake_case names: formats (default markdown), only_main_content (true),
    include_tags, exclude_tags, headers, timeout (milliseconds, 60000), skip_tls_verification (true),
    remove_base64_images (true), parsers (pdf). `converters` are those of the service; without them a document gets a
    process of its own. Raises PageFailure where there is no page to return.
    """
    wanted = read_wanted(options)
    timeout_s = number(options.get("timeout"), 60_000) / 1000
    headers = options.get("headers")
    async with _deadline(url, timeout_s):
        fetched = await fetcher.get(
            url,
            headers={str(k): str(v) for k, v in headers.items()} if isinstance(headers, Mapping) else None,
            timeout_s=timeout_s,
            verify=options.get("skip_tls_verification") is False,
        )
        kind = kind_of(fetched.content_type, fetched.body)
        return await _page(fetched, kind, Source(url, fetched.url), wanted, converters)


async def page_of_upload(
    read: Callable[[], Upload], options: Mapping[str, object], *, converters: Converters, timeout_s: float
) -> Page:
    """Returns an uploaded file as a page, whose address is the file's name; raises PageFailure where it is none.

    The file is read when its turn has come; `timeout_s` is for waiting, reading and converting.
    """
    wanted = read_wanted(options)
    async with _deadline("The file", timeout_s), converters.turn():
        file = await asyncio.to_thread(read)
        kind = kind_of_upload(file.name, file.body)
        named = kind_of_name(file.name)
        content_type = {Kind.HTML: HTML, Kind.PDF: PDF}.get(kind) or (None if named in {HTML, PDF} else named)
        address = f"file:///{quote(file.name)}"
        fetched = Fetched(
            address, 200, body=file.body, content_type=content_type.types[0] if content_type is not None else ""
        )
        # A file has no address that its own relative links could be resolved against.
        page = await _page(fetched, kind, Source(address, "", name=file.name), wanted, converters)
    metadata = page.document["metadata"]
    assert isinstance(metadata, dict)
    metadata["sourceFile"] = file.name
    return page


def page_of(fetched: Fetched, source_url: str, options: Mapping[str, object]) -> Page:
    """Returns HTML or text that was fetched as a page, at once; the part of `scrape` that needs nothing else."""
    wanted = read_wanted(options)
    kind = kind_of(fetched.content_type, fetched.body)
    return _plain_page(fetched, kind, Source(source_url, fetched.url), wanted)


@asynccontextmanager
async def _deadline(what: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        message = f"{what} was not converted within {timeout_s:g} s. Allow more with `timeout`."
        raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error


async def _page(fetched: Fetched, kind: Kind, source: Source, wanted: Wanted, converters: Converters | None) -> Page:
    pdf = kind is Kind.PDF
    if kind is not Kind.OFFICE and not (pdf and wanted.parse_pdf):
        make = partial(_plain_page, fetched, kind, source, wanted)
        return await asyncio.to_thread(make) if len(fetched.body) > _LARGE else make()
    own = converters or Converters()
    try:
        readable = await read_document(own, fetched.body, source.shown, wanted, pdf=pdf)
    finally:
        if own is not converters:
            await own.aclose()
    make = partial(_converted_page, fetched, readable, source, wanted)
    return await asyncio.to_thread(make) if len(readable.html) > _LARGE else make()


def _plain_page(fetched: Fetched, kind: Kind, source: Source, wanted: Wanted) -> Page:
    if kind is Kind.HTML:
        document, links = _html_document(fetched, source.base, wanted)
    elif kind is Kind.TEXT:
        document, links = _text_document(fetched, wanted), []
    elif kind is Kind.PDF and not wanted.parse_pdf:
        document, links = as_base64(fetched.body, wanted), []
    else:
        raise refuse(fetched.content_type, source.shown)
    return _told(fetched, source, wanted, document, links, 1)


def _converted_page(fetched: Fetched, readable: Readable, source: Source, wanted: Wanted) -> Page:
    """A document's own HTML makes what HTML makes of a web page; its markdown stands where it has one."""
    document: dict[str, object] = {}
    links = readable.links
    if readable.html:
        made = replace(fetched, body=readable.html.encode("utf-8", "replace"), content_type="text/html; charset=utf-8")
        # The filter looks for what surrounds an article on a web page.
        document, found = _html_document(made, source.base, replace(wanted, only_main_content=False, block_ads=False))
        links = list(dict.fromkeys([*found, *links]))
        document.pop("metadata")
        if "links" in wanted.formats and readable.links:
            document["links"] = links
    if readable.markdown is not None and "markdown" in wanted.formats:
        document = {**document, "markdown": readable.markdown}
    warning = " ".join(str(part) for part in (document.get("warning"), readable.warning) if part)
    document |= {"warning": warning} if warning else {}
    document |= {**readable.extra, "metadata": readable.metadata}
    return _told(fetched, source, wanted, document, links, readable.credits)


def _told(
    fetched: Fetched, source: Source, wanted: Wanted, document: dict[str, object], links: list[str], credits: int
) -> Page:
    """The page, with what the service itself says of it."""
    for name in ("links", "images"):
        if name in wanted.formats:
            document.setdefault(name, [])
    own = document.pop("metadata", {})
    metadata = dict(own) if isinstance(own, dict) else {}
    metadata |= {"sourceURL": source.url, "url": fetched.url, "statusCode": fetched.status}
    if fetched.content_type:
        metadata["contentType"] = fetched.content_type
    if fetched.status >= 400:
        metadata["error"] = fetched.reason or f"HTTP {fetched.status}"
    metadata |= {"proxyUsed": "basic", "cacheState": "miss"}
    return Page({**document, "metadata": metadata}, fetched.url, links, credits)


def _html_document(fetched: Fetched, url: str, wanted: Wanted) -> tuple[dict[str, object], list[str]]:
    """The document and all links of a page whose relative addresses are resolved against `url`."""
    raw = text_of(fetched.content_type, fetched.body)
    source = flatten(raw)
    tree = LexborHTMLParser(source)
    base = base_of(tree, url)
    links = links_in(tree, url, base)
    metadata = read_metadata(tree, base)
    content = _content(tree, wanted)
    document: dict[str, object] = {}
    warnings = [content.warning] if content.warning else []
    if "links" in wanted.formats:
        document["links"] = links_in(content.tree, url, base)
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


def _content(tree: LexborHTMLParser, wanted: Wanted) -> Content:
    settle_images(tree)
    refuse_costly(tree, (*wanted.include_tags, *wanted.exclude_tags))
    if wanted.block_ads and not wanted.only_main_content and not wanted.include_tags:
        drop_ads(tree)
    return select_content(
        tree,
        only_main_content=wanted.only_main_content,
        include_tags=wanted.include_tags,
        exclude_tags=wanted.exclude_tags,
    )


def _text_document(fetched: Fetched, wanted: Wanted) -> dict[str, object]:
    """Text that is no HTML: JSON and XML in a fence, everything else as it is."""
    text = text_of(fetched.content_type, fetched.body)
    document: dict[str, object] = {}
    if "markdown" in wanted.formats:
        language = fence_of(fetched.content_type)
        shown = without_base64_images(text) if wanted.remove_base64_images else text
        document["markdown"] = fenced(text, language) if language and text.strip() else shown
    if "html" in wanted.formats:
        document["html"] = f"<pre>{escape(text, quote=False)}</pre>"
    if "rawHtml" in wanted.formats:
        document["rawHtml"] = text
    return document
