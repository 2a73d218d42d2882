"""The output at the end of the demo: tables for people, or one JSON object for programs.

The counts are those of the receipts; rows and reasons are read back from the files.
"""

from __future__ import annotations

import shlex
from collections.abc import Container
from dataclasses import asdict
from urllib.parse import urlsplit

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from weblake import output
from weblake.dataset.reading import read
from weblake.demo.story import Story
from weblake.receipt import Receipt

#: The page that is shown as a sample, and the number of its lines.
SAMPLE, _LINES = "/notes/the-flood-of-march", 9
_COUNTS = ("submitted", "stored", "failed", "robots_blocked", "rejected", "missing", "duplicates")


def show_object(story: Story) -> None:
    """Print one JSON object to standard output."""
    by_key = {period.api_key: period.total_credits for period in story.usage[1].periods}
    output.show_json(
        {
            "root": str(story.root),
            "loads": [receipt.to_dict() for receipt in story.loads.values()],
            "usage": {
                "credits": sum(period.total_credits or 0 for period in story.usage[0].periods),
                "by_api_key": by_key,
                "files": [asdict(file) for file in story.usage_files],
            },
            "activity": {
                "entries": story.activity_entries,
                "files": [asdict(file) for file in story.activity_files],
            },
            "seconds": round(story.seconds, 2),
        }
    )


def show_all(story: Story) -> None:
    """Print tables, charts, and suggested next commands."""
    for show in (_show_loads, _show_reasons, _show_sample, _show_charts, _show_files, _show_next):
        output.out.print()
        show(story)


def next_commands(root: str) -> list[tuple[str, str]]:
    """Return the suggested commands for the dataset: the purpose, and the command line."""
    glob = f"{root.rstrip('/')}/documents/**/*.parquet"
    quoted = "'" + glob.replace("'", "''") + "'"
    sql = f"SELECT status_code, count(*) AS pages FROM {quoted} GROUP BY ALL"  # noqa: S608 - shown, not run
    frame = f"import polars; print(polars.read_parquet({glob!r}).select('title', 'url'))"
    return [
        ("what has landed", f"weblake loads {shlex.quote(root)}"),
        ("the files in DuckDB", f"duckdb -c {_quoted(sql)}"),
        ("the files in Polars", f"python -c {_quoted(frame)}"),
        ("a site of your own", "weblake crawl https://example.org --limit 20 --to my-lake"),
        ("the service, to stay", "weblake serve"),
    ]


def _show_loads(story: Story) -> None:
    loads = story.loads
    table = Table(title="What landed", title_justify="left", title_style="bold")
    table.add_column()
    for name in loads:
        table.add_column(name, justify="right")
    for count in _COUNTS:
        table.add_row(count.replace("_", " "), *(f"{getattr(receipt, count):,}" for receipt in loads.values()))
    table.add_row("credits", *(_credits(receipt) for receipt in loads.values()))
    table.add_row("complete", *("yes" if receipt.complete else "no" for receipt in loads.values()))
    output.out.print(table)


def _show_reasons(story: Story) -> None:
    """Print the pages without a document: each is a row with its reason."""
    names = {receipt.load_id: name for name, receipt in story.loads.items()}
    table = _list("What did not become a document, and why (page_errors)", "load", "outcome", "page", "why")
    columns = ["load_id", "outcome", "url", "code", "error"]
    rows = read(story.root, "page_errors", columns=columns).to_table().to_pylist()
    rows = [row for row in rows if row["load_id"] in names]
    for row in sorted(rows, key=lambda row: ([*names].index(row["load_id"]), row["outcome"], row["url"] or "")):
        # The site's base URL is the same on every line.
        page = (row["url"] or "").removeprefix(story.site.url)
        cells = (names[row["load_id"]], row["outcome"].replace("_", " "), page, row["code"] or row["error"] or "")
        table.add_row(*(escape(cell) for cell in cells))
    output.out.print(table)


def _show_sample(story: Story) -> None:
    """Print one row of the table, truncated to the width."""
    table = Table(title="A row of documents", title_justify="left", title_style="bold", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    row = _sample(story)
    for name in ("title", "url", "status_code", "language", "content_type"):
        table.add_row(name, _cut(str(row[name])))
    links, markdown = row["links"], str(row["markdown"])
    table.add_row("links", f"{len(links) if isinstance(links, list) else 0} URLs")
    lines = [line for line in markdown.splitlines() if line.strip()]
    table.add_row("markdown", _cut("\n".join([*lines[:_LINES], "…"])))
    output.out.print(table)


def _sample(story: Story) -> dict[str, object]:
    """Return the sample row of the crawl."""
    columns = ["load_id", "title", "url", "status_code", "language", "content_type", "links", "markdown"]
    crawl = next(iter(story.loads.values())).load_id
    rows: list[dict[str, object]] = read(story.root, columns=columns).to_table().to_pylist()
    return next(row for row in rows if row["load_id"] == crawl and urlsplit(str(row["url"])).path == SAMPLE)


def _show_charts(story: Story) -> None:
    receipts = story.loads.values()
    outcomes = {name.replace("_", " "): float(sum(getattr(r, name) for r in receipts)) for name in _COUNTS[1:]}
    output.show_bars("Outcomes of these loads", outcomes, "pages")
    output.out.print()
    bars: dict[str, float] = {}
    for report in reversed(story.usage):
        for period in report.periods:
            bars[f"{(period.start_date or '')[:7]}  {period.api_key or 'all keys'}"] = period.total_credits or 0
    output.show_bars("Usage", bars, "credits")


def _show_files(story: Story) -> None:
    table = _list(f"Files in {story.root}", "size", "rows", "file", right=(0, 1))
    for file in story.files:
        table.add_row(decimal(file.bytes), f"{file.rows:,}", escape(file.path))
    output.out.print(table)


def _show_next(story: Story) -> None:
    output.out.print(f"[bold]All of it in {story.seconds:.1f} s.[/bold] Try next:")
    for why, command in next_commands(str(story.root)):
        output.out.print(f"\n  [dim]# {why}[/dim]\n  [cyan]{escape(command)}[/cyan]")


def _list(title: str, *columns: str, right: Container[int] = ()) -> Table:
    """Return a table without border lines, which take width."""
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number in right else "left", overflow="fold", header_style="dim")
    return table


def _cut(text: str) -> Text:
    """Return text whose lines are truncated at the column's width."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _quoted(text: str) -> str:
    """Return a text as one argument of a command line: in double quotes if they are safe, for readability."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'


def _credits(receipt: Receipt) -> str:
    return "" if receipt.credits_used is None else f"{receipt.credits_used:g}"
