"""Conversion of a body to a document without a service, for tests of page conversion."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from weblake_service.files import worker
from weblake_service.files.conversion_messages import ConversionResult, ConversionTask
from weblake_service.files.converter_pool import ConverterPool
from weblake_service.page.document import Page, page_of_response
from weblake_service.page.requested_formats import number
from weblake_service.web.fetch import FetchedResponse, Fetcher

URL = "https://site.example/docs/page.html"
HTML = "text/html; charset=utf-8"


class _InThisProcess(ConverterPool):
    async def convert(self, task: ConversionTask, body: bytes) -> ConversionResult:
        return worker.convert(task, body)


def convert(body: str | bytes, content_type: str = HTML, *, url: str = URL, **options: Any) -> Page:
    """Return the page that a response with this body becomes under these scrape options."""
    data = body.encode() if isinstance(body, str) else body
    fetched = FetchedResponse(url, 200, {}, data, content_type, (), "OK")
    return asyncio.run(page_of_response(fetched, url, options, _InThisProcess(), time.monotonic() + 600))


def markdown(body: str | bytes, content_type: str = HTML, **options: Any) -> str:
    """Return the markdown of a body."""
    text = convert(body, content_type, **options).document["markdown"]
    assert isinstance(text, str)
    return text


async def scrape(url: str, options: Mapping[str, object], *, fetcher: Fetcher) -> Page:
    """Return the page at a URL, fetched by a fetcher of the test."""
    timeout_s, converters = number(options.get("timeout"), 60_000) / 1000, ConverterPool()
    until = time.monotonic() + timeout_s
    verify = options.get("skip_tls_verification") is False
    try:
        fetched = await fetcher.get(url, timeout_s=timeout_s, verify=verify, refresh=True)
        return await page_of_response(fetched, url, options, converters, until)
    finally:
        await converters.aclose()
