"""A web site with known content on a loopback port, which a test can slow down, break and change.

`weblake_site.urls()` returns pages with known content: `weblake_site.pages["/about"]` has `title`, `description`,
`paragraphs`, `text`, `table`, `links` and `published`. Links and sitemap (an index of two, one of them gzipped) lead to
all of these pages, so a crawl of `weblake_site.url` finds exactly these. The front page also links to
`weblake_site.blocked`, which robots.txt disallows for crawlers. robots.txt has a `Crawl-delay` of one second for the
crawler `slowbot` only (`robots_user_agent="slowbot"`).

The site also has unusual pages. Only the lists /redirects/, /errors/, /files/ and /encodings/ link to them:

/redirects/301, 302, 303, 307, 308   a redirect with that status
/redirects/chain                     three redirects, then /about
/redirects/loop                      two redirects that lead to each other
/guides/moved                        a redirect to another section
/errors/403, 404, 410, 500           that status
/errors/503-then-200                 503 with Retry-After at the first request, then 200
/errors/drop                         closes the connection without a response
/errors/truncated                    closes the connection in the middle of the body
/errors/endless                      a body that never ends
/slow                                a response after half a second; `delay(path, seconds=…)` delays any page
/huge                                2 MB of HTML
/files/report.pdf, letter.docx, notes.txt, table.csv, data.json   `weblake_site.files` has their texts
/encodings/windows-1252, shift-jis, utf-16   text that is not UTF-8
/copy-of-about                       the same page as /about, with its canonical link
/catalogue                           depends only on the parameter `color`; the others have no effect
/news/?page=2                        the second page of a list
/echo, /cookies/set                  the request as JSON; a cookie, then the same
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Self

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer
from weblake.testing.site_failures import SiteFailures, check_path
from weblake.testing.site_index import index_file, text_response
from weblake.testing.site_pages import BLOCKED, HTML, SitePage, changed, known_pages, render
from weblake.testing.site_special_paths import FILE_TEXTS, SpecialPaths

_NOT_FOUND_PAGE = b"<!doctype html><title>Not found</title><main><h1>Not found</h1></main>"
_NOT_FOUND = LoopbackResponse(404, _NOT_FOUND_PAGE, {"Content-Type": HTML})


@dataclass(frozen=True, slots=True)
class SiteRequest:
    """One request that the site received."""

    method: str
    #: The path with the query.
    path: str
    #: The headers by lower-case name.
    headers: Mapping[str, str]


class WeblakeSite(SiteFailures):
    """The test site; it responds to requests from `start` to `stop`.

    Args:
        seed: The seed of its texts.
    """

    def __init__(self, seed: int = 1) -> None:
        self._seed = seed
        self._server = LoopbackServer(self._respond, "weblake-test-site")
        super().__init__(self._server.stopping)
        self._pages = {page.path: page for page in known_pages(seed)}
        self._special = SpecialPaths(self.url, self._pages, self._server.stopping)
        self._added: dict[str, LoopbackResponse] = {}
        self._requests: list[SiteRequest] = []

    def __repr__(self) -> str:
        return f"<WeblakeSite {self.url}>"

    @property
    def url(self) -> str:
        """The base URL without a trailing slash, such as `http://127.0.0.1:40123`."""
        return self._server.url

    @property
    def pages(self) -> Mapping[str, SitePage]:
        """The readable pages by path, with the expected title and text of each."""
        with self._lock:
            return MappingProxyType(dict(self._pages))

    @property
    def files(self) -> Mapping[str, tuple[str, ...]]:
        """The texts in the files of the site, by path: PDF, DOCX, text, CSV, JSON."""
        return FILE_TEXTS

    @property
    def blocked(self) -> str:
        """The URL of the page that the front page links to and that robots.txt disallows."""
        return self.url + BLOCKED

    def urls(self, below: str = "/") -> list[str]:
        """Return the URLs of all readable pages, the front page first, then the added pages.

        A crawl of `url` finds exactly these, by links or by the sitemap (added pages by the sitemap only).
        """
        with self._lock:
            added = [path for path, response in self._added.items() if _is_page(response) and path not in self._pages]
            return [self.url + path for path in (*self._pages, *added) if path.startswith(below)]

    def add(
        self,
        path: str,
        body: str | bytes = "",
        *,
        content_type: str = HTML,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """Add or replace the response of a path and return its URL; a redirect is a status and a Location header."""
        whole = body.encode() if isinstance(body, str) else body
        response = LoopbackResponse(status, whole, {"Content-Type": content_type, **(headers or {})})
        with self._lock:
            self._added[check_path(path)] = response
        return self.url + path

    def remove(self, path: str) -> None:
        """Make a path respond with 404, and remove it from the sitemap."""
        with self._lock:
            self._pages.pop(path, None)
            self._added[check_path(path)] = _NOT_FOUND

    def change(self, path: str) -> SitePage:
        """Change the text of a page and return the changed page.

        Raises:
            KeyError: The path is not in `pages`; change an added page with `add`.
        """
        with self._lock:
            if path not in self._pages or path in self._added:
                raise KeyError(f"{path} is none of the pages that the site wrote itself: use add(path, body) again.")
            page = self._pages[path] = changed(self._pages[path], self._seed)
            return page

    def robots(self, text: str) -> None:
        """Replace robots.txt. The service reads it again after a reset and when its clock is advanced."""
        with self._lock:
            self._added["/robots.txt"] = text_response(text)

    def requests(self, path: str | None = None) -> list[SiteRequest]:
        """Return the requests so far, in order; only those of one path if given."""
        with self._lock:
            return [one for one in self._requests if path is None or path in (one.path, one.path.partition("?")[0])]

    def start(self) -> Self:
        """Start the server and return the site."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop the server; held requests are dropped."""
        self._server.stopping.set()
        self.release()
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _respond(self, request: LoopbackRequest) -> LoopbackResponse:
        with self._lock:
            self._requests.append(SiteRequest(request.method, request.target, MappingProxyType(request.headers)))
        instead = self._failure(request)
        if instead is None:
            return self._response_for(request)
        if instead.truncate_at is not None:
            return replace(self._response_for(request), truncate_at=instead.truncate_at)
        return instead

    def _response_for(self, request: LoopbackRequest) -> LoopbackResponse:
        for name in (request.target, request.path):
            with self._lock:
                added, page = self._added.get(name), self._pages.get(name)
            if added is not None:
                return added
            if page is not None:
                return LoopbackResponse(200, render(page, self.url), {"Content-Type": HTML})
            if name in self._special.responses:
                return self._special.responses[name](request)
        return index_file(request.path, self.url, self.urls) or _NOT_FOUND


def _is_page(response: LoopbackResponse) -> bool:
    return response.status == 200 and response.headers["Content-Type"].startswith("text/html")
