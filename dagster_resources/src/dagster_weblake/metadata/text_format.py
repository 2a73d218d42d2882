"""Text and tables that Dagster's pages may show, whoever wrote the text.

Titles, reasons and key names come from other people's sites and services. Dagster's pages render markdown: raw HTML
does nothing there, but links, remote images and whatever looks like an address become live. So each such text stands
in a code span, where nothing has a meaning but the backtick and the table's bar, and those two are replaced.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

import dagster as dg

#: Characters of any text value, and of a table's cell.
MAX_TEXT, MAX_CELL = 1000, 200

#: Whole categories that a page would not show, or that would show other text otherwise than it is (bidi overrides).
_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
_STAND_INS = str.maketrans({"`": "'", "|": "¦"})


def plain(value: object, most: int = MAX_TEXT) -> str:
    """The text of a value on one line, without characters that are not seen, `most` characters at most."""
    text = str(value)[: most * 4]
    text = "".join(" " if unicodedata.category(c) in _UNSEEN else c for c in text)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def text(value: object) -> dg.MetadataValue:
    """A text value of metadata: `plain`."""
    return dg.MetadataValue.text(plain(value))


def real(value: float) -> dg.MetadataValue:
    """A number of metadata that Dagster plots; its own float takes no int, and people give budgets as such."""
    return dg.MetadataValue.float(float(value))


def cell(value: object) -> str:
    """A value as a table's cell: numbers as they are, any text in a code span; empty for None."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return number(value)
    shown = plain(value, MAX_CELL).translate(_STAND_INS)
    return f"`{shown}`" if shown else ""


def format_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> dg.MetadataValue:
    """A markdown table. The columns' names are ours; what stands in the rows may be anybody's."""
    lines = [columns, ["---"] * len(columns), *([cell(value) for value in row] for row in rows)]
    return dg.MetadataValue.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def number(value: float) -> str:
    """A number for people: thousands apart, no more digits after the point than it has."""
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.2f}" if 1e-2 <= abs(value) < 1e15 else f"{value:g}"


def amount(value: object) -> float | None:
    """A finite number as a float; None for anything else, a truth value among it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
