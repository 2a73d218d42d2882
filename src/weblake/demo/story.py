"""The steps of the demo: crawl, batch, batch again, Airflow, Dagster, usage, activity.

Each step stores its results in the `Story`.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.markup import escape

from weblake import output
from weblake.api.models import is_terminal
from weblake.api.options import BatchScrapeOptions, CrawlOptions
from weblake.client import Client
from weblake.dataset.root import open_dataset
from weblake.demo import airflow_step, dagster_step
from weblake.demo.guest_process import GuestFailed, Lake, missing_packages_text
from weblake.demo.site_server import SiteServer
from weblake.embedded import needs_local
from weblake.errors import InvalidOption, StorageRefused
from weblake.home import home
from weblake.jobs import usage_reports as reports
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.usage_reports import Report
from weblake.loads import load, load_request, publishing, starts
from weblake.loads import usage as usage_landing
from weblake.loads.load_request import LoadRequest, Naming, Terms
from weblake.loads.publishing import Dataset, LandedLoad
from weblake.receipt import LandedFile, Receipt

if TYPE_CHECKING:
    from weblake_service.server import LocalService

#: The default directory; a number is added if it exists.
FRESH = "weblake-demo"
#: Below the root, hidden from globs over a table. A second run into the same root reuses it, so that the month's usage
#: includes all loads there.
DATABASE = Path("_weblake") / "demo" / "service.db"
#: The names of the API keys; several, so that the usage by key has several rows.
CRAWLS, BATCHES, DAGS, ASSETS = "nightly-crawl", "hourly-batch", "airflow", "dagster"
#: The part of the site that the example DAG crawls, and its credit limit.
DAG_PART, DAG_CREDITS = "/notes/", 50
#: The parts that the example assets crawl: the observed one, and the one that is a separate site.
ASSETS_PART, ASSETS_SITE = "/stations/", "/warnings/"

T = TypeVar("T")

_TERMS = Terms(timeout_s=300, poll_s=1)
_CRAWL: CrawlOptions = {"limit": 500, "scrape_options": {"formats": ["markdown", "links"]}}
_BATCH: BatchScrapeOptions = {"formats": ["markdown", "html", "links", "images"]}


@dataclass(slots=True)
class Story:
    """The shared state and the results of the steps."""

    root: Path
    dataset: Dataset
    site: SiteServer
    service: LocalService
    #: The API keys by name, and a client for each.
    keys: Mapping[str, str] = field(repr=False)
    clients: Mapping[str, Client]
    #: A URL without a listening server.
    silent_url: str
    crawl: Receipt | None = None
    batch: Receipt | None = None
    #: None if the Airflow provider is not installed.
    airflow: Receipt | None = None
    #: None if the Dagster integration is not installed.
    dagster: dagster_step.Materialized | None = None
    usage: list[Report] = field(default_factory=list)
    usage_files: list[LandedFile] = field(default_factory=list)
    activity_entries: int = 0
    activity_files: list[LandedFile] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def loads(self) -> dict[str, Receipt]:
        """Return the receipts of this run, by their names in the output."""
        named = (("crawl", self.crawl), ("batch", self.batch), ("airflow", self.airflow))
        assets = {} if self.dagster is None else self.dagster.loads
        found = {name: receipt for name, receipt in named if receipt is not None}
        return found | {name.replace("_", " "): receipt for name, receipt in assets.items()}

    @property
    def files(self) -> list[LandedFile]:
        """Return all files that this run wrote."""
        return [*(file for each in self.loads.values() for file in each.files), *self.usage_files, *self.activity_files]


def play(to: Path | None) -> Story:
    """Run all steps, with a line each on standard error, and return the results; raises as `run_demo`."""
    begun = time.monotonic()
    try:
        with _stage(to) as story:
            for name, step in STEPS:
                since = time.monotonic()
                line = step(story)
                _say(name, f"{line} [dim]({time.monotonic() - since:.1f} s)[/dim]")
            story.seconds = time.monotonic() - begun
            return story
    except KeyboardInterrupt:
        output.note("weblake: interrupted; what had landed by then is whole. `weblake demo` begins afresh.")
        raise


def batch_urls(site: str, silent_url: str) -> list[str]:
    """Return the URLs of the batch: pages of many kinds, one of them twice, and most kinds of failures."""
    paths = (
        *("/", "/notes/the-flood-of-march", "/notes/parsing-the-feed", "/warnings/ar", "/archive/leaflet-1974"),
        *("/data/readings.csv", "/data/low-harbour-2025", "/stations/quillmarsh", "/stations/quillmarsh"),
        *("/flood", "/stations/mill-race", "/live", "/staff/rota", "/media/staff-gauge.png"),
    )
    return [*(site + path for path in paths), silent_url, "ftp://ostrel.example/1998"]


def _crawl(story: Story) -> str:
    request = load_request.crawl(f"{story.site.url}/", _naming(story), _TERMS, **_CRAWL)
    story.crawl = _land(story, CRAWLS, request).receipt
    return f"the whole site: {_counts(story.crawl)}"


def _batch(story: Story) -> str:
    story.batch = _land(story, BATCHES, _batch_request(story)).receipt
    return f"{story.batch.submitted} chosen URLs: {_counts(story.batch)}"


def _batch_again(story: Story) -> str:
    before = len(story.service.requests())
    landing = _land(story, BATCHES, _batch_request(story))
    asked = len(story.service.requests()) - before
    found = "landed already" if landing.landed_at is not None else "landed a second time"
    return f"the same batch: {found}, {asked} requests sent"


def _airflow(story: Story) -> str:
    lacking = airflow_step.missing()
    if lacking:
        return missing_packages_text(lacking, airflow_step.PACKAGE)
    lake = _lake(story, DAGS, DAG_PART)
    with _guest(story, DAGS, "Airflow starts, and runs a DAG"):
        story.airflow = airflow_step.run(lake, DAG_CREDITS)
    name, number = airflow_step.EXAMPLE, airflow_step.airflow_version()
    return f"the DAG {name}, run by Airflow {number}: {_counts(story.airflow)}"


def _dagster(story: Story) -> str:
    lacking = dagster_step.missing()
    if lacking:
        return escape(missing_packages_text(lacking, dagster_step.PACKAGE))
    lake = _lake(story, ASSETS, ASSETS_PART)
    with _guest(story, ASSETS, "Dagster starts, and materializes assets"):
        made = story.dagster = dagster_step.run(lake, story.site.url + ASSETS_SITE)
    documents = sum(receipt.stored for receipt in made.loads.values())
    number = dagster_step.dagster_version()
    return f"{made.assets} assets, made by Dagster {number}: {documents} documents, {made.checks} checks passed"


def _usage(story: Story) -> str:
    client = story.clients[CRAWLS]
    for by_api_key in (False, True):
        found = client.run(reports.report("credits", client.retry, by_api_key=by_api_key))
        story.usage.append(found)
        story.usage_files += usage_landing.land_report(found, story.dataset.storage)
    used = sum(period.total_credits or 0 for period in story.usage[0].periods)
    return f"{used:g} credits, by month and by API key"


def _activity(story: Story) -> str:
    client = story.clients[CRAWLS]
    entries = client.run(reports.activity(client.retry))
    story.activity_entries = len(entries)
    story.activity_files = usage_landing.land_activity(entries, story.dataset.storage)
    return f"{len(entries)} calls of the last 24 hours"


#: The steps, in order; each returns one line about its result.
STEPS: tuple[tuple[str, Callable[[Story], str]], ...] = (
    ("crawl", _crawl),
    ("batch", _batch),
    ("again", _batch_again),
    ("airflow", _airflow),
    ("dagster", _dagster),
    ("usage", _usage),
    ("activity", _activity),
)


@contextmanager
def _stage(to: Path | None) -> Iterator[Story]:
    """Yield a `Story` with all servers and clients running; they are stopped at the end of the block."""
    with needs_local():
        from weblake_service.config import new_key
        from weblake_service.server import LocalService
    root = _root(to)
    dataset = open_dataset(root)
    earlier = sum(1 for _ in publishing.history(dataset))
    _say("dataset", f"{escape(str(root))}/" + (f", where {earlier} loads have landed before" if earlier else ""))
    with ExitStack() as stack:
        site = stack.enter_context(SiteServer())
        _say("site", f"a network of river gauges, {len(site.site.pages)} addresses at {site.url}")
        keys = {name: new_key() for name in (CRAWLS, BATCHES, DAGS, ASSETS)}
        service = stack.enter_context(LocalService(root / DATABASE, keys=keys, allow_private=True))
        _say("service", f"{service.url}, with its database in {DATABASE.parent}/")
        clients = {name: stack.enter_context(Client(service.url, key)) for name, key in keys.items()}
        # Bound and never listening: no other process can get the port, and connections are refused at once.
        silent = stack.enter_context(closing(socket.socket()))
        silent.bind(("127.0.0.1", 0))
        yield Story(root, dataset, site, service, keys, clients, f"http://127.0.0.1:{silent.getsockname()[1]}/")


def _root(to: Path | None) -> Path:
    """Return the root, created if missing, with the directory of the service's database in it."""
    if to is not None and re.match(r"[a-z0-9]{2,}:/", str(to)):
        raise InvalidOption(f"The demo writes to a local directory, and {to} is none.", hint="Such as --to ./lake.")
    root = home(to) if to is not None else Path(FRESH)
    number = 1
    try:
        while to is None:
            try:
                root.mkdir()
                break
            except FileExistsError:
                number += 1
                root = Path(f"{FRESH}-{number}")
        (root / DATABASE).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageRefused(
            f"The demo cannot write to {root}: {error.strerror}.", hint="Name a directory that it can make: --to DIR."
        ) from None
    return root


def _naming(story: Story) -> Naming:
    return Naming()


def _batch_request(story: Story) -> LoadRequest:
    urls = batch_urls(story.site.url, story.silent_url)
    return load_request.batch(urls, _naming(story), **_BATCH)


def _land(story: Story, key_name: str, request: LoadRequest) -> LandedLoad:
    client, jobs = story.clients[key_name], list[str]()
    try:
        with output.watching(request.kind.replace("_", " "), quiet=not output.err.is_terminal) as callbacks:

            def on_start(job_id: str) -> None:
                jobs.append(job_id)
                callbacks.on_start(job_id)

            return load.land(client, story.dataset, request, _TERMS, replace(callbacks, on_start=on_start))
    except KeyboardInterrupt:
        # The site ends with this run: in the next run, an open job would continue at a port that may belong to another
        # program.
        for job_id in jobs:
            client.run(starts.cancel(JobRef(request.kind, job_id), client.retry))
        raise


def _lake(story: Story, key_name: str, part: str) -> Lake:
    return Lake(story.root, story.site.url + part, story.service.url, story.keys[key_name])


@contextmanager
def _guest(story: Story, key_name: str, words: str) -> Iterator[None]:
    """Show the progress of a step, and its log if it failed; on an interrupt, cancel the jobs of the step."""
    try:
        with output.err.status(words) if output.err.is_terminal else nullcontext():
            yield
    except GuestFailed as error:
        for line in error.log:
            output.note(f"  [dim]{escape(line)}[/dim]")
        raise
    except KeyboardInterrupt:
        _cancel_open_jobs(story.clients[key_name])
        raise


def _cancel_open_jobs(client: Client) -> None:
    """Cancel the jobs that are still running, because the site ends with this run."""
    for entry in client.run(reports.activity(client.retry)):
        if entry.endpoint in ("crawl", "batch_scrape") and entry.id:
            job = JobRef(entry.endpoint, entry.id)
            if not is_terminal(client.run(get_status(job, client.retry)).get("status")):
                client.run(starts.cancel(job, client.retry))


def _counts(receipt: Receipt) -> str:
    named = (
        ("failed", receipt.failed),
        ("blocked by robots.txt", receipt.robots_blocked),
        ("rejected", receipt.rejected),
    )
    return ", ".join([f"{receipt.stored} documents", *(f"{count} {name}" for name, count in named if count)])


def _say(name: str, line: str) -> None:
    output.note(f"[green]✓[/green] [bold]{name:<8}[/bold] {line}")
