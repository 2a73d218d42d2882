"""A site on loopback whose pages under /held wait until the test releases them, to control how long a job runs."""

from __future__ import annotations

import threading

from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

#: Seconds after which a held page is answered without a release, so that no test hangs for longer.
HELD_S = 240.0


class GatedSite:
    """Pages /page/N and /held/N; / links to /page/0 to /page/4; anything else is a 404."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        #: The requested paths.
        self.asked: list[str] = []
        self._server = LoopbackServer(self._answer, "gated-site").start()

    @property
    def url(self) -> str:
        return self._server.url

    def pages(self, count: int, first: int = 0) -> list[str]:
        """Return URLs that are answered at once."""
        return [f"{self.url}/page/{n}" for n in range(first, first + count)]

    def held(self, count: int, first: int = 0) -> list[str]:
        """Return URLs that are answered when `release` is called."""
        self.gate.clear()
        return [f"{self.url}/held/{n}" for n in range(first, first + count)]

    def release(self) -> None:
        """Answer every held page."""
        self.gate.set()

    def close(self) -> None:
        """Stop the site."""
        self.gate.set()
        self._server.stop()

    def _answer(self, asked: LoopbackRequest) -> LoopbackResponse:
        self.asked.append(asked.target)
        kind, _, name = asked.target.strip("/").partition("/")
        if kind == "held":
            self.gate.wait(HELD_S)
        if asked.target == "/":
            links = "".join(f'<a href="/page/{n}">page {n}</a> ' for n in range(5))
            return _html(200, f"<title>Home</title><main><h1>Home</h1>{links}</main>")
        if kind not in ("page", "held") or not name.isdigit():
            return _html(404, "<title>Nothing</title><p>There is nothing here.</p>")
        text = f"<h1>Page {name}</h1><p>Ünïcode № {name}, a page of the {kind} kind 日本語.</p>"
        return _html(200, f"<title>{kind} {name}</title><main>{text}</main>")


def _html(status: int, text: str) -> LoopbackResponse:
    return LoopbackResponse(status, text.encode(), {"Content-Type": "text/html; charset=utf-8"})
