"""The commands usage and activity: reports, shown or landed."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

from weblake import orchestration, output
from weblake.cli.app import Json, ServiceOptions, To, dataset_to_land_in


class UsageUnit(str, Enum):
    """The unit of usage."""

    credits = "credits"
    tokens = "tokens"


def usage(
    what: Annotated[UsageUnit, typer.Argument(metavar="credits|tokens")],
    service: ServiceOptions,
    by_api_key: Annotated[bool, typer.Option("--by-api-key", help="Split by API key.")] = False,
    to: To = None,
    as_json: Json = False,
) -> None:
    """Shows usage month by month, or lands it with --to: one file a month, replaced as a whole."""
    with service.connect() as client:
        found = client.run(orchestration.report(what.value, client.retry, by_api_key=by_api_key))
    if not found.split:
        output.note("weblake: the service did not split the report by API key, although it was asked to.")
    if to is not None:
        files = orchestration.land_report(found, dataset_to_land_in(to))
        if as_json:
            output.show_json({"report": found.name, "periods": len(found.periods), "files": [asdict(f) for f in files]})
        else:
            output.show_table(f"Usage ({found.name}) in {to}", ("file", "rows"), [(f.path, f.rows) for f in files])
        return
    amounts = [
        (p, (p.total_credits if what is UsageUnit.credits else p.total_tokens) or 0.0)
        for p in sorted(found.periods, key=lambda p: (p.start_date or "", p.api_key or ""))
    ]
    if as_json:
        output.show_json({"report": found.name, "periods": [p.raw for p, _ in amounts]})
        return
    columns = ("from", "to", "API key", what.value)
    rows = [(_day(p.start_date), _day(p.end_date), p.api_key or "", f"{amount:g}") for p, amount in amounts]
    output.show_table("", columns, rows)
    bars = {f"{_day(p.start_date)[:7]} {p.api_key or ''}".strip(): amount for p, amount in amounts}
    output.show_bars(f"Usage in {what.value}", bars, what.value)


def activity(
    service: ServiceOptions,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", help="Only calls of this endpoint: scrape, crawl, batch_scrape, …")
    ] = None,
    to: To = None,
    as_json: Json = False,
) -> None:
    """Shows the team's calls of the last 24 hours, or lands them with --to: one file a day, merged by call."""
    with service.connect() as client:
        entries = client.run(orchestration.activity(client.retry, endpoint=endpoint))
    if to is not None:
        files = orchestration.land_activity(entries, dataset_to_land_in(to))
        if as_json:
            output.show_json({"entries": len(entries), "files": [asdict(f) for f in files]})
        else:
            output.show_table(f"Activity in {to}", ("file", "rows"), [(f.path, f.rows) for f in files])
        return
    if as_json:
        output.show_json({"data": [e.raw for e in entries]})
        return
    columns = ("created", "endpoint", "id", "target")
    output.show_table(
        "Activity of the last 24 hours",
        columns,
        [((e.created_at or "")[:19].replace("T", " "), e.endpoint, e.id, e.target) for e in entries],
        whole="id",
    )


def _day(time: str | None) -> str:
    return (time or "")[:10]
