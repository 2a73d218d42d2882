"""scrape, parse: single pages and files, shown or landed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weblake import output
from weblake.cli.landing import Key, MaxCredits, New, Partition, naming_of, say_if_old, terms_of, watched
from weblake.cli.remedies import in_command_line_terms
from weblake.cli.tree import (
    FAILED,
    BaseUrl,
    Formats,
    Insecure,
    Interrupted,
    Json,
    Options,
    To,
    connect,
    dataset_to_land_in,
    given_options,
)
from weblake.errors import InvalidOption, WeblakeError

if TYPE_CHECKING:
    from weblake.api.models import ScrapeResponse
    from weblake.client import Client
    from weblake.loads.load_request import Order, Terms


def scrape(
    urls: Annotated[list[str], typer.Argument(metavar="URL…")],
    to: To = None,
    formats: Formats = None,
    option: Options = None,
    max_credits: MaxCredits = None,
    key: Key = None,
    new: New = False,
    partition: Partition = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Scrapes single pages: prints their markdown, or lands them with --to."""
    from weblake.loads import load_request
    from weblake.loads.load_request import check_cost
    from weblake.loads.prices import per_page

    given = given_options(option, formats)
    terms = terms_of(max_credits=max_credits)
    with connect(base_url, insecure) as client:
        if to is None:
            check_cost(len(urls), per_page(given), terms.max_credits)
            _show_each([partial(client.scrape, url, **given) for url in urls], as_json)  # type: ignore[arg-type]
            return
        naming = naming_of(key, new, partition)
        made = [load_request.scrape(url, naming, **given) for url in urls]  # type: ignore[arg-type]
        _land_each(client, made, to, terms, as_json)


def parse(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…")],
    to: To = None,
    formats: Formats = None,
    option: Options = None,
    key: Key = None,
    new: New = False,
    partition: Partition = None,
    as_json: Json = False,
    base_url: BaseUrl = None,
    insecure: Insecure = False,
) -> None:
    """Uploads and converts files: prints their markdown, or lands them with --to."""
    from weblake.loads import load_request

    given = given_options(option, formats)
    terms = terms_of()
    with connect(base_url, insecure) as client:
        if to is None:
            _show_each([partial(client.parse_file, file, **given) for file in files], as_json)  # type: ignore[arg-type]
            return
        naming = naming_of(key, new, partition)
        made = [load_request.parse(file, naming, **given) for file in files]  # type: ignore[arg-type]
        _land_each(client, made, to, terms, as_json)


def register(app: typer.Typer) -> None:
    """Hangs the commands of this room into the tree."""
    for command in (scrape, parse):
        app.command()(command)


def _land_each(client: Client, made: Sequence[Order], to: str, terms: Terms, as_json: bool) -> None:
    from weblake.loads import load, publishing
    from weblake.loads.load_request import check_cost

    dataset = dataset_to_land_in(to)
    if terms.max_credits is not None:
        due = [order for order in made if publishing.find(dataset, order.load_id) is None]
        check_cost(len(due), made[0].price, terms.max_credits)
    receipts: list[dict[str, object]] = []
    exit_code = 0
    for order in made:
        try:
            with in_command_line_terms():
                landing = watched(dataset, order, partial(load.land, client, dataset, order, terms), as_json)
        except WeblakeError as error:
            exit_code = error.exit_code if isinstance(error, Interrupted) else FAILED
            known = error.receipt.to_dict() if error.receipt is not None else {"load_id": order.load_id}
            receipts.append(known | {"error": error.to_dict()})
            output.show_error(error, as_json=False)
            if isinstance(error, Interrupted):
                break
            continue
        say_if_old(landing, order)
        receipts.append(landing.receipt.to_dict())
        if not as_json:
            output.show_receipt(landing.receipt, to)
    if as_json:
        output.show_json(receipts[0] if len(made) == 1 else {"loads": receipts})
    if exit_code:
        raise typer.Exit(exit_code)


def _show_each(calls: Sequence[Callable[[], ScrapeResponse]], as_json: bool) -> None:
    """Prints the page of each call; one that fails does not keep the others from being shown."""
    pages: list[object] = []
    failed = False
    for call in calls:
        try:
            with in_command_line_terms():
                pages.append(call().raw)
        except InvalidOption:
            raise
        except WeblakeError as error:
            failed = True
            pages.append({"error": error.to_dict()})
            output.show_error(error, as_json=False)
            continue
        if not as_json:
            _show_document(pages[-1])
    if as_json:
        output.show_json(pages[0] if len(pages) == 1 else {"loads": pages})
    if failed:
        raise typer.Exit(FAILED)


def _show_document(raw: object) -> None:
    data = raw.get("data") if isinstance(raw, dict) else None
    markdown = data.get("markdown") if isinstance(data, dict) else None
    output.show_text(markdown if isinstance(markdown, str) else "")
