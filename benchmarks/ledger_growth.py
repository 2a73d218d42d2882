"""What landing one load costs in a root that holds many: storage requests by kind, and time.

    uv run python benchmarks/ledger_growth.py          10, 1,000 and 10,000 loads: five minutes
    uv run python benchmarks/ledger_growth.py --loads 100000   one size
    uv run python benchmarks/ledger_growth.py --write          all four sizes, and the figures in its page

The landing is one run of a partitioned task of an orchestrator, with its start, against the embedded service; it takes
the place of an earlier load of the task. A root is made from the files of a real landing, copied under other ids. On
local disk the calls of the storage are counted, on S3 the HTTP requests that the server (moto, in a process of its own)
sees. moto searches all keys of a bucket for each listing, so its times grow with the root by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from benchmark_report import DOCS, machine

from weblake import Client, Terms
from weblake.dataset.identity import job_load_id
from weblake.dataset.root import Dataset, open_dataset
from weblake.dataset.slots import group_of
from weblake.loads import generations, load, load_request
from weblake.loads.load_request import Naming, Task
from weblake.storage import Storage
from weblake_service.server import LocalService

SIZES = (10, 1_000, 10_000, 100_000)
PAGE = DOCS / "benchmarks.md"
BEGIN, END = "<!-- ledger figures -->", "<!-- end of ledger figures -->"
ROUNDS = 5
MOST_REQUESTS = 40

#: moto with a log of requests on standard error, and a way to fill a bucket that costs no request each.
SERVER = """
import json, logging, sys
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
logging.getLogger("werkzeug").setLevel(logging.ERROR)
inner = DomainDispatcherApplication(create_backend_app)
def app(environ, start):
    if environ["PATH_INFO"] == "/fill":
        backend = next(iter(s3_backends.values()))["aws"]
        size = int(environ["CONTENT_LENGTH"])
        for line in environ["wsgi.input"].read(size).splitlines():
            name, value = json.loads(line)
            backend.put_object("lake", name, value.encode("latin-1"))
        start("200 OK", [])
        return [b""]
    kind = "LIST" if "list-type=" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]
    print(kind, file=sys.stderr, flush=True)
    return inner(environ, start)
server = make_server("127.0.0.1", 0, app, threaded=False)
print(server.server_port, flush=True)
server.serve_forever()
"""


class CountedStorage:
    """A storage that counts its calls by name."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if callable(found) and name not in ("local_path", "scratch"):
            self.calls[name] += 1
        return found


@contextmanager
def site() -> Iterator[str]:
    """A site of one page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>page</title><p>text of a page</p>")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def land(client: Client, dataset: Dataset, url: str, run: str) -> None:
    """Land one run of a partitioned task, as an orchestrator does."""
    task, terms = Task(("benchmark", "dag", "task", -1), run, "try 1"), Terms(poll_s=0.05)
    request = load_request.batch([url], Naming(partition={"day": "2026-11-21"}))
    request = generations.place_generation(request, task, generations.choose(client, dataset, task, terms))
    load.land(client, dataset, request, terms)


def template(client: Client, url: str) -> list[tuple[str, bytes]]:
    """The files of one landed load, by name."""
    with tempfile.TemporaryDirectory() as folder:
        land(client, open_dataset(f"{folder}/lake"), url, "template")
        root = Path(folder) / "lake"
        names = (path for path in root.rglob("*") if path.is_file())
        return [(str(path.relative_to(root)), path.read_bytes()) for path in names]


def copies(files: list[tuple[str, bytes]], count: int) -> Iterator[tuple[str, bytes]]:
    """The files of so many loads, each of a slot of its own; the records of the root come once, with the first."""
    intent = next(json.loads(data) for name, data in files if b'"endpoint"' in data)
    job = next(json.loads(data)["job_id"] for name, data in files if name.endswith(".job.json"))
    old = {
        "load_id": intent["load_id"],
        "job": job,
        "filed": job_load_id("batch_scrape", job),
        "slot": intent["slot"],
        "group": group_of(intent["slot"], None, has_partition=True),
    }
    for n in range(1, count + 1):
        job = f"{old['job'][:24]}{n:012x}"
        new = {"load_id": f"{n:016x}", "job": job, "filed": job_load_id("batch_scrape", job), "slot": f"{n:015x}f"}
        new["group"] = group_of(new["slot"], None, has_partition=True)
        for name, data in files:
            own = old["load_id"] in name or old["filed"] in name
            if name.endswith(".parquet"):  # its footer stays: the benchmark reads no copied documents
                yield name.replace(old["load_id"], new["load_id"]), data
            elif own:
                for key, value in old.items():
                    name, data = name.replace(value, new[key]), data.replace(value.encode(), new[key].encode())
                yield name, data
            elif n == 1:
                yield name, data


def measured(client: Client, opened: Callable[[], Dataset], url: str, count: object) -> dict[str, object]:
    """Land a load and what takes its place, several times; the last one's requests and the median time.

    Each landing opens the dataset anew, as each task of an orchestrator does: nothing is remembered from another one.
    """
    land(client, opened(), url, "run 0")
    times = []
    for n in range(1, ROUNDS + 1):
        before = count()  # type: ignore[operator]
        begun = time.perf_counter()
        land(client, opened(), url, f"run {n}")
        times.append(time.perf_counter() - begun)
        requests = count() - before  # type: ignore[operator]
    return {"requests": dict(sorted(requests.items())), "total": sum(requests.values()), "s": statistics.median(times)}


def on_disk(client: Client, url: str, files: list[tuple[str, bytes]], count: int) -> dict[str, object]:
    """One landing into a root on local disk."""
    folder = Path(tempfile.mkdtemp(prefix="weblake-ledger-"))
    try:
        made: set[Path] = set()
        for name, data in copies(files, count):
            path = folder / "lake" / name
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(data)
        counted = CountedStorage(open_dataset(folder / "lake").storage)
        return measured(client, lambda: Dataset.at(counted), url, lambda: Counter(counted.calls))  # type: ignore[arg-type]
    finally:
        shutil.rmtree(folder)


@contextmanager
def s3_server(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Callable[[], Counter[str]]]]:
    """An S3 server with files below s3://lake/root: its URL, which the environment names, and its requests by kind."""
    import boto3
    import httpx

    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            os.environ |= {
                "AWS_ENDPOINT_URL": address,
                "AWS_ALLOW_HTTP": "true",  # for deltalake
                "AWS_ACCESS_KEY_ID": "benchmark",
                "AWS_SECRET_ACCESS_KEY": "benchmark",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            boto3.client("s3").create_bucket(Bucket="lake")
            lines: list[str] = []
            for name, data in files:
                lines.append(json.dumps([f"root/{name}", data.decode("latin-1")]))
                if len(lines) == 2_000:
                    httpx.post(f"{address}/fill", content="\n".join(lines), timeout=600).raise_for_status()
                    lines.clear()
            httpx.post(f"{address}/fill", content="\n".join(lines), timeout=600).raise_for_status()

            def count() -> Counter[str]:
                log.seek(0)
                return Counter(log.read().split())

            yield address, count
        finally:
            server.kill()
            server.wait(10)


def on_s3(client: Client, url: str, files: list[tuple[str, bytes]], count: int) -> dict[str, object]:
    """One landing into a root on an S3 server."""
    with s3_server(copies(files, count)) as (_, requests):
        return measured(client, lambda: open_dataset("s3://lake/root"), url, requests)


def table(found: list[dict[str, object]]) -> list[str]:
    """The figures as Markdown."""
    lines = ["| loads in the root | storage | requests | by kind | s |", "|---|---|---|---|---|"]
    for row in found:
        kinds = ", ".join(f"{kind} {number}" for kind, number in row["requests"].items())  # type: ignore[attr-defined]
        lines.append(f"| {row['loads']:,} | {row['storage']} | **{row['total']}** | {kinds} | {row['s']:.2f} |")
    return lines


def main() -> None:
    """Measure, print, and check that the number of requests is the same at all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, nargs="*", help="sizes of the root")
    parser.add_argument("--write", action="store_true", help=f"all sizes, and {PAGE.name}")
    given = parser.parse_args()
    sizes = given.loads or (SIZES if given.write else SIZES[:3])
    found: list[dict[str, object]] = []
    with site() as url, LocalService() as service, Client(service.url, service.key) as client:
        files = template(client, url)
        for count in sizes:
            for storage, measure in (("local disk", on_disk), ("S3", on_s3)):
                row = {"loads": count, "storage": storage} | measure(client, url, files, count)
                found.append(row)
                print(table([row])[-1], flush=True)
    for storage in ("local disk", "S3"):
        totals = {row["total"] for row in found if row["storage"] == storage}
        if len(totals) != 1 or max(totals) > MOST_REQUESTS:  # type: ignore[type-var, operator]
            sys.exit(f"{storage}: the requests differ with the size of the root, or are more than {MOST_REQUESTS}.")
    if given.write:
        text = PAGE.read_text()
        before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        PAGE.write_text("\n".join([before, "", machine(ROUNDS), "", *table(found), "", after]))


if __name__ == "__main__":
    main()
