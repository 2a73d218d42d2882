"""The command compact, which merges many small loads into large files of a new root."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from weblake import output
from weblake.cli.app import Interrupted, Json, RootArgument
from weblake.cli.interrupts import exit_code_of
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from weblake.dataset.compaction_record import Compacted

_SIZE = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([KMGT]?)(I?)B?", re.IGNORECASE)
#: Maximum number of load ids that a line names.
_MAX_NAMED = 5


def compact(
    root: RootArgument,
    to: Annotated[str, typer.Option("--to", metavar="NEW_ROOT", help="Root of the new dataset; it must be empty.")],
    file_size: Annotated[
        str, typer.Option("--file-size", metavar="SIZE", help="Maximum size of a file, such as 64MB or 1GiB.")
    ] = "256MB",
    as_json: Json = False,
) -> None:
    """Copies a dataset into NEW_ROOT with its small files merged. Stop the writers of ROOT first; it is not changed."""
    from weblake.cli.interrupts import exit_on_termination
    from weblake.dataset import compaction

    size = parse_size(file_size)
    try:
        with exit_on_termination(), output.progress_bar("files", as_json) as progress:
            done = compaction.compact(root, to=to, file_size=size, progress=progress)
    except (KeyboardInterrupt, SystemExit) as end:
        code = exit_code_of(end)
        raise Interrupted(
            f"interrupted; {to} is not a dataset yet, and {root} is unchanged.",
            hint="Run the same command again to continue.",
            exit_code=code,
        ) from None
    if as_json:
        output.show_json(done.to_dict())
    else:
        _show(done, root, to)


def parse_size(text: str) -> int:
    """Return a size such as 64MB (64,000,000) or 64MiB (67,108,864) in bytes.

    Raises:
        InvalidOption: The text is not a size.
    """
    found = _SIZE.fullmatch(text.strip())
    size = 0
    if found is not None:
        unit = 1024 if found[3] else 1000
        size = int(float(found[1]) * unit ** " KMGT".index(found[2].upper() or " "))
    if size < 1:
        raise InvalidOption(
            f"--file-size {text[:40]!r} is not a size.", hint="Give a size such as 256MB, 1GiB or 64000000."
        )
    return size


def _show(done: Compacted, root: str, to: str) -> None:
    columns = ("table", "rows", "files before", "files", "MB before", "MB")
    rows = [
        (
            name,
            f"{each.rows:,}",
            f"{each.files_before:,}",
            f"{each.files:,}",
            f"{each.bytes_before / 1e6:,.1f}",
            f"{each.bytes / 1e6:,.1f}",
        )
        for name, each in done.tables.items()
    ]
    title = f"Compacted {root} into {to}: {done.loads:,} loads, completed {done.at[:16].replace('T', ' ')} UTC"
    output.show_table(title, columns, rows)
    if done.open:
        named = ", ".join(done.open[:_MAX_NAMED]) + (", …" if len(done.open) > _MAX_NAMED else "")
        output.note(
            f"weblake: loads that have not landed yet were copied: {len(done.open)} ({named}). Continue them in "
            f"{escape(to)} only: the two roots do not share records of jobs. `weblake orphans` lists the jobs."
        )
    if done.unreadable:
        first, why = next(iter(done.unreadable.items()))
        more = f", and {len(done.unreadable) - 1} more (--json names all)" if len(done.unreadable) > 1 else ""
        output.note(f"weblake: copied unchanged, because a record cannot be read: load {first}: {escape(why)}{more}")
