"""The commands batch, crawl and land, each of which lands one job, and loads, which lists what has landed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import structs
from rich.markup import escape

import weblake
from weblake import orchestration, output
from weblake.api.job_kinds import JOB_KINDS
from weblake.api.operations import credit_usage
from weblake.cli.app import (
    ContractOptions,
    Interrupted,
    JobId,
    Json,
    Kind,
    NamingOptions,
    PageOptions,
    PartitionOptions,
    Root,
    RootArgument,
    ServiceOptions,
    TermsOptions,
    dataset_to_land_in,
)
from weblake.cli.interrupts import exit_code_of, exit_on_termination
from weblake.cli.orphans import MAX_CHARS, in_place_of_new, unreadable_text
from weblake.credentials import one_line
from weblake.dataset import layout
from weblake.errors import FixRequest, InvalidOption, WeblakeError
from weblake.events import Event, LoadEnd, combine
from weblake.loads import load_request
from weblake.orchestration import (
    Dataset,
    HistoryEntry,
    LandedLoad,
    LoadRequest,
    RetryPolicy,
    Terms,
    history,
    observing,
    open_dataset,
    read_urls,
)
from weblake.receipt import Receipt

if TYPE_CHECKING:
    from weblake.client import Client

Detach = Annotated[bool, typer.Option("--detach", help="Start the job, print its id, and exit without waiting.")]

#: Limits of reading the remaining credits, which the question can do without.
_DEADLINE_S, _MAX_TRIES, _WAIT_S = 15.0, 2, 5.0
_LIMITS = "Give --limit N or --max-credits N"
#: Endings of files with URLs. No host on the internet has one.
_LIST_ENDINGS = (".txt", ".csv", ".parquet")
#: Maximum number of unreadable loads that are named.
MAX_NAMED = 5


def batch(
    to: Root,
    pages: PageOptions,
    terms: TermsOptions,
    naming: NamingOptions,
    service: ServiceOptions,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL…")] = None,
    urls_file: Annotated[
        str | None,
        typer.Option(
            "--urls",
            metavar="FILE",
            help="File of URLs: text with one URL per line (# starts a comment), CSV or Parquet; - is standard input.",
        ),
    ] = None,
    column: Annotated[
        str | None, typer.Option("--column", help="Column of the CSV or Parquet file that contains the URLs.")
    ] = None,
    refresh_after: Annotated[
        str | None,
        typer.Option(
            "--refresh-after",
            metavar="AGE",
            help="Only scrape URLs of which no successful page has landed within this time: 7d, 12h, 90m, or never. "
            "Each call is a new load then, if a URL is due, and replaces none.",
        ),
    ] = None,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Scrapes many URLs as one job and lands it as one Parquet file."""
    from weblake.loads import generations, list_sources

    if bool(urls) == bool(urls_file):
        raise InvalidOption("Give either URLs or --urls FILE.")
    for url in urls or ():
        if "/" not in url and url.lower().endswith(_LIST_ENDINGS):
            raise InvalidOption(f"{url} is the name of a file, not the URL of a page.", hint=f"Write --urls {url}.")
    if column is not None and urls_file is None:
        raise InvalidOption("--column names a column of a file of URLs, and there is none.", hint="Give --urls FILE.")
    name, given = replace(naming.naming(), refresh_after=refresh_after), pages.keyword_arguments()
    source = None if urls_file is None else list_sources.source_of(urls_file, column, name, given)
    sent = None
    if source is not None and refresh_after is None:
        sent = list_sources.pending_list(open_dataset(to), source, allow_partial=terms.allow_partial)
    family = None if source is None or refresh_after is None else load_request.refresh_family(source)
    try:
        listed = urls or _urls_of(str(urls_file), column, sent)
    except FixRequest:  # what was started with the file lands without it
        kept = None if family is None else generations.open_list(open_dataset(to), family)
        if kept is None:
            raise
        listed = kept
    request = replace(load_request.batch(listed, name, **given), source=source)
    if family is not None:  # the file names the loads, whatever its list is by now
        request = replace(request, source=None, family=family)
    _land(request, to, terms.terms(), service, detach=detach, as_json=as_json)


def _urls_of(file: str, column: str | None, sent: Sequence[str] | None) -> Sequence[str]:
    """Return the URLs of a file, or, if they have changed, those of the unfinished load that was started with it."""
    from weblake.loads.sent_lists import CHANGED

    try:
        listed = read_urls(file, column)
    except FixRequest as error:
        if sent is None:
            raise
        said = f"{' '.join(error.message.split())} Landing what was sent before"
    else:
        if sent is None or [*sent] == listed or set(sent).isdisjoint(listed):
            return listed
        said = f"{file}: the list {CHANGED}"
    again = "Run the command again for the current list; --new starts it at once."
    output.note(f"weblake: {escape(one_line(said, MAX_CHARS))} ({len(sent)} URLs). {again}")
    return sent


def crawl(
    url: str,
    to: Root,
    pages: PageOptions,
    terms: TermsOptions,
    naming: NamingOptions,
    service: ServiceOptions,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Maximum number of pages.")] = None,
    detach: Detach = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask for confirmation of a crawl without --limit and --max-credits.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Crawls a site as one job and lands it as one Parquet file."""
    given = ContractOptions(pages.option).keyword_arguments(limit=limit)
    if pages.formats:
        scrape_options = given.get("scrape_options", {})
        if not isinstance(scrape_options, dict):
            raise InvalidOption("scrape_options is not a JSON object.")
        given["scrape_options"] = scrape_options | {"formats": [*pages.formats]}
    request = load_request.crawl(url, naming.naming(), terms.terms(), **given)
    _land(request, to, terms.terms(), service, detach=detach, yes=yes, as_json=as_json)


def land(
    kind: Kind,
    job_id: JobId,
    to: Root,
    terms: TermsOptions,
    partition: PartitionOptions,
    service: ServiceOptions,
    as_json: Json = False,
) -> None:
    """Waits for a job that was started elsewhere and lands it."""
    request = load_request.existing_job(kind, job_id, partition.keys())
    _land(request, to, terms.terms(), service, as_json=as_json)


def loads(
    root: RootArgument,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="LOAD_ID",
            help="Only loads that landed after this one, by the clocks of the landing machines.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Lists the landed and the retired loads, oldest first."""
    dataset = open_dataset(root)
    layout.check_holds_dataset(dataset.storage)
    unreadable: list[dict[str, str]] = []
    rows = history(dataset, since, unreadable=lambda load_id, why: unreadable.append({"load_id": load_id, "why": why}))
    if as_json:
        output.show_json_of_many("loads", (row.to_dict() for row in rows), lambda: {"unreadable": unreadable})
    else:
        columns = ("load", "kind", "fresh", "stored", "failed", "missing", "landed (UTC)", "")
        output.show_long_table(f"Loads in {root}", columns, map(_row_cells, rows), whole="load")
    for each in unreadable[:MAX_NAMED]:
        output.note(f"weblake: {escape(unreadable_text(each['load_id'], each['why']))}")
    if len(unreadable) > MAX_NAMED:
        output.note(f"weblake: {len(unreadable) - MAX_NAMED} more loads cannot be read; --json names all.")


def changes(
    root: RootArgument,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="LOAD_ID|TIME", help="A load id or a UTC time. Default: before the first load."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="LOAD_ID|TIME", help="A load id or a UTC time. Default: now.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Lists the pages that are new, changed or gone since a load or a time."""
    layout.check_holds_dataset(open_dataset(root).storage)
    found = weblake.changes(root, since, until)
    if as_json:
        more = {"counts": found.counts(), "cursor": found.cursor}
        output.show_json_of_many("changes", (change.to_dict() for change in found), lambda: more)
        return
    columns = ("change", "load", "load before", "url")
    rows = ((each.kind, each.load_id or "", each.before_load_id or "", each.url) for each in found)
    output.show_long_table(f"Changes in {root}", columns, rows, whole="load")
    counts = ", ".join(f"{count} {kind}" for kind, count in found.counts().items())
    output.note(f"weblake: {counts}. Continue with --since {found.cursor}.")


def _row_cells(row: HistoryEntry) -> tuple[object, ...]:
    return (
        row.receipt.load_id,
        row.receipt.kind.removesuffix("_scrape"),
        row.receipt.fresh,
        row.receipt.stored,
        row.receipt.failed,
        row.receipt.missing,
        row.at[:16].replace("T", " "),
        "replaced" if row.replaced_by else "" if row.receipt.complete else "partial",
    )


def _land(
    request: LoadRequest,
    to: str,
    terms: Terms,
    service: ServiceOptions,
    *,
    detach: bool = False,
    yes: bool = False,
    as_json: bool,
) -> None:
    dataset = dataset_to_land_in(to)
    with service.connect() as client:
        request = _confirm(client, dataset, orchestration.place_refresh(client, dataset, request, terms), yes=yes)
        if detach:
            _detach(client, dataset, request, terms, as_json)
            return
        work = partial(orchestration.land, client, dataset, request, terms)
        landing = run_with_progress(client, dataset, request, work, as_json)
    show_if_old(dataset, landing, request)
    if as_json:
        output.show_json(landing.receipt.to_dict())
    else:
        output.show_receipt(landing.receipt, to)


def _confirm(client: Client, dataset: Dataset, request: LoadRequest, *, yes: bool) -> LoadRequest:
    """Return the request, after a crawl without a limit is confirmed; any other request is returned unchanged.

    Raises:
        InvalidOption: There is no terminal to ask on, and no --yes.
        FixRequest: The answer was no.
    """
    from weblake.loads.intents import find_possible_cost

    cost = find_possible_cost(client, dataset, request)
    if cost is None:
        return request
    if not yes and not (sys.stdin.isatty() and output.err.is_terminal):
        raise InvalidOption(f"{cost} Nothing was started.", hint=f"{_LIMITS}, or --yes to crawl without a limit.")
    output.note(escape(f"weblake: {cost} {_credits_left(client)}"))
    if not yes and not output.ask("Crawl without a limit?"):
        raise FixRequest("Nothing was started.", hint=f"{_LIMITS}.")
    return replace(request, unlimited_pages=0)


def _credits_left(client: Client) -> str:
    operation = credit_usage()
    operation = structs.replace(operation, request=structs.replace(operation.request, deadline_s=_DEADLINE_S))
    try:
        usage = client.run(client.retry.call(operation, RetryPolicy(tries=_MAX_TRIES, wait_s=_WAIT_S)))
    except WeblakeError as error:
        return f"How many credits are left could not be read: {error.message}"
    left = usage.data.remaining_credits
    return "The service does not say how many credits are left." if left is None else f"{left:,.10g} credits are left."


def run_with_progress(
    client: Client, dataset: Dataset, request: LoadRequest, work: Callable[[], LandedLoad], quiet: bool
) -> LandedLoad:
    """Run a load with a progress bar; Ctrl-C, SIGTERM and SIGHUP raise Interrupted, and its job continues."""
    job: list[str] = []

    def note_job(event: Event) -> None:
        if isinstance(event, LoadEnd) and event.job_id is not None:
            job.append(event.job_id)

    try:
        with (
            exit_on_termination(),
            output.load_progress(request.kind.replace("_", " "), quiet) as progress,
            observing(client, combine(progress, note_job)),
        ):
            return work()
    except (KeyboardInterrupt, SystemExit) as end:
        raise _interrupted_error(request, job or _job_on_record(dataset, request), end) from None


def _job_on_record(dataset: Dataset, request: LoadRequest) -> list[str]:
    """Return the id of the job that is on record for a load; empty where there is none or it cannot be read."""
    with suppress(WeblakeError):
        job = dataset.ledger.job(request.load_id)
        return [] if job is None else [job.job_id]
    return []


def _interrupted_error(request: LoadRequest, job: Sequence[str], end: BaseException) -> Interrupted:
    code = exit_code_of(end)
    same = "the same command"
    if request.new_key is not None:  # the same command itself would pay for another job
        same += f", {in_place_of_new(request.new_key)},"
    if job and request.kind in JOB_KINDS:
        name = JOB_KINDS[request.kind].command
        error = Interrupted(
            f"interrupted; {name} {job[0]} goes on at the service.",
            hint=f"Resume with {same.rstrip(',')}, or cancel it with `weblake cancel {name} {job[0]}`.",
            exit_code=code,
        )
    else:
        error = Interrupted("interrupted.", hint=f"Run {same} again to resume; nothing is paid twice.", exit_code=code)
    error.receipt = Receipt(request.load_id, request.kind, job[0] if job else request.job_id)
    return error


def _detach(client: Client, dataset: Dataset, request: LoadRequest, terms: Terms, as_json: bool) -> None:
    if client.is_embedded:
        raise FixRequest(
            "--detach needs a service that keeps running: the embedded service ends with this command.",
            hint="Start a service with `weblake serve`, and set WEBLAKE_BASE_URL and WEBLAKE_API_KEY.",
        )
    landing = orchestration.find_landed(dataset, request, terms)
    if landing is not None:
        show_if_old(dataset, landing, request)
        receipt = landing.receipt
    else:
        try:
            with exit_on_termination():
                _, job, _ = orchestration.start_load(
                    client, dataset, request, max_credits=terms.max_credits, ends_at=monotonic() + terms.timeout_s
                )
        except (KeyboardInterrupt, SystemExit) as end:
            raise _interrupted_error(request, _job_on_record(dataset, request), end) from None
        receipt = Receipt(request.load_id, request.kind, job.job_id, status="started")
    if as_json:
        output.show_json(receipt.to_dict())
    else:
        output.show_text(receipt.job_id or "")


def show_if_old(dataset: Dataset, landing: LandedLoad, request: LoadRequest) -> None:
    """If a load landed earlier, write when it did, which load has replaced it, and how to get another one."""
    if landing.landed_at is not None:
        when = datetime.fromisoformat(landing.landed_at)
        retired = dataset.ledger.retired(landing.receipt.load_id)
        gone = "" if retired is None else f", and load {retired.by} has replaced it: its rows are gone"
        again = " --new starts a new job; --key TEXT makes a separate load." if request.start is not None else ""
        output.note(
            f"weblake: this load has landed already, on {when:%Y-%m-%d %H:%M} UTC (load {landing.receipt.load_id})"
            f"{gone}; nothing was started.{again}"
        )
