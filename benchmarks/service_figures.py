"""What `weblake serve` costs: the time until it listens, its memory at rest, and ten thousand documents in and out.

    uv run python benchmarks/service_figures.py                    some minutes
    uv run python benchmarks/service_figures.py --documents 1000

The service is a process of its own, and so is the site that it scrapes. Start-up is the median of five starts on a new
database, beside that of a Python that only imports what the service must import to answer at all (starlette, uvicorn,
msgspec), in the same run. Memory is PSS from /proc where the system tells it: what this process costs the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

KEY = "benchmark-key"
LEAST = "import starlette.applications, uvicorn, msgspec; print('ready', flush=True); input()"
#: 52 KB of main text, as the research report's documents have.
SITE = """
import asyncio
WORDS = " ".join(f"word{n} of the page" for n in range(2800))
async def answer(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            path = head.split(b" ", 2)[1].decode()
            body = f"<title>{path}</title><main><h1>{path}</h1><p>{WORDS}</p></main>".encode()
            head = f"HTTP/1.1 200 OK\\r\\ncontent-type: text/html\\r\\ncontent-length: {len(body)}\\r\\n\\r\\n"
            writer.write(head.encode() + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


class Child:
    """A process that says one line when it is ready."""

    def __init__(self, *command: str) -> None:
        environment = {**os.environ, "WEBLAKE_API_KEY": KEY}
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline().strip()
        self.ready_s = time.perf_counter() - self.began

    def megabytes(self, name: str = "Pss") -> float:
        where = "smaps_rollup" if name == "Pss" else "status"
        for line in Path(f"/proc/{self.process.pid}/{where}").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise LookupError(name)

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def service(directory: str) -> Child:
    return Child("-m", "weblake", "serve", "--port", "0", "--allow-private", "--data", directory)


def ask(url: str, body: object = None) -> dict[str, object]:
    data = json.dumps(body).encode() if body is not None else None
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as reply:
        return dict(json.load(reply))


def start_up() -> None:
    ours, least = [], []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as directory:
            one = service(directory)
            ours.append(one.ready_s)
            one.end()
        one = Child("-c", LEAST)
        least.append(one.ready_s)
        one.end()
    a, b = statistics.median(ours), statistics.median(least)
    print(f"start-up            {a:.2f} s, {a / b:.1f} times the bare import of its server ({b:.2f} s)")


def at_rest() -> None:
    with tempfile.TemporaryDirectory() as directory:
        one = service(directory)
        time.sleep(2)
        idle = f"{one.megabytes():.0f} MB PSS, {one.megabytes('VmRSS'):.0f} MB RSS"
        site = Child("-c", SITE)
        url = json.loads(one.line)["url"]
        for n in range(100):
            ask(f"{url}/v2/scrape", {"url": f"http://127.0.0.1:{site.line}/{n}"})
        time.sleep(2)
        print(f"memory at rest      {idle}; after 100 scrapes {one.megabytes():.0f} MB PSS")
        one.end()
        site.end()


def documents(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        one, site = service(directory), Child("-c", SITE)
        url = json.loads(one.line)["url"]
        urls = [f"http://127.0.0.1:{site.line}/{n}" for n in range(count)]
        began = time.perf_counter()
        job = ask(f"{url}/v2/batch/scrape", {"urls": urls, "maxAge": 0})["id"]
        started = time.perf_counter() - began
        while ask(f"{url}/v2/batch/scrape/{job}?skip={count}")["status"] == "scraping":
            time.sleep(0.2)
        stored = time.perf_counter() - began
        at, chunks, total, largest = f"{url}/v2/batch/scrape/{job}", 0, 0, 0
        began, rows = time.perf_counter(), 0
        while at:
            with urllib.request.urlopen(
                urllib.request.Request(f"{at}{'&' if '?' in at else '?'}limit=10000", headers=_BEARER)
            ) as reply:
                raw = reply.read()
            body = json.loads(raw)
            rows, chunks, total = rows + len(body["data"]), chunks + 1, total + len(raw)
            largest, at = max(largest, len(raw)), body["next"]
            at = at.replace("&limit=10000", "") if at else at
        read = time.perf_counter() - began
        assert rows == count, f"{rows} of {count} documents came back"
        size = sum(path.stat().st_size for path in Path(directory).iterdir()) / 1e6
        print(f"start of the batch  {started:.2f} s for {count} URLs")
        print(f"scraped and stored  {count} documents in {stored:.0f} s, {count / stored:.0f}/s; {size:.0f} MB on disk")
        in_chunks = f"{chunks} chunks of {largest / 1e6:.1f} MB at most"
        print(f"read back           {total / 1e6:.0f} MB in {in_chunks}: {read:.1f} s")
        print(f"memory at its peak  {one.megabytes('VmHWM'):.0f} MB RSS")
        one.end()
        site.end()


_BEARER = {"authorization": f"Bearer {KEY}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--documents", type=int, default=10_000)
    asked = parser.parse_args()
    start_up()
    at_rest()
    documents(asked.documents)


if __name__ == "__main__":
    main()
