"""A site on loopback with a hostile title, redirects to one page, and arbitrary text."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer


@contextmanager
def odd_site(title: str, body: str = "Text.") -> Iterator[str]:
    """Yield the URL: /titled shows `title`; /moved/N leads to /page; every page has `body` in it."""

    def answer(request: LoopbackRequest) -> LoopbackResponse:
        if request.path.startswith("/moved/"):
            return LoopbackResponse(302, headers={"Location": "/page"})
        shown = title if request.path == "/titled" else "A page"
        text = f"<title>{html.escape(shown)}</title><main><h1>Page</h1><p>{body}</p></main>".encode()
        status = 404 if request.path == "/robots.txt" else 200
        return LoopbackResponse(status, text, {"Content-Type": "text/html; charset=utf-8"})

    with LoopbackServer(answer) as server:
        yield server.url
