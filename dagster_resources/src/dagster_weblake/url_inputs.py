"""Conversion of URL inputs of any supported type: a list, a table of an upstream asset, or a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from weblake import orchestration
from weblake.errors import InvalidOption


def urls_of(given: object, column: str | None = None) -> list[str]:
    """Return the URLs, in order, duplicates included.

    Args:
        given: A list or any other iterable of text; an Arrow table, dataset, record batch or reader; a pandas or Polars
            frame, lazy or not, or a series; or the path or storage URL of a text, CSV or Parquet file.
        column: The column of a table or file; `url` by default. A table of one column needs none.

    Raises:
        InvalidOption: It has no URL or no such column, or is of an unsupported type.
        FixRequest: The file cannot be read.
    """
    urls = _urls_of(given, column)
    if not urls:
        raise InvalidOption("The upstream asset returned no URL.", hint="Return at least one URL.")
    return urls


def urls_of_all(values: Iterable[object], column: str | None = None) -> list[str]:
    """Return the URLs of several values, each as in `urls_of`; some of them may be empty, but not all."""
    return urls_of([url for value in values for url in _urls_of(value, column)])


def _urls_of(given: object, column: str | None) -> list[str]:
    if isinstance(given, str) and not given.strip():
        raise InvalidOption("`urls` is an empty text.", hint="Give a list of URLs, or the path of a file of them.")
    if isinstance(given, str | os.PathLike):
        return orchestration.read_urls(given, column)
    values = _values(given, column)
    urls = []
    for number, value in enumerate(values):
        if _missing(value):
            continue  # skipped like an empty line of a file
        if not isinstance(value, str):
            raise InvalidOption(
                f"Entry {number} of the URLs is of type {type(value).__name__}.", hint="Give texts, such as https://…"
            )
        if value.strip():
            urls.append(value.strip())
    return urls


def _values(given: object, column: str | None) -> Iterable[object]:
    if hasattr(given, "collect_schema") and hasattr(given, "collect"):  # a lazy frame: only the column is computed
        given = given.select(_column(list(given.collect_schema().names()), column)).collect()  # type: ignore[attr-defined]
    if hasattr(given, "schema") and hasattr(given, "to_table"):  # a dataset: only the column is read
        given = given.to_table(columns=[_column(list(given.schema.names), column)])
    if hasattr(given, "read_all"):
        given = given.read_all()
    if hasattr(given, "columns") and not isinstance(given, Mapping):
        names = given.schema.names if hasattr(given, "schema") and hasattr(given, "to_pylist") else list(given.columns)
        known = {str(name): name for name in names}  # pandas has columns whose names are no texts
        return _texts(given[known[_column([str(name) for name in names], column)]])  # type: ignore[index]
    if isinstance(given, Mapping):
        raise _unfit(given)
    return _texts(given)


def _texts(series: object) -> Iterable[object]:
    for convert in ("to_pylist", "to_list", "tolist"):
        if hasattr(series, convert):
            found = getattr(series, convert)()
            if not isinstance(found, list):  # an array without a dimension is one value
                raise _unfit(series)
            return found
    if not isinstance(series, Iterable):
        raise _unfit(series)
    return series


def _missing(value: object) -> bool:
    """Return whether a value is missing: None, or one of the missing values of pandas."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def _unfit(given: object) -> InvalidOption:
    return InvalidOption(
        f"The URLs came as {type(given).__name__}.", hint="Give a list, an Arrow table, or a pandas or Polars frame."
    )


def _column(names: list[str], column: str | None) -> str:
    wanted = column or ("url" if "url" in names or len(names) != 1 else names[0])
    if wanted not in names:
        raise InvalidOption(
            f"What the upstream asset returned has no column {wanted!r}.",
            hint=f"Its columns: {', '.join(names[:20])}. Name one as `column`.",
        )
    if names.count(wanted) > 1:
        raise InvalidOption(
            f"What the upstream asset returned has several columns {wanted!r}.", hint="Rename one of them."
        )
    return wanted
