"""Chooses where HTML is parsed: small pages in this process, large ones in a converter process.

A crafted page of a megabyte can take minutes and gigabytes to parse. A converter process bounds both, and the service
stays responsive (docs/decisions/026-html-in-processes.md).
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

#: Bytes from which a page is parsed in a thread, so that the event loop stays responsive.
THREAD_BYTES = 50_000
#: Bytes from which a page is parsed in a separate process: a crafted page of this size can take seconds.
PROCESS_BYTES = 250_000


async def read_html(
    converters: ConverterPool, content_type: str, body: bytes, base: str, wanted: PageOptions, name: str
) -> tuple[dict[str, object], list[str]]:
    """Return the document and all links of a page; `name` identifies the page in messages.

    Raises:
        PageFailure: The page needs more memory than one page may use, or a selector cannot be run on it.
    """
    if len(body) > PROCESS_BYTES:
        task = ConversionTask("page", content_type=content_type, base=base, options=msgspec.to_builtins(wanted))
        result = _raise_problem(await converters.convert(task, body), name)
        document, links = result.document, result.links
    else:
        read = partial(html_document, content_type, body, base, wanted)
        document, links = await asyncio.to_thread(read) if len(body) > THREAD_BYTES else read()
    if "rawHtml" in wanted.formats:
        # The HTML need not be sent back from the other process.
        raw = partial(text_of, content_type, body)
        document["rawHtml"] = await asyncio.to_thread(raw) if len(body) > THREAD_BYTES else raw()
    return document, links


async def attributes_of(
    converters: ConverterPool, content_type: str, body: bytes, options: Mapping[str, object], name: str
) -> dict[str, object]:
    """Return the format `attributes` of a page; raises PageFailure as `read_html` does."""
    if len(body) <= PROCESS_BYTES:
        return {"attributes": await asyncio.to_thread(read_attributes, content_type, body, options)}
    task = ConversionTask("attributes", content_type=content_type, options={"formats": options.get("formats")})
    return _raise_problem(await converters.convert(task, body), name).document


async def media_of(
    converters: ConverterPool, content_type: str, body: bytes, wanted: list[str], url: str, name: str
) -> dict[str, object]:
    """Return the formats `audio` and `video` of a page.

    Raises:
        PageFailure: The page cannot be parsed.
    """
    reads_here = len(body) <= PROCESS_BYTES
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
