"""Conversion of URL inputs of any supported type, and selection of those that belong to a partition.

IO managers pass an input that was loaded for several upstream partitions as a mapping by their keys. These can be equal
to keys of the asset's own partitions and mean something else: a week has the key of its first day.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping

import dagster as dg

from dagster_weblake.templates import Part
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
        raise InvalidOption("`urls` has no URL.", hint="Give at least one, or return one from the upstream asset.")
    return urls


def urls_of_part(
    context: dg.AssetExecutionContext, key: dg.AssetKey, part: Part, given: object, column: str | None
) -> object:
    """Return what an input has for one partition of the asset: the URLs of all upstream partitions that belong to it.

    A value that is no mapping of an input's partitions is returned unchanged.

    Raises:
        InvalidOption: The input has no value for this partition.
    """
    if not isinstance(given, Mapping):
        for name in _inputs_of_one_partition(context):
            if not _keys_of_part(context, key, part, name):
                raise _no_value(context, part, name)
        return given
    if not given:
        return given
    upstream = next((name for name in _partitioned(context) if set(given) <= set(_keys(context, name))), None)
    if upstream is None:
        return given
    own = _keys_of_part(context, key, part, upstream)
    values = [value for name, value in given.items() if name in own]
    if not values:
        raise _no_value(context, part, upstream)
    return values[0] if len(values) == 1 else urls_of([url for value in values for url in _urls_of(value, column)])


def _no_value(context: dg.AssetExecutionContext, part: Part, name: str) -> InvalidOption:
    upstream = context.asset_key_for_input(name).to_user_string()
    return InvalidOption(
        f"The input {name} has no value for the partition {part.key!r}.",
        hint=f"Materialize {upstream} for it first; or leave the partition out, if no partition of {upstream} belongs "
        "to it.",
    )


def _inputs_of_one_partition(context: dg.AssetExecutionContext) -> list[str]:
    """Return the step's input if it has only one with partitions, and that one is the value of a single partition.

    It is no mapping then, and may belong to some of the asset's partitions only.
    """
    names = list(_partitioned(context))
    return names if len(names) == 1 and len(_keys(context, names[0])) == 1 else []


def _partitioned(context: dg.AssetExecutionContext) -> Iterator[str]:
    """Yield the names of the step's inputs that have a value and partitions."""
    for name, each in context.op_def.ins.items():
        if each.dagster_type.is_nothing:
            continue
        try:
            context.asset_partitions_def_for_input(name)
        except dg.DagsterInvariantViolationError:
            continue
        yield name


def _keys(context: dg.AssetExecutionContext, name: str) -> Collection[str]:
    return list(context.asset_partition_keys_for_input(name))


def _keys_of_part(context: dg.AssetExecutionContext, key: dg.AssetKey, part: Part, name: str) -> Collection[str]:
    """Return the keys of the upstream partitions that belong to one partition of the asset."""
    definition = context.assets_def.specs_by_key[key].partitions_def
    if definition is None or part.key is None or len(context.partition_keys) == 1:
        return _keys(context, name)
    upstream = context.asset_partitions_def_for_input(name)
    mapping = context.assets_def.infer_partition_mapping(key, context.asset_key_for_input(name), upstream)
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        definition.subset_with_partition_keys([part.key]),
        definition,
        upstream,
        dynamic_partitions_store=context.instance,
    )
    return set(found.partitions_subset.get_partition_keys())


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
