"""How a test reads the demo's site: by its links, as a crawler would."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest

from weblake.demo.site import Page, Site


class _Hrefs(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _links(site: Site, page: Page) -> set[str]:
    parser = _Hrefs()
    parser.feed(page.body.decode("utf-8", "replace") if page.is_html else "")
    return {urljoin(site.base + page.path, href).partition("#")[0] for href in parser.found} - {site.base + page.path}


@pytest.fixture(scope="session")
def links() -> Callable[[Site, Page], set[str]]:
    """The absolute URLs that a page of the site links to, without itself."""
    return _links
