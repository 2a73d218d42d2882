"""The commands scrape and parse: single pages and files, shown or landed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from weblake import orchestration, output
from weblake.api import operations
from weblake.api.models import ScrapeResponse
from weblake.api.operations import Operation
from weblake.cli.app import (
    FAILED,
    Interrupted,
    Json,
    MaxCredits,
    NamingOptions,
    PageOptions,
    ServiceOptions,
    TermsOptions,
    To,
    dataset_to_land_in,
)
from weblake.cli.interrupts import exit_code_of, exit_on_termination
from weblake.cli.landing import run_with_progress, show_if_old
from weblake.cli.orphans import MAX_CHARS
from weblake.credentials import one_line
from weblake.errors import WeblakeError
from weblake.loads import load_request
from weblake.loads.load_request import LoadRequest, Terms, check_cost, per_page

if TYPE_CHECKING:
    from weblake.client import Client


def scrape(
    urls: Annotated[list[str], typer.Argument(metavar="URL…")],
    pages: PageOptions,
    naming: NamingOptions,
    service: ServiceOptions,
    to: To = None,
    max_credits: MaxCredits = None,
    as_json: Json = False,
) -> None:
    """Scrapes single pages: prints their markdown, or lands them with --to."""
    given = pages.keyword_arguments()
    terms = TermsOptions(max_credits=max_credits).terms()
    with service.connect() as client:
        if to is None:
            calls = [operations.scrape(url, **given) for url in urls]
            check_cost(len(urls), per_page(given), terms.max_credits)
            _show_each(client, calls, as_json)
        else:
            requests = [load_request.scrape(url, naming.naming(), **given) for url in urls]
            _land_each(client, requests, to, terms, as_json)


def parse(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…")],
    pages: PageOptions,
    naming: NamingOptions,
    service: ServiceOptions,
    to: To = None,
    as_json: Json = False,
) -> None:
    """Uploads and converts files: prints their markdown, or lands them with --to."""
    given = pages.keyword_arguments()
    with service.connect() as client:
        if to is None:
            _show_each(client, [operations.parse_file(file, **given) for file in files], as_json)
        else:
            requests = [load_request.parse(file, naming.naming(), **given) for file in files]
            _land_each(client, requests, to, TermsOptions().terms(), as_json)


def _land_each(client: Client, requests: Sequence[LoadRequest], to: str, terms: Terms, as_json: bool) -> None:
    from weblake.dataset import landed_loads

    dataset = dataset_to_land_in(to)
    if terms.max_credits is not None:
        due = [request for request in requests if landed_loads.find(dataset, request.load_id) is None]
        check_cost(len(due), requests[0].price, terms.max_credits)
    receipts: list[dict[str, object]] = []
    exit_code = 0
    for request in requests:
        try:
            work = partial(orchestration.land, client, dataset, request, terms)
            landing = run_with_progress(client, dataset, request, work, as_json)
        except WeblakeError as error:
            exit_code = error.exit_code if isinstance(error, Interrupted) else FAILED
            known = error.receipt.to_dict() if error.receipt is not None else {"load_id": request.load_id}
            receipts.append(known | {"error": error.to_dict()})
            output.show_error(error, as_json=False)
            if isinstance(error, Interrupted):
                break
            continue
        show_if_old(dataset, landing, request)
        receipts.append(landing.receipt.to_dict())
        if not as_json:
            output.show_receipt(landing.receipt, to)
    if as_json:
        output.show_json(receipts[0] if len(requests) == 1 else {"loads": receipts})
    if exit_code:
        raise typer.Exit(exit_code)


def _show_each(client: Client, calls: Sequence[Operation[ScrapeResponse]], as_json: bool) -> None:
    """Print the page of each call; a call that fails, or is interrupted, does not lose the pages of the others."""
    pages: list[object] = []
    failed = False
    try:
        with exit_on_termination():
            for call in calls:
                failed |= not _call(client, call, pages, as_json)
    except (KeyboardInterrupt, SystemExit) as end:
        # Printed in this block: outside of it the interrupt may be raised again.
        error = Interrupted(
            f"interrupted; {len(pages)} of {len(calls)} calls had ended.",
            hint="Give the other URLs or files to the same command. With --to ROOT nothing is paid twice.",
            exit_code=exit_code_of(end),
        )
        output.show_error(error, as_json=False)
        if as_json:
            _show_pages([*pages, {"error": error.to_dict()}], len(calls))
        raise typer.Exit(error.exit_code) from None
    if as_json:
        _show_pages(pages, len(calls))
    if failed:
        raise typer.Exit(FAILED)


def _call(client: Client, call: Operation[ScrapeResponse], pages: list[object], as_json: bool) -> bool:
    """Make one call and add its page, or its error, to `pages`; return whether it was successful."""
    try:
        response = client.call(call)
    except WeblakeError as error:
        pages.append({"error": error.to_dict()})
        output.show_error(error, as_json=False)
        return False
    pages.append(response.raw)
    if not as_json:
        output.show_text(response.data.markdown or "")
        if response.data.warning:
            output.note(f"weblake: {escape(one_line(response.data.warning, MAX_CHARS))}")
        if response.data.markdown is None:
            output.note("The response has no markdown. --json prints all formats; --to ROOT stores them.")
    return True


def _show_pages(pages: Sequence[object], calls: int) -> None:
    output.show_json(pages[0] if calls == 1 else {"loads": pages})
