"""The steps of the demo: crawl, batch, batch again, Airflow, Dagster, usage, activity."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from weblake import output
from weblake.api.models import is_terminal
from weblake.api.options import BatchScrapeOptions, CrawlOptions
from weblake.client import Client
from weblake.client.embedded import require_local_extra
from weblake.credentials import home
from weblake.dataset import history
from weblake.dataset.root import Dataset, LandedLoad, open_dataset
from weblake.demo import orchestrators
from weblake.demo.orchestrators import AIRFLOW, DAGSTER, Lake, OrchestratorFailed
from weblake.demo.site import DemoSite
from weblake.errors import InvalidOption, StorageRefused
from weblake.jobs import cancelling, usage_reports
from weblake.jobs.polling import JobRef, get_status
from weblake.jobs.retry import observing
from weblake.jobs.usage_reports import Report
from weblake.loads import load, load_request, usage
from weblake.loads.load_request import LoadRequest, Naming, Terms
from weblake.receipt import LandedFile, Receipt

if TYPE_CHECKING:
    from weblake_service.server import LocalService

#: The default directory; a number is added if it exists.
DEFAULT_ROOT = "weblake-demo"
#: Below the root, hidden from globs over a table. A second run into the same root reuses it, so that the month's usage
#: includes all loads there.
DATABASE = Path("_weblake") / "demo" / "service.db"
#: The names of the API keys; several, so that the usage by key has several rows.
CRAWLS, BATCHES, DAGS, ASSETS = "nightly-crawl", "hourly-batch", "airflow", "dagster"
#: The part of the site that the example DAG crawls, and its credit limit.
DAG_PART, DAG_CREDITS = "/notes/", 50
#: The parts that the example assets crawl: the observed one, and the one that is a separate site.
ASSETS_PART, ASSETS_SITE = "/stations/", "/warnings/"
#: A URL without a server.
SILENT_URL = "http://127.0.0.1:9/"

_TERMS = Terms(timeout_s=300, poll_s=1)
_CRAWL: CrawlOptions = {"limit": 500, "scrape_options": {"formats": ["markdown", "links"]}}
_BATCH: BatchScrapeOptions = {"formats": ["markdown", "html", "links", "images"]}


@dataclass(slots=True)
class Demo:
    """What the steps share, and their results."""

    root: Path
    dataset: Dataset
    site: DemoSite
    service: LocalService
    #: The API keys by name, and a client for each.
    keys: Mapping[str, str] = field(repr=False)
    clients: Mapping[str, Client]
    #: The receipts of this run, by their names in the output.
    loads: dict[str, Receipt] = field(default_factory=dict)
    #: The usage of the team, and the usage by API key.
    usage: list[Report] = field(default_factory=list)
    usage_files: list[LandedFile] = field(default_factory=list)
    activity_entries: int = 0
    activity_files: list[LandedFile] = field(default_factory=list)
    seconds: float = 0.0


def run_steps(to: Path | None) -> Demo:
    """Run all steps, with a line each on standard error, and return the results; raises as `run_demo`."""
    started = time.monotonic()
    try:
        with _demo(to) as demo:
            for name, step in STEPS:
                since = time.monotonic()
                line = step(demo)
                _show(name, f"{line} [dim]({time.monotonic() - since:.1f} s)[/dim]")
            demo.seconds = time.monotonic() - started
            return demo
    except KeyboardInterrupt:
        output.note(
            "weblake: interrupted; what had landed before is complete. `weblake demo` starts from the beginning."
        )
        raise


def batch_urls(site: str) -> list[str]:
    """Return the URLs of the batch: pages of many kinds, one of them twice, and most kinds of failures."""
    paths = (
        *("/", "/notes/the-flood-of-march", "/notes/parsing-the-feed", "/warnings/ar", "/archive/leaflet-1974"),
        *("/data/readings.csv", "/data/stations.json", "/stations/quillmarsh", "/stations/quillmarsh"),
        *("/flood", "/stations/mill-race", "/live", "/staff/rota", "/media/staff-gauge.png"),
    )
    return [*(site + path for path in paths), SILENT_URL, "ftp://ostrel.example/1998"]


def _crawl(demo: Demo) -> str:
    request = load_request.crawl(f"{demo.site.url}/", Naming(), _TERMS, **_CRAWL)
    receipt = demo.loads["crawl"] = _land(demo, CRAWLS, request).receipt
    return f"the whole site: {_counts(receipt)}"


def _batch(demo: Demo) -> str:
    receipt = demo.loads["batch"] = _land(demo, BATCHES, _batch_request(demo)).receipt
    return f"{receipt.submitted} chosen URLs: {_counts(receipt)}"


def _batch_again(demo: Demo) -> str:
    before = len(demo.service.requests())
    landing = _land(demo, BATCHES, _batch_request(demo))
    sent = len(demo.service.requests()) - before
    found = "landed already" if landing.landed_at is not None else "landed a second time"
    return f"the same batch: {found}, {sent} requests sent"


def _airflow(demo: Demo) -> str:
    if missing := AIRFLOW.missing():
        return missing
    lake = Lake(demo.root, demo.site.url + DAG_PART, demo.service.url, demo.keys[DAGS])
    with _orchestrator(demo, DAGS, "Airflow starts, and runs a DAG"):
        receipt = demo.loads["airflow"] = orchestrators.run_airflow(lake, DAG_CREDITS)
    return f"the DAG {orchestrators.EXAMPLE_DAG}, run by {AIRFLOW.title}: {_counts(receipt)}"


def _dagster(demo: Demo) -> str:
    if missing := DAGSTER.missing():
        return escape(missing)
    lake = Lake(demo.root, demo.site.url + ASSETS_PART, demo.service.url, demo.keys[ASSETS])
    with _orchestrator(demo, ASSETS, "Dagster starts, and materializes assets"):
        made = orchestrators.run_dagster(lake, demo.site.url + ASSETS_SITE)
    demo.loads |= {name.replace("_", " "): receipt for name, receipt in made.loads.items()}
    documents = sum(receipt.stored for receipt in made.loads.values())
    return f"{made.assets} assets, made by {DAGSTER.title}: {documents} documents, {made.checks} checks passed"


def _usage(demo: Demo) -> str:
    client = demo.clients[CRAWLS]
    for by_api_key in (False, True):
        report = client.run(usage_reports.report("credits", client.retry, by_api_key=by_api_key))
        demo.usage.append(report)
        demo.usage_files += usage.land_report(report, demo.dataset)
    used = sum(period.total_credits or 0 for period in demo.usage[0].periods)
    return f"{used:g} credits, by month and by API key"


def _activity(demo: Demo) -> str:
    client = demo.clients[CRAWLS]
    entries = client.run(usage_reports.activity(client.retry))
    demo.activity_entries = len(entries)
    demo.activity_files = usage.land_activity(entries, demo.dataset)
    return f"{len(entries)} calls of the last 24 hours"


#: The steps, in order; each returns one line about its result.
STEPS: tuple[tuple[str, Callable[[Demo], str]], ...] = (
    ("crawl", _crawl),
    ("batch", _batch),
    ("again", _batch_again),
    ("airflow", _airflow),
    ("dagster", _dagster),
    ("usage", _usage),
    ("activity", _activity),
)


@contextmanager
def _demo(to: Path | None) -> Iterator[Demo]:
    """Yield a `Demo` with its site, service and clients; they are stopped at the end of the block."""
    with require_local_extra():
        from weblake_service.config import new_key
        from weblake_service.server import LocalService
    root = _root(to)
    dataset = open_dataset(root)
    earlier = sum(1 for _ in history.history(dataset))
    _show("dataset", f"{escape(str(root))}/" + (f", where {earlier} loads have landed before" if earlier else ""))
    with ExitStack() as stack:
        site = stack.enter_context(DemoSite())
        _show("site", f"a network of river gauges, {len(site.pages)} addresses at {site.url}")
        keys = {name: new_key() for name in (CRAWLS, BATCHES, DAGS, ASSETS)}
        service = stack.enter_context(LocalService(root / DATABASE, keys=keys, allow_private=True))
        _show("service", f"{service.url}, with its database in {DATABASE.parent}/")
        clients = {name: stack.enter_context(Client(service.url, key)) for name, key in keys.items()}
        yield Demo(root, dataset, site, service, keys, clients)


def _root(to: Path | None) -> Path:
    """Return the root, created if missing, with the directory of the service's database in it."""
    if to is not None and re.match(r"[a-z0-9]{2,}:/", str(to)):
        raise InvalidOption(f"The demo writes to a local directory, and {to} is none.", hint="Such as --to ./lake.")
    root = home(to) if to is not None else Path(DEFAULT_ROOT)
    number = 1
    try:
        while to is None:
            try:
                root.mkdir()
                break
            except FileExistsError:
                number += 1
                root = Path(f"{DEFAULT_ROOT}-{number}")
        (root / DATABASE).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageRefused(
            f"The demo cannot write to {root}: {error.strerror}.", hint="Name a directory that it can make: --to DIR."
        ) from None
    return root


def _batch_request(demo: Demo) -> LoadRequest:
    return load_request.batch(batch_urls(demo.site.url), Naming(), **_BATCH)


def _land(demo: Demo, key_name: str, request: LoadRequest) -> LandedLoad:
    client = demo.clients[key_name]
    try:
        with (
            output.load_progress(request.kind.replace("_", " "), quiet=not output.err.is_terminal) as progress,
            observing(client, progress),
        ):
            return load.land(client, demo.dataset, request, _TERMS)
    except KeyboardInterrupt:
        _cancel_open_jobs(client)
        raise


@contextmanager
def _orchestrator(demo: Demo, key_name: str, words: str) -> Iterator[None]:
    """Show the progress of a step, and its log if it failed; on an interrupt, cancel the jobs of the step."""
    try:
        with output.err.status(words) if output.err.is_terminal else nullcontext():
            yield
    except OrchestratorFailed as error:
        for line in error.log:
            output.note(f"  [dim]{escape(line)}[/dim]")
        raise
    except KeyboardInterrupt:
        _cancel_open_jobs(demo.clients[key_name])
        raise


def _cancel_open_jobs(client: Client) -> None:
    """Cancel the jobs that are still running, because the site ends with this run.

    In the next run, they would continue at a port that may belong to another program.
    """
    for entry in client.run(usage_reports.activity(client.retry)):
        if entry.endpoint in ("crawl", "batch_scrape") and entry.id:
            job = JobRef(entry.endpoint, entry.id)
            if not is_terminal(client.run(get_status(job, client.retry)).get("status")):
                client.run(cancelling.cancel(job, client.retry))


def _counts(receipt: Receipt) -> str:
    named = (
        ("failed", receipt.failed),
        ("blocked by robots.txt", receipt.robots_blocked),
        ("rejected", receipt.rejected),
    )
    return ", ".join([f"{receipt.stored} documents", *(f"{count} {name}" for name, count in named if count)])


def _show(name: str, line: str) -> None:
    output.note(f"[green]✓[/green] [bold]{name:<8}[/bold] {line}")
