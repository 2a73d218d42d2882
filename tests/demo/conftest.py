"""How a test reads the demo's site: by its links, as a crawler would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import pytest

from weblake.demo.site import Page, Site


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.fixture
def demo(request: pytest.FixtureRequest, tmp_path: Path, scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """Start the demo as a process, as if what the test's module calls NOT_INSTALLED were not, with TMPDIR `scratch`."""
    hidden = getattr(request.module, "NOT_INSTALLED", [])
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r})); from weblake.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "demo", "--to", str(tmp_path / "lake")],
        env=os.environ | {"TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)
        if process.stderr is not None:
            process.stderr.close()


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
