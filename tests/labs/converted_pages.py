"""Conversion of a body to a document without a service, for tests of page conversion."""

from __future__ import annotations

from typing import Any

from weblake_service.page.document import Page, page_of_body
from weblake_service.web.fetch import FetchedResponse

URL = "https://site.example/docs/page.html"
HTML = "text/html; charset=utf-8"


def convert(body: str | bytes, content_type: str = HTML, *, url: str = URL, **options: Any) -> Page:
    """Return the page that a response with this body becomes under these scrape options."""
    data = body.encode() if isinstance(body, str) else body
    return page_of_body(FetchedResponse(url, 200, {}, data, content_type, (), "OK"), url, options)


def markdown(body: str | bytes, content_type: str = HTML, **options: Any) -> str:
    """Return the markdown of a body."""
    text = convert(body, content_type, **options).document["markdown"]
    assert isinstance(text, str)
    return text
