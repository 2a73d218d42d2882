"""A site on loopback with a hostile title, redirects to one page, and arbitrary text."""

from __future__ import annotations

import html
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OddSite:
    """/titled shows `title`; /moved/N leads to /page; every page has `body` in it. A context manager."""

    def __init__(self, title: str, body: str = "Text.") -> None:
        site_title, site_body = title, body

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/moved/"):
                    self.send_response(302)
                    self.send_header("location", "/page")
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                title = site_title if self.path == "/titled" else "A page"
                text = f"<title>{html.escape(title)}</title><main><h1>Page</h1><p>{site_body}</p></main>".encode()
                self.send_response(404 if self.path == "/robots.txt" else 200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> OddSite:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
