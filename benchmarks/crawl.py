"""What a crawl costs over fetching its pages: pages per second of the whole service, against a plain loop.

    uv run python benchmarks/crawl.py                        2,000 pages, under two minutes
    uv run python benchmarks/crawl.py --pages 300            a short look
    uv run python benchmarks/crawl.py --shells 10            every tenth page is filled by a script, in the browser
    uv run python benchmarks/crawl.py --profile out.prof     the service under cProfile; the figures then mean nothing

The site is generated (9 KB of article, navigation and links a page) and served by a process of its own. `loop` fetches
its pages with the service's own HTTP client and as many at a time, and does nothing with them. `convert` turns the same
pages into markdown in a row, in one thread. `crawl` is `weblake serve` in a process of its own: from the request that
starts it to the last chunk of the last status read. All run in turn, `--rounds` times; each figure is the best round.
A perfect service on one core would take as long as the conversion and the loop. Where other programs want the machine
too, the CPU times are the ones to look at: they are those of the process that does the work, without the site's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "labs"))

from converted_pages import convert as converted

from weblake_service.web.fetch import FetchedResponse, Fetcher

HERE = Path(__file__).resolve()
#: Pages in flight, for the loop and for the service, whose default it is.
AT_ONCE = 10
#: Seconds between two looks at the crawl's status.
POLL = 0.2
WORDS = [
    "lake", "table", "column", "partition", "snapshot", "reader", "writer", "schema", "commit", "object", "storage",
    "query", "batch", "stream", "record", "file", "path", "ledger", "window", "landing", "metric", "index", "cache",
]  # fmt: skip


def page(number: int, pages: int) -> bytes:
    """One page of the site; links lead to a few others, so that all are found from the first."""
    draw = random.Random(number)

    def text(words: int) -> str:
        return " ".join(draw.choice(WORDS) for _ in range(words)).capitalize() + "."

    children = [child for child in range(number * 8 + 1, number * 8 + 9) if child < pages]
    links = [*children, *(draw.randrange(pages) for _ in range(6))]
    nav = "".join(f'<li><a href="/{draw.randrange(pages)}">{draw.choice(WORDS)}</a></li>' for _ in range(20))
    body = "".join(
        f"<h2>{text(4)}</h2><p>{text(90)}</p><p>{text(60)} <a href='/{link}'>{text(3)}</a></p>" for link in links
    )
    return (
        f"<!doctype html><html lang='en'><head><title>Page {number}</title>"
        f"<meta name='description' content='{text(9)}'></head><body><nav><ul>{nav}</ul></nav>"
        f"<main><h1>Page {number}</h1>{body}</main><footer>{text(20)}</footer>"
        "</body></html>"
    ).encode()


def shell(body: bytes) -> bytes:
    """The same page as an application sends it: a script puts its body in."""
    head, _, rest = body.decode().partition("<body>")
    filled = json.dumps(rest.partition("</body>")[0]).replace("</", "<\\/")
    return f"{head}<body><div id=root></div><script>root.innerHTML = {filled}</script></body></html>".encode()


async def serve_site(pages: int, shells: int) -> None:
    """Serves the site until standard input closes."""
    made = [page(number, pages) for number in range(pages)]
    if shells:
        made[shells - 1 :: shells] = map(shell, made[shells - 1 :: shells])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    continue
                name = line.split()[1].decode()[1:]
                known = not name or (name.isdigit() and int(name) < pages)
                body = made[int(name or 0)] if known else b"not here"
                status = "200 OK" if known else "404 Not Found"
                head = f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (ConnectionError, IndexError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(json.dumps({"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def fetch_all(url: str, pages: int) -> list[FetchedResponse]:
    """The plain loop."""
    fetcher, waiting, got = Fetcher(allow_private=True), iter(range(pages)), []

    async def work() -> None:
        for number in waiting:
            got.append(await fetcher.get(f"{url}{number or ''}"))

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    await fetcher.aclose()
    return got


@contextmanager
def process(*command: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that says its address in its first line."""
    child = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | environment,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        yield child, json.loads(child.stdout.readline())["url"]
    finally:
        child.terminate()
        child.wait(30)


@dataclass
class Spent:
    """What something took: on the clock, and of the processor."""

    seconds: float
    cpu: float


@contextmanager
def spending(all_of: list[Spent]) -> Iterator[None]:
    """Adds what the block took, in this process."""
    began, cpu = time.perf_counter(), time.process_time()
    yield
    all_of.append(Spent(time.perf_counter() - began, time.process_time() - cpu))


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """The most memory that a process has had, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1000


def crawl(site: str, pages: int, profile: str | None) -> tuple[Spent, float, int]:
    """What a crawl took, the service's peak memory in MB, and the bytes of all chunks."""
    ready = ["-m", "cProfile", "-o", profile] if profile else []
    code = "import sys; from weblake_service.serve import serve; serve(data=sys.argv[1], allow_private=True)"
    with tempfile.TemporaryDirectory() as data:
        file = Path(data, "run.py")
        file.write_text(code)
        with process(*ready, str(file), data, WEBLAKE_API_KEY="test-key") as (child, url):
            headers = {"Authorization": "Bearer test-key"}
            with httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False) as client:
                began, cpu = time.perf_counter(), cpu_of(child.pid)
                body = {"url": site, "limit": pages, "scrapeOptions": {"maxAge": 0}, "sitemap": "skip"}
                job = client.post("/v2/crawl", json=body).raise_for_status().json()["id"]
                address = f"/v2/crawl/{job}"
                while client.get(f"{address}?limit=1").raise_for_status().json()["status"] == "scraping":
                    time.sleep(POLL)
                found, size = 0, 0
                while address:
                    reply = client.get(address)
                    chunk = reply.raise_for_status().json()
                    found, size, address = found + len(chunk["data"]), size + len(reply.content), chunk["next"]
                spent = Spent(time.perf_counter() - began, cpu_of(child.pid) - cpu)
            assert found == pages, f"{found} of {pages} pages came back"
            return spent, peak_mb(child.pid), size


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shells", type=int, default=0, metavar="N", help="a script fills each Nth page (none)")
    parser.add_argument("--profile", help="where cProfile's figures of the service go")
    parser.add_argument("--site", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.site:
        asyncio.run(serve_site(given.site, given.shells))
        return
    loop: list[Spent] = []
    convert: list[Spent] = []
    whole: list[Spent] = []
    memory, size = 0.0, 0
    with process(str(HERE), "--site", str(given.pages), "--shells", str(given.shells)) as (_, site):
        for _ in range(1 if given.profile else given.rounds):
            with spending(loop):
                got = asyncio.run(fetch_all(site, given.pages))
            with spending(convert):
                for one in got:
                    converted(one.body, one.content_type, url=one.url)
            spent, peak, size = crawl(site, given.pages, given.profile)
            whole.append(spent)
            memory = max(memory, peak)
    print(f"{given.pages} pages, {AT_ONCE} in flight, {size / 1e6:.1f} MB of status replies")
    print(f"{'':8} {'pages/s':>8} {'seconds':>8} {'CPU s':>8}")
    best = {}
    for name, all_of in (("loop", loop), ("convert", convert), ("crawl", whole)):
        seconds, cpu = min(one.seconds for one in all_of), min(one.cpu for one in all_of)
        best[name] = Spent(seconds, cpu)
        print(f"{name:8} {given.pages / seconds:8.0f} {seconds:8.2f} {cpu:8.2f}")
    for what in (("loop",), ("loop", "convert")):
        seconds, cpu = sum(best[one].seconds for one in what), sum(best[one].cpu for one in what)
        ratios = f"{best['crawl'].seconds / seconds:.2f} times the time, {best['crawl'].cpu / cpu:.2f} times the CPU"
        print(f"crawl against {' and '.join(what)}: {ratios}")
    print(f"the service's peak memory: {memory:.0f} MB")


if __name__ == "__main__":
    main()
