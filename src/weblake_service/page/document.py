"""Turns one response or one file into a scrape document."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from urllib.parse import quote

from weblake_service.files.converter_pool import ConverterPool
from weblake_service.files.file_types import HTML, PDF, type_of_name
from weblake_service.files.upload import Upload
from weblake_service.page.content_types import (
    ContentKind,
    kind_of,
    kind_of_upload,
    unsupported,
)
from weblake_service.page.file_documents import FileDocument, as_base64, convert_file
from weblake_service.page.html_page import READERS
from weblake_service.page.parse_process import THREAD_BYTES, is_harmless, read_page
from weblake_service.page.requested_formats import PageOptions, number, read_page_options
from weblake_service.page_failure import PageFailure
from weblake_service.web.fetch import FetchedResponse

_STILL_EMPTY_WARNING = (
    "The page has hardly any text even after its scripts have run: wait for more with `waitFor`, or for an element "
    "with an action."
)
#: The content type of the HTML that a file was converted to.
HTML_TYPE = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """A scraped page."""

    #: The document in its wire form, without a scrape id.
    document: dict[str, object]
    #: The final URL after redirects.
    final_url: str
    #: The http and https links of the whole page in document order, without duplicates, for any requested formats.
    links: list[str]
    #: Price in credits: one, or one for each page of a PDF.
    credits: int = 1
    #: The target's response for the cache; None if it must not be stored.
    fetched: FetchedResponse | None = None
    #: The browser profile after the visit; None if it is not to be saved.
    profile: bytes | None = None
    #: Why scripts seem to fill the page, if it has not been rendered; otherwise empty.
    script_filled: str = ""
    #: Why parts of the page (formats, actions) could not be made, by their names.
    failures: Mapping[str, PageFailure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageOrigin:
    """The origin of a page."""

    #: The URL as requested.
    url: str
    #: The base for relative URLs; empty for none.
    base: str
    #: The name of the page in messages.
    name: str


def with_warning(page: Page, warning: str) -> Page:
    """Return a page with one more warning."""
    document = dict(page.document)
    _add_warning(document, warning)
    return replace(page, document=document)


def _add_warning(document: dict[str, object], warning: str) -> None:
    said = document.get("warning")
    document["warning"] = f"{said} {warning}" if said else warning


async def page_of_response(
    fetched: FetchedResponse, url: str, options: Mapping[str, object], converters: ConverterPool, until: float
) -> Page:
    """Return the response to a URL as a page, until a monotonic time; a target that returns 404 is a page, too.

    `options` are scrape options by their snake_case names: formats (default markdown), only_main_content (true),
    include_tags, exclude_tags, timeout (milliseconds, 60000), remove_base64_images (true), parsers (pdf). Raises
    PageFailure if there is no page to return.
    """
    wanted = replace(read_page_options(options), rendered=fetched.rendered)
    kind = kind_of(fetched.content_type, fetched.body)
    timeout_s = number(options.get("timeout"), 60_000) / 1000
    async with page_deadline(url, timeout_s, until=until, selectors=wanted.selectors):
        return await _page(fetched, kind, PageOrigin(url, fetched.url, url), wanted, converters)


async def page_of_upload(
    read: Callable[[], Upload], options: Mapping[str, object], *, converters: ConverterPool, timeout_s: float
) -> Page:
    """Return an uploaded file as a page whose URL is the file's name.

    The file is read when a converter slot is free; `timeout_s` covers waiting, reading and converting. Raises
    PageFailure if the file cannot be converted.
    """
    wanted = read_page_options(options)
    async with page_deadline("The file", timeout_s, selectors=wanted.selectors), converters.slot():
        file = await asyncio.to_thread(read)
        kind = kind_of_upload(file.name, file.body)
        named = type_of_name(file.name)
        content_type = {ContentKind.HTML: HTML, ContentKind.PDF: PDF}.get(kind) or (
            None if named in {HTML, PDF} else named
        )
        address = f"file:///{quote(file.name)}"
        fetched = FetchedResponse(
            address, 200, body=file.body, content_type=content_type.types[0] if content_type is not None else ""
        )
        # An uploaded file has no URL that its relative links could be resolved against.
        page = await _page(fetched, kind, PageOrigin(address, "", file.name), wanted, converters)
    metadata = page.document["metadata"]
    assert isinstance(metadata, dict)
    metadata["sourceFile"] = file.name
    return page


@asynccontextmanager
async def page_deadline(
    what: str, timeout_s: float, *, until: float | None = None, selectors: Sequence[str] = ()
) -> AsyncIterator[None]:
    """Cancel the block after `timeout_s` seconds, or at the monotonic time `until`, and raise PageFailure."""
    try:
        async with asyncio.timeout(timeout_s if until is None else until - time.monotonic()):
            yield
    except TimeoutError as error:
        costly = ", ".join(repr(one) for one in selectors if not is_harmless(b"", [one]))[:500]
        message = f"{what} was not converted within {timeout_s:g} s. Allow more with `timeout`." + (
            f" Selectors that cost much on a large page: {costly}. Select by name, class or id." if costly else ""
        )
        raise PageFailure("SCRAPE_TIMEOUT", message, status=408) from error


async def _page(
    fetched: FetchedResponse,
    kind: ContentKind,
    source: PageOrigin,
    wanted: PageOptions,
    converters: ConverterPool,
) -> Page:
    if kind.value in READERS:
        read = read_page(converters, kind.value, fetched.content_type, fetched.body, source.base, wanted, source.name)
        return _with_service_metadata(fetched, source, wanted, *await read, 1)
    if kind is ContentKind.OFFICE or (kind is ContentKind.PDF and wanted.parse_pdf):
        pdf = kind is ContentKind.PDF
        readable = await convert_file(converters, fetched.body, source.name, wanted, pdf=pdf)
        return await _converted_page(fetched, readable, source, wanted, converters)
    make = partial(_unconverted_page, fetched, kind, source, wanted)
    return await asyncio.to_thread(make) if len(fetched.body) > THREAD_BYTES else make()


def _unconverted_page(fetched: FetchedResponse, kind: ContentKind, source: PageOrigin, wanted: PageOptions) -> Page:
    if kind is not ContentKind.PDF or wanted.parse_pdf:
        raise unsupported(fetched.content_type, source.name)
    document = as_base64(fetched.body, wanted)
    return _with_service_metadata(fetched, source, wanted, document, [], 1)


async def _converted_page(
    fetched: FetchedResponse, readable: FileDocument, source: PageOrigin, wanted: PageOptions, converters: ConverterPool
) -> Page:
    """Return the page of a converted document.

    The document's HTML is processed like that of a web page; its own markdown is used if there is one.
    """
    document: dict[str, object] = {}
    links = readable.links
    if readable.html:
        html = readable.html.encode("utf-8", "replace")
        # The main-content filter looks for page boilerplate, which a document does not have.
        whole = replace(wanted, only_main_content=False, block_ads=False)
        document, found = await read_page(converters, "html", HTML_TYPE, html, source.base, whole, source.name)
        links = list(dict.fromkeys([*found, *links]))
        document.pop("metadata")
        if "links" in wanted.formats and readable.links:
            document["links"] = links
    if readable.markdown is not None and "markdown" in wanted.formats:
        document = {**document, "markdown": readable.markdown}
    warning = " ".join(str(part) for part in (document.get("warning"), readable.warning) if part)
    document |= {"warning": warning} if warning else {}
    document |= {**readable.extra, "metadata": readable.metadata}
    return _with_service_metadata(fetched, source, wanted, document, links, readable.credits)


def _with_service_metadata(
    fetched: FetchedResponse,
    source: PageOrigin,
    wanted: PageOptions,
    document: dict[str, object],
    links: list[str],
    credits: int,
) -> Page:
    """Return the page with the service's own metadata."""
    for name in ("links", "images"):
        if name in wanted.formats:
            document.setdefault(name, [])
    own = document.pop("metadata", {})
    metadata = dict(own) if isinstance(own, dict) else {}
    script_filled = "" if fetched.rendered else str(metadata.get("scriptFilled", ""))
    if fetched.rendered:
        if metadata.pop("scriptFilled", "") and fetched.script_filled:
            _add_warning(document, _STILL_EMPTY_WARNING)
        metadata |= {"rendered": True} | ({"scriptFilled": fetched.script_filled} if fetched.script_filled else {})
    metadata |= {"sourceURL": source.url, "url": fetched.url, "statusCode": fetched.status}
    if fetched.content_type:
        metadata["contentType"] = fetched.content_type
    if fetched.status >= 400:
        metadata["error"] = fetched.reason or f"HTTP {fetched.status}"
    metadata |= {"proxyUsed": "basic", "cacheState": "miss"}
    # A route in a fragment is a page of its own only in a page that scripts fill.
    home = fetched.url.partition("#")[0]
    routes = {link for link in links if fetched.rendered and link.startswith(f"{home}#")}
    links = list(dict.fromkeys(link if link in routes else link.partition("#")[0] for link in links))
    final = fetched.url if fetched.rendered or script_filled else home
    return Page({**document, "metadata": metadata}, final, links, credits, script_filled=script_filled)
