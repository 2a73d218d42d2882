"""What landing a job costs after the service has done its part, against peers and the machine's limits, in one run.

    uv run --group bench python benchmarks/landing.py                     all figures, about half an hour
    uv run --group bench python benchmarks/landing.py --only medium       medium large latency tiny small poll waiting
    uv run --group bench python benchmarks/landing.py --write             also the page benchmarks.md and its chart

Contenders run in fresh processes, in turns (A B C, A B C), and the medians count. Jobs are made from a seed below
/tmp/weblake-benchmarks (1.3 GB) and served by another process. Times hang on the machine: what counts is the ratios.
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
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark_report import Figure, write_report
from made_jobs import make

HERE = Path(__file__).resolve().parent
CACHE = Path(tempfile.gettempdir()) / "weblake-benchmarks"
LATENCY_MS = 100
PEERS = ["orjson_pyarrow", "orjson_pyarrow_zstd", "firecrawl_pages", "firecrawl_pandas", "httpx_pandas", "polars"]
SLOW = ["duckdb", "dlt"]
LIMITS = ["limit_download", "limit_decode", "limit_write"]


@dataclass
class Results:
    """By contender: what each of its runs measured."""

    job: str
    runs: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def median(self, contender: str, what: str) -> float:
        return statistics.median(run[what] for run in self.runs[contender])

    def grown(self, contender: str) -> float:
        """MB above what it had before it began."""
        return statistics.median(run["peak_mb"] - run["base_mb"] for run in self.runs[contender])

    def best(self, contenders: list[str], what: str) -> tuple[str, float]:
        there = [each for each in contenders if each in self.runs]
        name = min(there, key=lambda each: self.median(each, what))
        return name, self.median(name, what)


@contextmanager
def served(job: Path, *flags: str) -> Iterator[str]:
    """The address of a process that serves this job."""
    command = [sys.executable, str(HERE / "job_server.py"), str(job), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def tally(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/_tally", timeout=60) as reply:
        found: dict[str, float] = json.loads(reply.read())
    return found


def contest(name: str, contenders: list[str], rounds: int, *flags: str, slow: int = 1) -> Results:
    """Runs them in turns; those in SLOW only `slow` times."""
    job, found = make(CACHE, name), Results(name)
    with served(job, *flags) as url:
        for number in range(rounds):
            for contender in contenders:
                if contender in SLOW and number >= slow:
                    continue
                source = str(job) if contender in ("limit_decode", "limit_write") else url
                run = one(contender, source)
                found.runs.setdefault(contender, []).append(run)
                shown = " ".join(f"{key} {value:.2f}" for key, value in run.items())
                print(f"  {name} {number + 1}/{rounds} {contender}: {shown}", file=sys.stderr, flush=True)
    return found


def one(contender: str, source: str) -> dict[str, float]:
    out = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        command = [sys.executable, str(HERE / "peers.py"), contender, source, str(out / "lake")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{contender} failed:\n{done.stderr[-2000:]}")
        measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return measured
    finally:
        shutil.rmtree(out)


def medium(rounds: int) -> tuple[list[Figure], list[Results]]:
    found = contest("medium", ["weblake", *PEERS, *SLOW, *LIMITS], rounds)
    wall, cpu = found.median("weblake", "wall"), found.median("weblake", "cpu")
    limit = max(found.median(each, "wall") for each in LIMITS)
    against = []
    for peer, words in (("orjson_pyarrow", "orjson and pyarrow by hand"), ("polars", "Polars")):
        against += [
            Figure(f"wall, 2,000 documents, against {words}", wall / found.median(peer, "wall"), 0.75, 0.60),
            Figure(f"CPU against {words}", cpu / found.median(peer, "cpu"), 0.90, 0.75),
        ]
    return [
        *against,
        Figure("wall against firecrawl-py + pandas", wall / found.median("firecrawl_pandas", "wall"), 0.33, 0.25),
        Figure("wall against the overlapped limit", wall / limit, 2.0, 1.5),
        Figure("peak memory above the imports, MB", found.grown("weblake"), 220, 150),
    ], [found]


def large(rounds: int) -> tuple[list[Figure], list[Results]]:
    found = contest("large", ["weblake", "orjson_pyarrow_zstd"], rounds)
    less = contest("medium", ["weblake"], rounds)
    ratio = found.median("weblake", "peak_mb") / less.median("weblake", "peak_mb")
    return [Figure("peak memory, 10,500 documents against 2,000", ratio, 1.10, 1.05)], [found]


def latency(rounds: int) -> tuple[list[Figure], list[Results]]:
    found = contest("medium", ["weblake"], rounds, "--latency", str(LATENCY_MS))
    chunks = json.loads((make(CACHE, "medium") / "job.json").read_text())["chunks"]
    ratio = found.median("weblake", "wall") / (chunks * LATENCY_MS / 1000)
    return [Figure(f"wall at {LATENCY_MS} ms, over chunks x latency", ratio, 1.15, 1.10)], []


def tiny(rounds: int) -> tuple[list[Figure], list[Results]]:
    found = contest("tiny", ["weblake", "orjson_pyarrow", "orjson_pyarrow_zstd"], rounds)
    name, wall = found.best(["orjson_pyarrow", "orjson_pyarrow_zstd"], "wall")
    ratio = wall / found.median("weblake", "wall")
    return [Figure("100,000 documents of 2 KB: documents/s against the best peer", ratio, 1.5, 3, name, more=True)], [
        found
    ]


def small(rounds: int) -> tuple[list[Figure], list[Results]]:
    """From the start of a process to the file of a small job, and how long its two libraries take to import."""
    script = """
import sys, weblake
with weblake.Client(sys.argv[3], "of-a-benchmark") as client:
    weblake.land("batch", sys.argv[1], to=sys.argv[2], client=client)
"""
    imports, jobs = [], []
    with served(make(CACHE, "small")) as url:
        for _ in range(rounds * 3):
            imports.append(_wall("-c", "import pyarrow, httpx"))
            out = tempfile.mkdtemp(dir=CACHE)
            jobs.append(_wall("-c", script, "0199d0c2-7f1e-4abc-8def-000000000001", f"{out}/lake", url))
            shutil.rmtree(out)
    ratio = statistics.median(jobs) / statistics.median(imports)
    print(f"  small: imports {imports}, jobs {jobs}", file=sys.stderr)
    return [Figure("first result of a small job, over `import pyarrow, httpx`", ratio, 2.0, 1.5)], []


def poll(rounds: int) -> tuple[list[Figure], list[Results]]:
    """What one poll of a running job costs, once its documents so far are known to be there."""
    script = """
import json, os, sys, time, urllib.request, weblake
from weblake.events import StatusPolled
from weblake.orchestration import JobRef, wait

polled, looks = 0, []
def look(event):
    global polled
    polled += isinstance(event, StatusPolled)
    if polled in (100, 600):
        tally = json.loads(urllib.request.urlopen(sys.argv[2] + "/_tally").read())
        looks.append((tally["requests"], tally["sent"], time.process_time()))
    if len(looks) == 2:
        (asked, sent, cpu), (asked_then, sent_then, cpu_then) = looks
        polls = asked_then - asked
        found = {"kb": (sent_then - sent) / polls / 1024, "cpu_ms": (cpu_then - cpu) / polls * 1000}
        print(json.dumps(found), flush=True)
        os._exit(0)  # the job never ends

client = weblake.Client(sys.argv[2], "of-a-benchmark")
client.run(wait(JobRef("batch_scrape", sys.argv[1]), client.retry.observed_by(look), until=time.monotonic() + 600,
                first_s=0.005, poll_s=0.005))
"""
    with served(make(CACHE, "medium"), "--running") as url:
        found = [json.loads(_out("-c", script, "0199d0c2-7f1e-4abc-8def-000000000001", url)) for _ in range(rounds)]
    print(f"  poll: {found}", file=sys.stderr)
    return [
        Figure("poll of a running job, KB", statistics.median(each["kb"] for each in found), 1.0, 1.0),
        Figure("poll of a running job, ms of CPU", statistics.median(each["cpu_ms"] for each in found), 1.0, 0.5),
    ], []


def waiting(rounds: int) -> tuple[list[Figure], list[Results]]:
    """What ten thousand waiting jobs cost the process of a triggerer, polled every ten seconds over TLS."""
    found = [json.loads(_out(str(HERE / "waiting_jobs.py"), "--shared").splitlines()[-1]) for _ in range(rounds)]
    print(f"  waiting: {found}", file=sys.stderr)

    def median(what: str) -> float:
        return statistics.median(each[what] for each in found)

    return [
        Figure("10,000 waiting jobs: cores", median("cores"), 0.8, 0.4),
        Figure("10,000 waiting jobs: lag p99, ms", median("lag_p99_ms"), 50, 20),
        Figure("10,000 waiting jobs: MB", median("memory_mb"), 150, 80),
    ], []


def _wall(*args: str) -> float:
    began = time.perf_counter()
    _out(*args)
    return time.perf_counter() - began


def _out(*args: str) -> str:
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, check=False, env=dict(os.environ))
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return done.stdout


PARTS: dict[str, Any] = {
    "medium": medium,
    "latency": latency,
    "tiny": tiny,
    "small": small,
    "poll": poll,
    "waiting": waiting,
    "large": large,
}


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    CACHE.mkdir(exist_ok=True)
    figures: list[Figure] = []
    tables: list[Results] = []
    for name in given.only:
        mine, results = PARTS[name](given.rounds)
        figures += mine
        tables += results
        for figure in mine:
            print(figure.line(), flush=True)
    if given.write:
        write_report(figures, tables, given.rounds)


if __name__ == "__main__":
    main()
