"""What a page in the service's browser costs: `uv run python benchmarks/browser_figures.py`."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from weblake_service.server import LocalService

PAGE = (
    b"<!doctype html><title>T</title><main><h1>Hello</h1>" + b"<p>Text of a page, with <a href=/x>links</a>.</p>" * 80
)
#: The same page, put in by a script.
SHELL = b"<!doctype html><title>T</title><div id=root></div><script>root.innerHTML = `%s`</script>" % PAGE[28:]
WAYS: dict[str, dict[str, object]] = {
    "a screenshot": {"formats": ["screenshot"]},
    "markdown after `waitFor`": {"formats": ["markdown"], "waitFor": 1},
    "a page that a script fills": {"formats": ["markdown"]},
    "an action, in a context of its own": {"actions": [{"type": "wait", "milliseconds": 1}]},
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = SHELL if self.path == "/shell" else PAGE
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def chromium_megabytes() -> int:
    """PSS of all Chromium processes of this user: let nobody else's run meanwhile."""
    total = 0
    for pid in subprocess.run(["pgrep", "chromium"], capture_output=True, text=True, check=False).stdout.split():
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total // 1024


def main() -> None:
    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{site.server_port}/"
    with LocalService(keys="k") as service, httpx.Client(base_url=service.url, timeout=90, trust_env=False) as http:

        def scrape(options: dict[str, object]) -> float:
            began = time.monotonic()
            shell = "shell" if options is WAYS["a page that a script fills"] else ""
            body = {"url": f"{url}{shell}", "maxAge": 0, **options}
            http.post("/v2/scrape", json=body, headers={"Authorization": "Bearer k"}).raise_for_status()
            return time.monotonic() - began

        print(f"the first page, with the start of Chromium: {scrape(WAYS['a screenshot']):.1f} s")
        for name, options in WAYS.items():
            alone = statistics.median(scrape(options) for _ in range(12))
            began, most = time.monotonic(), 0
            with ThreadPoolExecutor(4) as threads:
                asked = [threads.submit(scrape, options) for _ in range(40)]
                while not all(one.done() for one in asked):
                    most = max(most, chromium_megabytes())
                    time.sleep(0.3)
                for one in asked:
                    one.result()
            rate = len(asked) / (time.monotonic() - began)
            print(f"{name}: {alone:.2f} s alone; {rate:.1f} a second, four at a time; {most} MB of Chromium")


if __name__ == "__main__":
    main()
