"""batch, crawl, land, loads: what lands as one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.cli.interrupts import INTERRUPTED
from weblake.cli.orphans import MOST, unreadable_text
from weblake.cli.tree import (
    BaseUrl,
    Formats,
    Insecure,
    Interrupted,
    Json,
    Options,
    Root,
    connect,
    dataset_to_land_in,
    given_options,
)
from weblake.compat import read_time
from weblake.credentials import one_line
from weblake.errors import FixRequest, InvalidOption, WeblakeError

if TYPE_CHECKING:
    from weblake.client import Client
    from weblake.loads.load import ProgressCallbacks
    from weblake.loads.load_request import LoadRequest, Naming, Terms
    from weblake.loads.publishing import Dataset, HistoryEntry, LandedLoad

AllowPartial = Annotated[bool, typer.Option("--allow-partial", help="Store what there is and say `complete: false`.")]
MissingRatio = Annotated[float, typer.Option("--missing-ratio", metavar="R", help="Share of URLs that may be missing.")]
FailRatio = Annotated[float, typer.Option("--fail-ratio", metavar="R", help="Share of URLs that may have failed.")]
MaxCredits = Annotated[
    float | None,
    typer.Option("--max-credits", metavar="N", help="Start nothing that costs more; cancel what passes it."),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Time limit for the whole load.")]
Key = Annotated[str | None, typer.Option("--key", metavar="TEXT", help="Another text makes it another load.")]
New = Annotated[bool, typer.Option("--new", help="Buy it again, whatever has landed before.")]
Detach = Annotated[bool, typer.Option("--detach", help="Start it, print the job id, and leave.")]
Partition = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="KEY=VALUE", help="Path keys of the dataset in place of load_date, in order."),
]

Yes = Annotated[bool, typer.Option("--yes", help="Crawl without --limit and --max-credits, and do not ask.")]

DAY_S = 24 * 3600.0
#: Loads that cannot be read and are named.
NAMED = 5


def batch(
    to: Root,
    urls: Annotated[list[str] | None, typer.Argument(metavar="URL…")] = None,
    urls_file: Annotated[
        str | None, typer.Option("--urls", metavar="FILE", help="One URL a line (# comments), or CSV or Parquet.")
    ] = None,
    column: Annotated[str | None, typer.Option("--column", help="The column of a CSV or Parquet file.")] = None,
    formats: Formats = None,
    option: Options = None,
    allow_partial: AllowPartial = False,
    missing_ratio: MissingRatio = 0.0,
    fail_ratio: FailRatio = 1.0,
    max_credits: MaxCredits = None,
    timeout: Timeout = DAY_S,
    key: Key = None,
    new: New = False,
    detach: Detach = False,
    partition: Partition = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Scrapes many URLs as one job and lands it as one Parquet file."""
    from dataclasses import replace

    from weblake.dataset.root import open_dataset
    from weblake.loads import list_sources, load_request

    if bool(urls) == bool(urls_file):
        raise InvalidOption("Give URLs, or --urls FILE, and not both.")
    if column is not None and urls_file is None:
        raise InvalidOption("--column names a column of a file of URLs, and there is none.", hint="Give --urls FILE.")
    terms = terms_of(allow_partial, missing_ratio, fail_ratio, max_credits, timeout)
    naming, given = naming_of(key, new, partition), given_options(option, formats)
    source = None if urls_file is None else list_sources.source_of(urls_file, column, naming, given)
    sent = None if source is None else list_sources.pending(open_dataset(to), source)
    listed = urls or _urls_of(str(urls_file), column, sent)
    request = replace(load_request.batch(listed, naming, **given), source=source)  # type: ignore[arg-type]
    _land(request, to, terms, detach=detach, as_json=as_json, base_url=base_url, insecure=insecure)


def _urls_of(file: str, column: str | None, sent: Sequence[str] | None) -> Sequence[str]:
    """The URLs of a file; those of the load that was started with it and has not landed, where they have changed."""
    from weblake.loads.sent_lists import CHANGED
    from weblake.urls.lists import read_urls

    try:
        listed = read_urls(file, column)
    except FixRequest as error:
        if sent is None:
            raise
        said = f"{' '.join(error.message.split())} Landing what was bought with it before"
    else:
        if sent is None or [*sent] == listed or set(sent).isdisjoint(listed):
            return listed
        said = f"{file}: the list {CHANGED}"
    again = "Run the command again for the list as it is by then; --new buys it at once."
    output.note(f"weblake: {escape(one_line(said, MOST))} ({len(sent)} URLs). {again}")
    return sent


def crawl(
    url: str,
    to: Root,
    limit: Annotated[int | None, typer.Option("--limit", metavar="N", help="Pages at most.")] = None,
    formats: Formats = None,
    option: Options = None,
    allow_partial: AllowPartial = False,
    missing_ratio: MissingRatio = 0.0,
    fail_ratio: FailRatio = 1.0,
    max_credits: MaxCredits = None,
    timeout: Timeout = DAY_S,
    key: Key = None,
    new: New = False,
    detach: Detach = False,
    yes: Yes = False,
    partition: Partition = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Crawls a site as one job and lands it as one Parquet file."""
    from weblake.loads import load_request

    given = given_options(option)
    if limit is not None:
        given["limit"] = limit
    if formats:
        scrape_options = given.get("scrape_options", {})
        if not isinstance(scrape_options, dict):
            raise InvalidOption("scrape_options is no JSON object.")
        given["scrape_options"] = scrape_options | {"formats": [*formats]}
    terms = terms_of(allow_partial, missing_ratio, fail_ratio, max_credits, timeout)
    request = load_request.crawl(url, naming_of(key, new, partition), terms, **given)  # type: ignore[arg-type]
    _land(request, to, terms, detach=detach, yes=yes, as_json=as_json, base_url=base_url, insecure=insecure)


def land(
    kind: Annotated[str, typer.Argument(metavar="batch|crawl")],
    job_id: Annotated[str, typer.Argument(metavar="JOB_ID")],
    to: Root,
    allow_partial: AllowPartial = False,
    missing_ratio: MissingRatio = 0.0,
    fail_ratio: FailRatio = 1.0,
    max_credits: MaxCredits = None,
    timeout: Timeout = DAY_S,
    partition: Partition = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Waits for a job that was started elsewhere and lands it."""
    from weblake.loads import load_request

    terms = terms_of(allow_partial, missing_ratio, fail_ratio, max_credits, timeout)
    request = load_request.existing_job(kind, job_id, _partition(partition))
    _land(request, to, terms, detach=False, as_json=as_json, base_url=base_url, insecure=insecure)


def loads(
    root: Annotated[str, typer.Argument(metavar="ROOT")],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="LOAD_ID", help="Only what came later, by the clocks of those that landed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Lists what has landed and what was retired, oldest first."""
    from weblake.dataset import layout
    from weblake.dataset.root import open_dataset
    from weblake.loads.publishing import history

    dataset = open_dataset(root)
    layout.check_holds_dataset(dataset.storage)
    unreadable: list[dict[str, str]] = []
    rows = history(dataset, since, unreadable=lambda load_id, why: unreadable.append({"load_id": load_id, "why": why}))
    if as_json:
        output.show_json_of_many("loads", (row.to_dict() for row in rows), lambda: {"unreadable": unreadable})
    else:
        columns = ("load", "kind", "stored", "failed", "missing", "landed (UTC)", "")
        output.show_long_table(f"Loads in {root}", columns, map(_cells, rows), whole="load")
    for each in unreadable[:NAMED]:
        output.note(f"weblake: {escape(unreadable_text(each['load_id'], each['why']))}")
    if len(unreadable) > NAMED:
        output.note(f"weblake: {len(unreadable) - NAMED} more loads cannot be read; --json names all.")


def _cells(row: HistoryEntry) -> tuple[object, ...]:
    return (
        row.receipt.load_id,
        row.receipt.kind.removesuffix("_scrape"),
        row.receipt.stored,
        row.receipt.failed,
        row.receipt.missing,
        row.at[:16].replace("T", " "),
        "retired" if row.retired_by else "" if row.receipt.complete else "partial",
    )


def register(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (batch, crawl, land, loads):
        app.command()(command)


def _land(
    request: LoadRequest,
    to: str,
    terms: Terms,
    *,
    detach: bool,
    yes: bool = False,
    as_json: bool,
    base_url: str | None,
    insecure: bool,
) -> None:
    from weblake.cli.costs import confirm
    from weblake.loads import load

    dataset = dataset_to_land_in(to)
    with connect(base_url, insecure) as client:
        request = confirm(client, dataset, request, yes=yes)
        if detach:
            _detach(client, dataset, request, terms, as_json)
            return

        def work(callbacks: ProgressCallbacks) -> LandedLoad:
            return load.land(client, dataset, request, terms, callbacks)

        landing = watched(dataset, request, work, as_json)
    say_if_old(landing, request)
    if as_json:
        output.show_json(landing.receipt.to_dict())
    else:
        output.show_receipt(landing.receipt, to)


def watched(
    dataset: Dataset, request: LoadRequest, work: Callable[[ProgressCallbacks], LandedLoad], quiet: bool
) -> LandedLoad:
    """Runs a load under a progress bar; Ctrl-C, SIGTERM and SIGHUP leave its job running and say how to go on."""
    from dataclasses import replace

    from weblake.cli.interrupts import terminable

    job: list[str] = []
    try:
        with terminable(), output.watching(request.kind.replace("_", " "), quiet) as callbacks:

            def on_start(job_id: str) -> None:
                job.append(job_id)
                callbacks.on_start(job_id)

            try:
                return work(replace(callbacks, on_start=on_start))
            except (KeyboardInterrupt, SystemExit):
                if not job:  # it may have come between the record of the job and the call of `started`
                    job.extend(_job_on_record(dataset, request))
                raise
    except (KeyboardInterrupt, SystemExit) as end:
        raise _interrupted(request, job, INTERRUPTED if isinstance(end, KeyboardInterrupt) else end.code) from None


def _job_on_record(dataset: Dataset, request: LoadRequest) -> list[str]:
    """Return the id of the job that is on record for a load; empty where there is none or it cannot be read."""
    with suppress(WeblakeError):
        job = dataset.ledger.job(request.load_id)
        return [] if job is None else [job.job_id]
    return []


def _interrupted(request: LoadRequest, job: Sequence[str], exit_code: object) -> Interrupted:
    from weblake.api.job_kinds import JOB_KINDS
    from weblake.receipt import Receipt

    code = exit_code if isinstance(exit_code, int) else INTERRUPTED
    if job and request.kind in JOB_KINDS:
        name = JOB_KINDS[request.kind].command
        error = Interrupted(
            f"interrupted; {name} {job[0]} goes on at the service.",
            hint=f"Resume with the same command, or cancel it with `weblake cancel {name} {job[0]}`.",
            exit_code=code,
        )
    else:
        error = Interrupted("interrupted.", hint="The same command resumes; nothing is paid twice.", exit_code=code)
    error.receipt = Receipt(request.load_id, request.kind, job[0] if job else request.job_id)
    return error


def _detach(client: Client, dataset: Dataset, request: LoadRequest, terms: Terms, as_json: bool) -> None:
    from weblake.loads import intents, publishing
    from weblake.receipt import Receipt

    if client.is_embedded:
        raise FixRequest(
            "--detach would leave a job behind in a service that ends with this command.",
            hint="Start one that stays with `weblake serve`, and set WEBLAKE_BASE_URL and WEBLAKE_API_KEY.",
        )
    landing = publishing.find(dataset, request.load_id)
    if landing is not None:
        say_if_old(landing, request)
        receipt = landing.receipt
    else:
        _, job, _ = intents.start_load(client, dataset, request, max_credits=terms.max_credits)
        receipt = Receipt(request.load_id, request.kind, job.job_id, status="started")
    if as_json:
        output.show_json(receipt.to_dict())
    else:
        output.show_text(receipt.job_id or "")


def say_if_old(landing: LandedLoad, request: LoadRequest) -> None:
    """Says that a load is not new, when it landed, and how to get another one."""
    if landing.landed_at is not None:
        when = read_time(landing.landed_at)
        again = " --new buys it again, --key TEXT makes it another load." if request.start is not None else ""
        output.note(
            f"weblake: this load has landed already, on {when:%Y-%m-%d %H:%M} UTC (load {landing.receipt.load_id}); "
            f"nothing was bought.{again}"
        )


def terms_of(
    allow_partial: bool = False,
    missing_ratio: float = 0.0,
    fail_ratio: float = 1.0,
    max_credits: float | None = None,
    timeout: float = DAY_S,
) -> Terms:
    """The terms that the options name."""
    from weblake.loads.load_request import Terms

    return Terms(
        allow_partial=allow_partial,
        missing_ratio=missing_ratio,
        fail_ratio=fail_ratio,
        max_credits=max_credits,
        timeout_s=timeout,
    )


def naming_of(key: str | None, new: bool, partition: Sequence[str] | None) -> Naming:
    """What the options say about which load it is."""
    from weblake.loads.load_request import Naming

    return Naming(key=key, new=new, partition=_partition(partition))


def _partition(pairs: Sequence[str] | None) -> dict[str, str] | None:
    if not pairs:
        return None
    keys: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or name in keys:
            raise InvalidOption(f"--partition {pair[:60]!r} is no KEY=VALUE, or names a key twice.")
        keys[name] = value
    return keys
