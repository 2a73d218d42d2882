"""The process that lands the loads of a soak: one round for each line of input, whose counts it prints.

Between two rounds it holds what a long-running program holds (one client, one event loop, one webhook receiver) and
nothing else: it is measured from outside at these times.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import weblake
from weblake import AsyncClient, Client
from weblake.dataset.root import open_dataset
from weblake.errors import WeblakeError
from weblake.jobs import usage_reports
from weblake.jobs.polling import JobRef, wait
from weblake.loads import load, load_request
from weblake.loads import usage as usage_landing
from weblake.loads.load_request import Naming, Terms
from weblake.receipt import Receipt
from weblake.testing.webhooks import WeblakeWebhooks

#: The number of concurrent loads.
AT_ONCE = 6
#: How often a load is repeated, as an orchestrator would.
TRIES = 8
TERMS = Terms(timeout_s=300.0, poll_s=0.5)


@dataclass
class Landings:
    """The rounds and their totals."""

    url: str
    key: str
    site: str
    root: str
    secret: str
    totals: Counter[str] = field(default_factory=Counter)
    told: set[str] = field(default_factory=set)
    #: Announced jobs of all rounds, with the ids of their deliveries.
    announced: dict[str, str | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = Client(self.url, self.key)
        self.pool = ThreadPoolExecutor(AT_ONCE)
        self.hooks = WeblakeWebhooks(self.secret)
        self.loop = asyncio.new_event_loop()
        self.lock = threading.Lock()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.watcher = AsyncClient(self.url, self.key)

    def round(self, n: int, loads: int, huge: bool) -> dict[str, int]:
        """Land so many loads, and return the totals of all rounds."""
        work = list(self.of_round(n, loads, huge))
        for receipt in self.pool.map(self.retry_until_success, work):
            assert receipt.complete, receipt
            self.totals["loads"] += 1
            self.totals["stored"] += receipt.stored
            self.totals["failed"] += receipt.failed
            self.totals["submitted"] += receipt.submitted
            self.totals["credits"] += round(receipt.credits_used or 0)
        self.usage()
        self.webhooks()
        return self.totals | {"objects": release_memory()}

    def of_round(self, n: int, loads: int, huge: bool) -> Iterator[Callable[[], Receipt]]:
        """Return the loads of a round, alternating between all kinds."""
        kinds = [self.batch, self.crawl, self.scrape, self.detached, self.own_client]
        for i in range(loads):
            yield partial(kinds[i % len(kinds)], f"{n}-{i}")
        if huge:
            urls = [f"{self.site}/b/{n}-{i}" for i in range(150)] + [f"{self.site}/p/{n}-{i}" for i in range(150)]
            yield partial(weblake.land_batch, urls, to=self.root, client=self.client, terms=TERMS, key=f"huge {n}")

    def urls(self, name: str) -> list[str]:
        return [f"{self.site}/p/{name}-{page}" for page in range(6)]

    def batch(self, name: str) -> Receipt:
        return weblake.land_batch(self.urls(name), to=self.root, client=self.client, terms=TERMS)

    def crawl(self, name: str) -> Receipt:
        return weblake.land_crawl(f"{self.site}/c/{name}/", to=self.root, client=self.client, terms=TERMS, limit=20)

    def scrape(self, name: str) -> Receipt:
        request = load_request.scrape(f"{self.site}/s/{name}", Naming())
        return load.land(self.client, open_dataset(self.root), request, TERMS).receipt

    def detached(self, name: str) -> Receipt:
        """Start a job, wait for it on the event loop and land it; its end is also announced by a webhook."""
        dataset = open_dataset(self.root)
        hook = {"url": self.hooks.url, "events": ["completed"]}
        request = load_request.batch(self.urls(name), Naming(), webhook=hook)  # type: ignore[typeddict-item]
        _, job, _ = load.start_load(self.client, dataset, request)
        with self.lock:
            self.told.add(job.job_id)
        waiting = wait(JobRef(job.kind, job.job_id), self.watcher.retry, until=time.monotonic() + 300, poll_s=0.5)
        asyncio.run_coroutine_threadsafe(self.watcher.run(waiting), self.loop).result(330)
        return load.collect(self.client, dataset, request.load_id, TERMS).receipt

    def own_client(self, name: str) -> Receipt:
        with Client(self.url, self.key) as client:
            return weblake.land_batch(self.urls(name), to=self.root, client=client, terms=TERMS)

    def retry_until_success(self, work: Callable[[], Any]) -> Any:
        for tried in range(TRIES):
            try:
                return work()
            except WeblakeError as error:
                self.totals["given up"] += 1
                if tried == TRIES - 1:
                    raise
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        raise AssertionError("unreachable")

    def usage(self) -> None:
        dataset = open_dataset(self.root)
        entries = self.retry_until_success(lambda: self.client.run(usage_reports.activity(self.client.retry)))
        usage_landing.land_activity(entries, dataset)
        report = self.retry_until_success(lambda: self.client.run(usage_reports.report("credits", self.client.retry)))
        usage_landing.land_report(report, dataset)

    def webhooks(self) -> None:
        """Assert that every job of this round was announced, under one delivery id however often it was delivered."""
        for job_id in self.told:
            self.hooks.wait("completed", job=job_id, timeout=300)
        for delivery in self.hooks.deliveries:
            assert delivery.verified
            # Also a second delivery of an earlier round, which may come after the first one was waited for.
            self.announced.setdefault(delivery.id, delivery.webhook_id)
            assert self.announced[delivery.id] == delivery.webhook_id
        self.totals["told"] += len(self.told)
        assert len(self.announced) == self.totals["told"]
        assert self.told <= self.announced.keys()
        self.told.clear()
        self.hooks.clear()


def release_memory() -> int:
    """Release memory that the allocator keeps for reuse, and return the number of live objects."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return len(gc.get_objects())


def main() -> None:
    landings = Landings(**json.loads(sys.stdin.readline()))
    with landings.hooks:
        for n, line in enumerate(sys.stdin):
            print(json.dumps(landings.round(n, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
