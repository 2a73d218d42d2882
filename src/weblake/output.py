"""Printed output: tables, bars, progress and one-line errors.

Results are written to standard output, everything else to standard error.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from weblake.errors import WeblakeError
from weblake.events import ChunkRead, Event, JobStarted, LoadEnd, Observer, StatusPolled
from weblake.receipt import COUNTS, Receipt


class _Console(Console):
    """A console that raises BrokenPipeError if its stream has no reader.

    Rich would redirect standard output to the null device, also if the broken pipe is standard error, and exit.
    """

    def on_broken_pipe(self) -> None:
        """Raise the BrokenPipeError that is being handled."""
        raise


out = _Console(soft_wrap=True, highlight=False, emoji=False)
err = _Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)

#: Maximum number of rows of a table; more rows are written as further tables.
MAX_TABLE_ROWS = 1000
#: Maximum number of columns of a bar.
MAX_BAR_COLUMNS = 40
#: Columns of the terminal below which a column of a table cannot be read.
MIN_COLUMN = 10
#: Characters that control a terminal: control characters, and those that change the direction of text.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_REPLACEMENT = "\ufffd"


def sanitize(text: str) -> str:
    """Return a text of a page or a service with terminal control characters replaced."""
    return _CONTROL_CHARACTERS.sub(_REPLACEMENT, text)


def show_json(value: object) -> None:
    """Write a value as JSON on one line; terminal control characters are written as escapes."""
    _write(_json(value))


def show_json_of_many(
    name: str, values: Iterable[Mapping[str, object]], more: Callable[[], Mapping[str, object]]
) -> None:
    """Write a JSON object with a long list on one line; the list is written one value at a time.

    Args:
        name: The key of the list.
        values: The values of the list; nothing is written before the first value is available.
        more: Returns the other keys and values; called after the list has been read.
    """
    left = iter(values)
    first = next(left, None)
    write = sys.stdout.write
    write(f"{{{_json(name)}: [")
    if first is not None:
        write(_json(first))
        for value in left:
            write(f", {_json(value)}")
    write("]")
    for key, other in more().items():
        write(f", {_json(key)}: {_json(other)}")
    _write("}")


def _json(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:  # NaN or infinity, which JSON does not have
        text = json.dumps(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None), ensure_ascii=False)
    text = _CONTROL_CHARACTERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # the stream would replace characters, and JSON has escapes for all
        text = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)
    return text


def show_text(text: str) -> None:
    """Write a text: unchanged to a pipe or file, with control characters replaced on a terminal."""
    _write(sanitize(text) if sys.stdout.isatty() else text)


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def show_error(error: WeblakeError, *, as_json: bool) -> None:
    """Write an error and its hint as one line to standard error; with `as_json` also as JSON to standard output."""
    try:
        if as_json:
            known = error.receipt.to_dict() if error.receipt is not None else {}
            show_json(known | {"error": error.to_dict()})
    finally:
        note(f"[red]weblake:[/red] {escape(' '.join(str(error).split()))}")


def note(text: str) -> None:
    """Write a line for users to standard error, in Rich's markup; it is lost if standard error cannot be written."""
    try:
        err.print(sanitize(text))
    except OSError:  # a broken pipe or a full disk must not end a load, nor hide its result
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - open until the process ends


def ask(question: str) -> bool:
    """Ask a yes-or-no question on standard error and return whether the answer is yes; any other input is no."""
    err.print(escape(f"{question} [y/N] "), end="")
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        err.print()
        return False
    except UnicodeDecodeError:  # a terminal with another encoding
        return False


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: str = "") -> None:
    """Write a table to standard output; the column named `whole` is never wrapped, so that it can be copied.

    Where the other columns would be narrower than MIN_COLUMN, each row is written as lines of name and value.
    """
    cells = [["" if cell is None else escape(sanitize(str(cell))) for cell in row] for row in rows]
    kept = max((len(row[columns.index(whole)]) for row in cells), default=0) if whole else 0
    if kept and (out.width - kept) / len(columns) < MIN_COLUMN:
        _show_lines(title, columns, cells)
        return
    table = Table(
        title=escape(sanitize(title)) or None, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=bool(whole) and column == whole)
    for row in cells:
        table.add_row(*row)
    out.print(table)


def _show_lines(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write each row as lines of name and value; empty cells are left out."""
    if title:
        out.print(f"[bold]{escape(sanitize(title))}[/bold]")
    widest = max(map(len, columns)) + 2
    for row in rows:
        out.print()
        for column, cell in zip(columns, row, strict=True):
            if cell:
                out.print(f"{column:{widest}}{cell}")


def show_long_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, whole: str = "") -> None:
    """Write a table of any length as several tables of MAX_TABLE_ROWS rows, so that memory holds only one of them."""
    left = iter(rows)
    some = [*islice(left, MAX_TABLE_ROWS)]
    show_table(title, columns, some, whole=whole)
    while len(some) == MAX_TABLE_ROWS and (some := [*islice(left, MAX_TABLE_ROWS)]):
        show_table("", columns, some, whole=whole)


def show_receipt(receipt: Receipt, root: str) -> None:
    """Write the account of a load as a table, followed by its files."""
    counts = ("requested", "fresh", *COUNTS) if receipt.fresh else COUNTS
    rows = [(name.replace("_", " "), f"{getattr(receipt, name):,}") for name in counts]
    rows.append(("complete", "yes" if receipt.complete else "no"))
    if receipt.limit_reached:
        rows.append(("limit reached", "yes: the site may have more pages"))
    if receipt.credits_used is not None:
        rows.append(("credits used", f"{receipt.credits_used:g}"))
    job = "nothing due" if receipt.nothing_due else f"job {receipt.job_id}"
    show_table(f"Load {receipt.load_id} ({receipt.kind}, {job})", ("", ""), rows)
    for file in receipt.files:
        path = escape(sanitize(f"{root.rstrip('/')}/{file.path}"))
        out.print(f"{path}  [dim]{file.rows:,} rows, {file.bytes:,} bytes[/dim]", markup=True)


def show_bars(title: str, values: Mapping[str, float], unit: str) -> None:
    """Write a bar for each value to standard output."""
    most = max(values.values(), default=0) or 1
    beside = max((len(f"{name}{value:g}{unit}") for name, value in values.items()), default=0) + 7  # padding
    columns = max(1, min(MAX_BAR_COLUMNS, out.width - beside))
    table = Table(title=escape(title), title_justify="left", title_style="bold", show_header=False, box=None)
    for name, value in values.items():
        table.add_row(
            escape(sanitize(name)),
            f"[cyan]{'█' * max(1 if value else 0, round(columns * value / most))}[/cyan]",
            f"{value:g} {unit}",
        )
    out.print(table)


class _WarningHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(escape(f"weblake: {record.getMessage()}"))


#: Writes the warnings of weblake's loggers as lines for users of the command line.
WARNINGS = _WarningHandler(logging.WARNING)


@contextmanager
def load_progress(what: str, quiet: bool) -> Iterator[Observer]:
    """Show the progress of a load on a terminal's standard error; yield the observer that updates it."""
    if quiet or not err.is_terminal:
        named: set[str] = set()

        def name_job(event: Event) -> None:
            job_id = getattr(event, "job_id", None)
            if job_id is not None and job_id not in named and not quiet and not isinstance(event, LoadEnd):
                named.add(job_id)
                note(f"Job {escape(job_id)}")

        yield name_job
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        waiting = progress.add_task(f"{what}: waiting", total=None)
        landing = progress.add_task(f"{what}: landing", total=None, visible=False)

        def show(event: Event) -> None:
            if isinstance(event, JobStarted | StatusPolled):
                progress.update(waiting, description=f"{what} {escape(event.job_id)}: waiting")
            if isinstance(event, StatusPolled) and event.total is not None and event.completed is not None:
                total = max(event.total, event.completed)
                progress.update(waiting, total=total, completed=event.completed)
                progress.update(landing, total=total)
            if isinstance(event, ChunkRead):
                progress.update(landing, advance=event.documents, visible=True)

        yield show
