"""Text and tables that are safe to show on Dagster's pages.

Titles, reasons and key names come from sites and services. Dagster's pages render markdown: raw HTML has no effect, but
links, remote images and texts that look like an address become live. So each such text is put into a code span, in
which only the backtick and the table's bar have a meaning, and those two are replaced.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

#: Characters of any text value, and of a table's cell.
MAX_TEXT, MAX_CELL = 1000, 200

#: Unicode categories that a page would not show, or that would change how other text is shown (bidi overrides).
_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_REPLACEMENTS = str.maketrans({"`": "'", "|": "¦"})


def plain(value: object, most: int = MAX_TEXT) -> str:
    """Return the text of a value on one line, without invisible characters, `most` characters at most."""
    text = str(value)[: most * 4]
    text = "".join(" " if unicodedata.category(c) in _INVISIBLE else c for c in text)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def typed(given: Mapping[str, object]) -> dict[str, dg.MetadataValue]:
    """Return plain values as Dagster's metadata, without those that are None.

    A text is formatted by `plain`; a float stays one if it is whole, so that its plot has one type.
    """
    makers: Mapping[type, Callable[[Any], dg.MetadataValue]] = {
        bool: dg.MetadataValue.bool,
        int: dg.MetadataValue.int,
        float: dg.MetadataValue.float,
        str: lambda value: dg.MetadataValue.text(plain(value)),
        datetime: dg.MetadataValue.timestamp,
        dg.TableSchema: dg.MetadataValue.table_schema,
    }
    return {
        name: value if isinstance(value, dg.MetadataValue) else makers[type(value)](value)
        for name, value in given.items()
        if value is not None
    }


def cell(value: object) -> str:
    """Return a value as a table's cell: numbers unchanged, any text in a code span; empty for None."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return number(value)
    shown = plain(value, MAX_CELL).translate(_REPLACEMENTS)
    return f"`{shown}`" if shown else ""


def format_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> dg.MetadataValue:
    """Return a markdown table. The columns' names are trusted; the values of the rows are not."""
    lines = [columns, ["---"] * len(columns), *([cell(value) for value in row] for row in rows)]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def number(value: float) -> str:
    """Return a number as text: thousands separated, no more decimals than it has."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.2f}" if 1e-2 <= abs(value) < 1e15 else f"{value:g}"


def amount(value: object) -> float | None:
    """Return a finite number as a float; None for anything else, including a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
