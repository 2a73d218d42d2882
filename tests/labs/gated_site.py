"""A site on loopback whose pages under /held wait until the test lets them go: a job that runs as long as it must."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Seconds after which a held page is answered all the same: no test hangs for longer.
HELD_S = 240.0


class GatedSite:
    """Pages /page/N and /held/N; / links to /page/0 to /page/4; anything else is a 404."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        #: The paths that were asked for.
        self.asked: list[str] = []
        site = self

        class Page(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                site.asked.append(self.path)
                kind, _, name = self.path.strip("/").partition("/")
                if kind == "held":
                    site.gate.wait(HELD_S)
                if self.path == "/":
                    links = "".join(f'<a href="/page/{n}">page {n}</a> ' for n in range(5))
                    return self.answer(200, f"<title>Home</title><main><h1>Home</h1>{links}</main>")
                if kind not in ("page", "held") or not name.isdigit():
                    return self.answer(404, "<title>Nothing</title><p>There is nothing here.</p>")
                text = f"<h1>Page {name}</h1><p>Ünïcode № {name}, a page of the {kind} kind 日本語.</p>"
                self.answer(200, f"<title>{kind} {name}</title><main>{text}</main>")

            def answer(self, status: int, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                with suppress(OSError):  # whoever asked may have been cancelled meanwhile
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def pages(self, count: int, first: int = 0) -> list[str]:
        """URLs that are answered at once."""
        return [f"{self.url}/page/{n}" for n in range(first, first + count)]

    def held(self, count: int, first: int = 0) -> list[str]:
        """URLs that are answered when `release` is called."""
        self.gate.clear()
        return [f"{self.url}/held/{n}" for n in range(first, first + count)]

    def release(self) -> None:
        """Lets every held page go."""
        self.gate.set()

    def close(self) -> None:
        """Ends the site."""
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
