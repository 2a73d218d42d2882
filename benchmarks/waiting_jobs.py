"""What ten thousand waiting jobs cost a triggerer: CPU for a poll, memory for a job, sockets, and the event loop's lag.

    uv run python benchmarks/waiting_jobs.py                                   about two minutes
    uv run python benchmarks/waiting_jobs.py --shared                          the first row alone, as JSON: one minute
    uv run python benchmarks/waiting_jobs.py --jobs 1000 --seconds 20          a minute
    uv run python benchmarks/waiting_jobs.py --runner                          through Airflow's own TriggerRunner

Each row is a process of its own with one event loop, against a stand-in service in another process, over TLS. `shared`
is WeblakeJobTrigger as it is. Beside it, with fewer jobs (a client of one's own costs too much for ten thousand):
`own client` is the same trigger with a client for each, and `httpx loop` what providers usually do, an
`httpx.AsyncClient` for each trigger and a poll every so many seconds. Both are to be held against `shared` with as many
jobs, which is the row above them.

First all jobs start at once, as after a restart of the triggerer; after a while polls come steadily, and then cores,
lag and memory are measured; in the end all complete in the same moment, and the time until the last trigger has fired
is measured. Memory is what is resident above the imports, the triggers themselves included.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.jobs.triggerer_job_runner import TriggerRunner
    from airflow.triggers.base import BaseTrigger

    import weblake

HERE = Path(__file__).resolve()
#: The share of a run in which the jobs still come in; after it, polls are counted as steady.
SETTLING = 0.6
WAYS = ("shared", "own client", "httpx loop")


@dataclass(frozen=True)
class Plan:
    way: str
    jobs: int
    seconds: float
    poll_s: float
    url: str
    runner: bool = False


@dataclass
class Measured:
    #: Of the whole run, its start and its end included.
    cpu_ms_per_poll: float
    memory_mb: float
    polls_per_s: float
    cores: float
    connections: int
    most_open: int
    lag_p50_ms: float
    lag_p99_ms: float
    #: Of the whole run: that of its start, when all jobs come in the same moment.
    lag_max_ms: float
    noticed_p50_s: float
    noticed_last_s: float


def job_id(number: int) -> str:
    return f"0199d0c2-7f1e-7abc-8def-{number:012d}"


def get(url: str) -> dict[str, int]:
    with urllib.request.urlopen(url, timeout=60, context=ssl.create_default_context()) as reply:
        found: dict[str, int] = json.loads(reply.read())
    return found


def rss_kb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


class Lag:
    """How late the event loop wakes somebody who sleeps 20 ms."""

    def __init__(self) -> None:
        self.late: list[float] = []

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.02)
            self.late.append((time.perf_counter() - began - 0.02) * 1000)

    def at(self, percent: int, *, since: int, until: int) -> float:
        return statistics.quantiles(self.late[since:until], n=100)[percent - 1]


def triggers(plan: Plan) -> list[Callable[[], Awaitable[None]]]:
    """What waits for each job, to be run to its end."""
    if plan.way == "httpx loop":
        return [lambda number=number: httpx_loop(plan, number) for number in range(plan.jobs)]  # type: ignore[misc]
    from airflow_provider_weblake.triggers import weblake as ours
    from weblake.jobs import polling

    if plan.way == "own client":
        vars(ours)["shared_client"] = own_client

    def make(number: int) -> Callable[[], Awaitable[None]]:
        trigger = ours.WeblakeJobTrigger(
            weblake_conn_id="weblake_default",
            kind="batch_scrape",
            job_id=job_id(number),
            deadline=time.time() + 3600,
            # Pauses are spread below the interval; the plan says how far apart polls are on average.
            poll_interval=plan.poll_s / (1 - polling.SPREAD / 2),
            owns_job=True,
            cancel_on_kill=True,
        )
        return (lambda: through_runner(number, trigger)) if plan.runner else (lambda: to_its_end(trigger))

    return [make(number) for number in range(plan.jobs)]


async def to_its_end(trigger: BaseTrigger) -> None:
    async for event in trigger.run():
        assert isinstance(event.payload, dict)
        assert event.payload["status"] == "completed", event


async def through_runner(number: int, trigger: BaseTrigger) -> None:
    """As the triggerer does it: logging, tracing and its portal for synchronous code included."""
    mine = asyncio.current_task()
    assert mine is not None
    RUNNER.triggers[number] = {"task": mine, "name": str(number), "events": 0, "is_watcher": False}
    await RUNNER.run_trigger(number, trigger)
    assert RUNNER.triggers.pop(number)["events"] == 1


@asynccontextmanager
async def own_client(weblake_conn_id: str) -> AsyncIterator[weblake.AsyncClient]:
    from airflow_provider_weblake.hooks.weblake import WeblakeHook

    async with await WeblakeHook(weblake_conn_id).aget_client() as client:
        yield client


async def httpx_loop(plan: Plan, number: int) -> None:
    import httpx
    from airflow.sdk import BaseHook

    connection = await BaseHook.aget_connection("weblake_default")
    headers = {"authorization": f"Bearer {connection.password}"}
    async with httpx.AsyncClient(base_url=str(connection.host), headers=headers) as client:
        while True:
            reply = await client.get(f"/v2/batch/scrape/{job_id(number)}")
            reply.raise_for_status()
            if reply.json()["status"] == "completed":
                return
            await asyncio.sleep(plan.poll_s)


async def measure(plan: Plan) -> Measured:
    await asyncio.to_thread(get, f"{plan.url}/_tally")
    triggers(replace(plan, jobs=1))  # what it imports is no job's memory
    memory, cpu = rss_kb(), time.process_time()
    waiting = triggers(plan)
    fired: list[float] = []

    async def wait(one: Callable[[], Awaitable[None]]) -> None:
        await one()
        fired.append(time.perf_counter())

    lag = Lag()
    watching = asyncio.create_task(lag.watch())
    async with asyncio.TaskGroup() as group:
        for one in waiting:
            group.create_task(wait(one))
        await asyncio.sleep(plan.seconds * SETTLING)
        settled, settled_cpu, at = await asyncio.to_thread(get, f"{plan.url}/_tally"), time.process_time(), time.time()
        since = len(lag.late)
        await asyncio.sleep(plan.seconds * (1 - SETTLING))
        steady, steady_cpu = await asyncio.to_thread(get, f"{plan.url}/_tally"), time.process_time()
        elapsed, until = time.time() - at, len(lag.late)
        memory = rss_kb() - memory
        ended = time.perf_counter()
        await asyncio.to_thread(get, f"{plan.url}/_end/{plan.jobs}")
    watching.cancel()
    cpu = time.process_time() - cpu
    tally = await asyncio.to_thread(get, f"{plan.url}/_tally")
    assert len(fired) == plan.jobs
    return Measured(
        cpu_ms_per_poll=cpu / tally["polls"] * 1000,
        memory_mb=memory / 1024,
        polls_per_s=(steady["polls"] - settled["polls"]) / elapsed,
        cores=(steady_cpu - settled_cpu) / elapsed,
        connections=tally["opened"] - 4,  # those of the measurement itself
        most_open=tally["most_open"],
        lag_p50_ms=lag.at(50, since=since, until=until),
        lag_p99_ms=lag.at(99, since=since, until=until),
        lag_max_ms=max(lag.late),
        noticed_p50_s=statistics.median(fired) - ended,
        noticed_last_s=max(fired) - ended,
    )


def in_process(plan: Plan) -> Measured:
    """One measurement in a process of its own; the process's environment is ready."""
    global RUNNER
    logging_off()
    if plan.runner:
        from airflow.jobs.triggerer_job_runner import TriggerRunner

        RUNNER = TriggerRunner()
    return asyncio.run(measure(plan))


def logging_off() -> None:
    """Airflow logs to a file for each task; here ten thousand tasks would share a terminal."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)


@contextmanager
def service(latency_ms: float, home: Path) -> Iterator[str]:
    """The stand-in in a process of its own; yields its URL."""
    pair = [str(home / "certificate.pem"), str(home / "key.pem")]
    command = [sys.executable, str(HERE.with_name("status_service.py")), str(latency_ms), *pair]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"https://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def make_certificate(home: Path) -> None:
    """A certificate for 127.0.0.1, and a list of trusted ones as long as clients usually load."""
    import certifi
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "status service")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    now = datetime.now(timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(1))
    made = made.add_extension(address, critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (home / "certificate.pem").write_bytes(pem)
    (home / "trusted.pem").write_bytes(Path(certifi.where()).read_bytes() + b"\n" + pem)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (home / "key.pem").write_bytes(key.private_bytes(*form))


#: Airflow's runner of triggers, in the process of a row that goes through it.
RUNNER: TriggerRunner


def row(way: str, jobs: int, seconds: float, poll_s: float, options: argparse.Namespace) -> Measured:
    """One row, measured in a new process against a new service."""
    with tempfile.TemporaryDirectory(prefix="weblake-benchmark-") as folder:
        home = Path(folder)
        make_certificate(home)
        trusted = str(home / "trusted.pem")
        os.environ["SSL_CERT_FILE"] = trusted
        with service(options.latency_ms, home) as url:
            connection = {"conn_type": "weblake", "host": url, "password": "test-key"}
            plan = Plan(way, jobs, seconds, poll_s, url, options.runner and way != "httpx loop")
            environment = {
                **os.environ,
                "AIRFLOW_HOME": folder,
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW_CONN_WEBLAKE_DEFAULT": json.dumps(connection),
                "_AIRFLOW_PROCESS_CONTEXT": "client",
                "SSL_CERT_FILE": trusted,
            }
            command = [sys.executable, str(HERE), "--row", json.dumps(vars(plan))]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


HEAD = (
    "",
    "jobs",
    "CPU ms/poll",
    "MB",
    "polls/s",
    "cores",
    "opened",
    "open",
    "lag p50/p99/max ms",
    "noticed p50/last s",
)


def told(way: str, jobs: int, of: Measured) -> tuple[str, ...]:
    return (
        way,
        f"{jobs}",
        f"{of.cpu_ms_per_poll:.2f}",
        f"{of.memory_mb:.1f}",
        f"{of.polls_per_s:.0f}",
        f"{of.cores:.2f}",
        f"{of.connections}",
        f"{of.most_open}",
        f"{of.lag_p50_ms:.1f} / {of.lag_p99_ms:.0f} / {of.lag_max_ms:.0f}",
        f"{of.noticed_p50_s:.1f} / {of.noticed_last_s:.1f}",
    )


def main(options: argparse.Namespace) -> None:
    if options.shared:
        print(json.dumps(vars(row("shared", options.jobs, options.seconds, options.poll, options))))
        return
    few = min(options.jobs, options.compare)
    # Few jobs poll more often, so that there are polls enough to measure.
    few_poll_s = max(2.0, options.poll * few / options.jobs)
    first = row("shared", options.jobs, options.seconds, options.poll, options)
    rows = [told("shared", options.jobs, first)]
    found = {way: row(way, few, min(options.seconds, 8.0), few_poll_s, options) for way in WAYS}
    rows += [told(way, few, of) for way, of in found.items()]
    widths = [max(len(line[column]) for line in [HEAD, *rows]) for column in range(len(HEAD))]
    for line in [HEAD, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    base = found["shared"]
    print(f"\nHeld against `shared` with {few} jobs:")
    for way in WAYS[1:]:
        of = found[way]
        print(
            f"  {way}: {of.cpu_ms_per_poll / base.cpu_ms_per_poll:.1f} times the CPU for a poll (the making of the"
            f" client included), {of.memory_mb / base.memory_mb:.1f} times the memory,"
            f" {of.most_open / base.most_open:.0f} times the open connections"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the jobs run, in seconds")
    parser.add_argument("--poll", type=float, default=10.0, help="seconds between two polls of a job, on average")
    parser.add_argument("--compare", type=int, default=200, help="jobs in the rows that are compared")
    parser.add_argument("--latency-ms", type=float, default=50.0, help="how long the service takes to answer")
    parser.add_argument("--runner", action="store_true", help="through Airflow's TriggerRunner.run_trigger")
    parser.add_argument("--shared", action="store_true", help="nothing but the row that the figures are of, as JSON")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        print(json.dumps(vars(in_process(Plan(**json.loads(given.row))))))
    else:
        main(given)
