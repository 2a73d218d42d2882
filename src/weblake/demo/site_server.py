"""Serves the demo's site on a loopback port.

with SiteServer() as server:
    httpx.get(server.url + "/notes/")
"""

from __future__ import annotations

import threading
from collections import Counter

from weblake.demo.site import Site, build_site
from weblake.loopback import Answer, Asked, LoopbackServer


class SiteServer(LoopbackServer):
    """The site in threads of this process; `url` and `site` are available before it starts."""

    def __init__(self) -> None:
        super().__init__(self._answer, "ostrel")
        self.site: Site = build_site(self.url)
        #: Number of requests by path.
        self.hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.hits[asked.target] += 1
        if asked.method not in ("GET", "HEAD"):
            return Answer(501)
        page = self.site.page(asked.target)
        kind = {"Location": page.location} if page.location else {"Content-Type": page.content_type}
        return Answer(page.status, page.body, kind)
