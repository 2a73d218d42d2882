"""The output at the end of the demo: tables and a usage chart, or one JSON object for programs."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from rich.markup import escape

from weblake import output
from weblake.dataset.reading import read
from weblake.demo.steps import Demo
from weblake.receipt import COUNTS


def show_json(demo: Demo) -> None:
    """Print one JSON object to standard output."""
    team, by_key = demo.usage
    output.show_json(
        {
            "root": str(demo.root),
            "loads": [receipt.to_dict() for receipt in demo.loads.values()],
            "usage": {
                "credits": sum(period.total_credits or 0 for period in team.periods),
                "by_api_key": {period.api_key: period.total_credits for period in by_key.periods},
                "files": [asdict(file) for file in demo.usage_files],
            },
            "activity": {
                "entries": demo.activity_entries,
                "files": [asdict(file) for file in demo.activity_files],
            },
            "seconds": round(demo.seconds, 2),
        }
    )


def show(demo: Demo) -> None:
    """Print what landed, the pages without a document, a chart of the usage, and commands to try next."""
    receipts = demo.loads.values()
    rows = [(count.replace("_", " "), *(f"{getattr(each, count):,}" for each in receipts)) for count in COUNTS]
    rows.append(("credits", *("" if each.credits_used is None else f"{each.credits_used:g}" for each in receipts)))
    rows.append(("complete", *("yes" if each.complete else "no" for each in receipts)))
    output.out.print()
    output.show_table("What landed", ("", *demo.loads), rows)
    output.show_table("Pages without a document (page_errors)", ("load", "outcome", "page", "why"), _page_errors(demo))
    bars: dict[str, float] = {}
    for report in reversed(demo.usage):
        for period in report.periods:
            bars[f"{(period.start_date or '')[:7]}  {period.api_key or 'all keys'}"] = period.total_credits or 0
    output.show_bars("Usage", bars, "credits")
    output.out.print(f"\n[bold]All of it in {demo.seconds:.1f} s.[/bold] Try next:")
    for why, command in next_commands(str(demo.root)):
        output.out.print(f"\n  [dim]# {why}[/dim]\n  [cyan]{escape(command)}[/cyan]")


def next_commands(root: str) -> list[tuple[str, str]]:
    """Return commands to try on the dataset: the purpose, and the command line."""
    glob = f"{root.rstrip('/')}/documents/*=*/**/*.parquet"
    code = f"import duckdb; print(duckdb.read_parquet({glob!r}).aggregate('status_code, count(*) AS pages'))"
    return [
        ("what has landed", f"weblake loads {shlex.quote(root)}"),
        ("the files in DuckDB", f"python -c {_quote(code)}"),
        ("a site of your own", "weblake crawl https://example.org --limit 20 --to my-lake"),
        ("the embedded service, until you press Ctrl-C", "weblake serve"),
    ]


def _page_errors(demo: Demo) -> list[tuple[object, ...]]:
    names = {receipt.load_id: name for name, receipt in demo.loads.items()}
    columns = ["load_id", "outcome", "url", "code", "error"]
    rows = read(demo.root, "page_errors", columns=columns).to_table().to_pylist()
    return [
        # The site's base URL is the same on every line.
        (
            names[row["load_id"]],
            row["outcome"],
            (row["url"] or "").removeprefix(demo.site.url),
            row["code"] or row["error"],
        )
        for row in rows
        if row["load_id"] in names
    ]


def _quote(text: str) -> str:
    """Return a text as one argument of a command line: in double quotes if they are safe, for readability."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'
