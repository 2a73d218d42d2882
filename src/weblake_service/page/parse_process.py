"""Chooses where a page is parsed: harmless pages in this process, all others in a converter process.

A crafted page or selector of a few kilobytes can take minutes and gigabytes. A converter process bounds both, because
it is killed at the deadline of the scrape, and the service stays responsive (docs/decisions/026-html-in-processes.md).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from weblake_service.files.conversion_messages import ConversionResult, ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.content_types import text_of
from weblake_service.page.element_formats import read_attributes, read_media
from weblake_service.page.html_page import READERS, without_marks
from weblake_service.page.requested_formats import PageOptions
from weblake_service.page.selectors import attribute_selectors
from weblake_service.page_failure import PageFailure

#: Bytes from which a body is decoded in a thread, so that the event loop stays responsive.
THREAD_BYTES = 50_000
#: Maximum bytes, tags and selectors of a page that is parsed in this process: the worst arrangement of them takes some
#: hundredths of a second.
_HARMLESS_BYTES, _HARMLESS_TAGS, _HARMLESS_SELECTORS = 16_000, 100, 20
#: Where none of them is in text, no pattern finds anything in it: it needs no process, which would hold copies of it.
_SEARCHED_MARKS = (b"![", b"`", b"\0")
#: Selectors that look at each element once: without combinators and pseudo-classes.
_HARMLESS_SELECTOR = re.compile(r"[\w#.*-]+(?:\[[\w-]+\])?(?:\s*,\s*[\w#.*-]+(?:\[[\w-]+\])?)*")


def is_harmless(body: bytes, selectors: Sequence[str] = ()) -> bool:
    """Return whether a page of this size and these CSS selectors on it take some hundredths of a second at most."""
    return (
        len(body) <= _HARMLESS_BYTES
        and body.count(b"<") <= _HARMLESS_TAGS
        and len(selectors) <= _HARMLESS_SELECTORS
        and all(_HARMLESS_SELECTOR.fullmatch(selector) for selector in selectors)
    )


async def read_page(
    converters: ConverterPool, kind: str, content_type: str, body: bytes, base: str, wanted: PageOptions, name: str
) -> tuple[dict[str, object], list[str]]:
    """Return the document and all links of a page whose kind is `html` or `text`; `name` identifies it in messages.

    Raises:
        PageFailure: The page needs more memory than one page may use, or a selector cannot be run on it.
    """
    if is_harmless(body, wanted.selectors):
        document, links = READERS[kind](content_type, body, base, wanted)
    elif kind == "text" and not any(mark in body for mark in _SEARCHED_MARKS):
        document, links = await asyncio.to_thread(READERS[kind], content_type, body, base, wanted)
    else:
        task = ConversionTask(kind, content_type=content_type, base=base, options=msgspec.to_builtins(wanted))
        result = _raise_problem(await converters.convert(task, body), name)
        document, links = result.document, result.links
    if "rawHtml" in wanted.formats:
        # The HTML need not be sent back from the other process.
        raw = partial(_raw_html, content_type, body)
        document["rawHtml"] = await asyncio.to_thread(raw) if len(body) > THREAD_BYTES else raw()
    return document, links


def _raw_html(content_type: str, body: bytes) -> str:
    return without_marks(text_of(content_type, body))


async def attributes_of(
    converters: ConverterPool, content_type: str, body: bytes, options: Mapping[str, object], name: str
) -> dict[str, object]:
    """Return the format `attributes` of a page; raises PageFailure as `read_page` does."""
    if is_harmless(body, [selector for selector, _ in attribute_selectors(options)]):
        return {"attributes": read_attributes(content_type, body, options)}
    task = ConversionTask("attributes", content_type=content_type, options={"formats": options.get("formats")})
    return _raise_problem(await converters.convert(task, body), name).document


async def media_of(
    converters: ConverterPool, content_type: str, body: bytes, wanted: list[str], url: str, name: str
) -> dict[str, object]:
    """Return the formats `audio` and `video` of a page.

    Raises:
        PageFailure: The page cannot be parsed.
    """
    if is_harmless(body):
        return read_media(content_type, body, url, wanted)
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


def convert_page(body: bytes, task: ConversionTask) -> ConversionResult:
    """Return a page as a document, or the attributes of its elements, or the URLs of its recordings."""
    try:
        if task.kind == "attributes":
            return ConversionResult(document={"attributes": read_attributes(task.content_type, body, task.options)})
        if task.kind == "media":
            return ConversionResult(document=read_media(task.content_type, body, task.base, task.options["wanted"]))
        wanted = msgspec.convert(task.options, PageOptions)
        document, links = READERS[task.kind](task.content_type, body, task.base, wanted)
    except PageFailure as failure:
        return ConversionResult(problem="refused", detail=failure.message, code=failure.code, status=failure.status)
    return ConversionResult(document=document, links=links)
