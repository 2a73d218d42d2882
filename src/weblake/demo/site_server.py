"""Serves the demo's site on a loopback port. Imports: loopback, site.

with SiteServer() as server:
    httpx.get(server.url + "/notes/")
"""

from __future__ import annotations

import threading
from collections import Counter
from types import TracebackType
from typing import Self

from weblake.demo.site import Site, build_site
from weblake.loopback import Answer, Asked, LoopbackServer


class SiteServer:
    """The site in threads of this process; `url` and `site` are there before it starts."""

    def __init__(self) -> None:
        self._server = LoopbackServer(self._answer, "ostrel")
        self.url = self._server.url
        self.site: Site = build_site(self.url)
        #: How often each path was asked for so far.
        self.hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def start(self) -> Self:
        """Starts to answer and returns itself."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Answers no more; a server that never started only gives its port back."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.hits[asked.target] += 1
        if asked.method not in ("GET", "HEAD"):
            return Answer(501)
        page = self.site.page(asked.target)
        kind = {"Location": page.location} if page.location else {"Content-Type": page.content_type}
        return Answer(page.status, page.body, kind)
