"""Chooses where HTML is parsed: small pages in this process, large ones in a converter process.

A page of a megabyte can be built to take minutes and gigabytes. In a converting process it has a bound for both, and
the service answers meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import msgspec

from weblake_service.files.conversion_messages import ConversionResult, ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.attributes import read_attributes
from weblake_service.page.audio_video import read_media
from weblake_service.page.content_types import text_of
from weblake_service.page.html_page import html_document
from weblake_service.page.requested_formats import PageOptions
from weblake_service.page_failure import PageFailure

#: Bytes from which on a page is read in a thread, so that the event loop goes on.
LARGE = 50_000
#: Bytes from which on it is read in a process of its own: one as large as this can be built to take some seconds.
HEAVY = 250_000


async def read_html(
    converters: ConverterPool, content_type: str, body: bytes, base: str, wanted: PageOptions, name: str
) -> tuple[dict[str, object], list[str]]:
    """The document and all links of a page; `name` says in messages which page it is.

    Raises:
        PageFailure: It cannot be read within the memory of one page, or a selector cannot be run on it.
    """
    if len(body) > HEAVY:
        task = ConversionTask("page", content_type=content_type, base=base, options=msgspec.to_builtins(wanted))
        result = _raise_problem(await converters.convert(task, body), name)
        document, links = result.document, result.links
    else:
        read = partial(html_document, content_type, body, base, wanted)
        document, links = await asyncio.to_thread(read) if len(body) > LARGE else read()
    if "rawHtml" in wanted.formats:
        # It need not pass through the other process twice.
        raw = partial(text_of, content_type, body)
        document["rawHtml"] = await asyncio.to_thread(raw) if len(body) > LARGE else raw()
    return document, links


async def attributes_of(
    converters: ConverterPool, content_type: str, body: bytes, options: Mapping[str, object], name: str
) -> object:
    """The `attributes` format of a page; raises PageFailure as `read_html` does."""
    if len(body) <= HEAVY:
        return await asyncio.to_thread(read_attributes, content_type, body, options)
    task = ConversionTask("attributes", content_type=content_type, options={"formats": options.get("formats")})
    return _raise_problem(await converters.convert(task, body), name).document["attributes"]


async def media_of(
    converters: ConverterPool, content_type: str, body: bytes, wanted: list[str], url: str, name: str
) -> dict[str, object]:
    """The formats `audio` and `video` of a page at a URL; raises PageFailure where it has none, or cannot be read."""
    reads_here = len(body) <= HEAVY
    if reads_here:
        return await asyncio.to_thread(read_media, content_type, body, url, wanted)
    task = ConversionTask("media", content_type=content_type, base=url, options={"wanted": wanted})
    return _raise_problem(await converters.convert(task, body), name).document


def _raise_problem(result: ConversionResult, name: str) -> ConversionResult:
    if not result.problem:
        return result
    if result.problem == "refused":
        raise PageFailure(result.code, result.detail, status=result.status)
    how = "holds more than one page may hold" if result.problem == "large" else "cannot be read as HTML"
    message = f"{name} {how} ({result.detail}). Ask for a part of it with `includeTags`, or leave it out."
    raise PageFailure("SCRAPE_UNSUPPORTED_FILE_ERROR", message)
