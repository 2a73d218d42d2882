"""Parses pages that may be costly; runs in a converter process."""

from __future__ import annotations

import msgspec

from weblake_service.files.conversion_messages import ConversionResult, ConversionTask
from weblake_service.page.element_formats import read_attributes, read_media
from weblake_service.page.html_page import READERS
from weblake_service.page.requested_formats import PageOptions
from weblake_service.page_failure import PageFailure


def read_page(body: bytes, task: ConversionTask) -> ConversionResult:
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
