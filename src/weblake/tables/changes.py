"""Changes of a table by other programs with which no file of the dataset can be added to it.

A file is added as it is. So the table's columns must have the names and types of the file's, and the table must have no
rule or feature that a writer has to apply to each row. Each format looks for these before a commit, on the version on
which it commits: a library may commit all the same, and readers would find wrong values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from weblake.errors import StorageRefused
from weblake.remedies import Remedy

#: Types that a format reads from files with a smaller one, as (of the files, of the table).
Promotions = frozenset[tuple[pa.DataType, pa.DataType]]


@dataclass(frozen=True, slots=True)
class Change:
    """Why files cannot be added to a table."""

    #: A clause after "The table …".
    what: str
    #: What to do, before "and sync again".
    remedy: str


def refuse(table: str, changes: Iterable[Change]) -> None:
    """Refuse a table with the first of the changes; do nothing if there is none.

    Raises:
        StorageRefused: There is a change.
    """
    for change in changes:
        raise StorageRefused(
            f"{table} {change.what}. A sync does not change this table.",
            hint=Remedy(
                "{change_back}, and sync again; or remove it from the dataset with {remove_table}. Landings go on "
                "without it.",
                {"change_back": change.remedy},
            ),
        )


def append_only_error(location: str, held: Collection[str]) -> StorageRefused:
    """Return the error of a sync that has left out what takes rows out of an append-only table.

    `held` is what would have been taken out: loads by id, or files by path.
    """
    named = f"{min(held)} and {len(held) - 1:,} more" if len(held) > 1 else min(held)
    return StorageRefused(
        f"The Delta Lake table {location} is append-only (delta.appendOnly): the rows of {named} were replaced and "
        "cannot be taken out, so their replacements were not added. Everything else was.",
        hint=Remedy(
            "Set the property to false (ALTER TABLE … SET TBLPROPERTIES), and sync again; or remove the table from the "
            "dataset with {remove_table}."
        ),
    )


def changes_of_columns(
    wanted: pa.Schema, found: pa.Schema, key: Iterable[str], promoted: Promotions = frozenset()
) -> Iterator[Change]:
    """Yield the changes of the columns of a table.

    A column that the table lacks is none, because a sync adds it, unless it is one of the `key`, by which a sync finds
    the rows that it takes out. Columns that the dataset does not have may be null.
    """
    for name in key:
        if name not in found.names:
            yield Change(
                f"has no column {name}, by which the rows of a load are found: another program has renamed or dropped "
                "it",
                "Rename it back, or restore an earlier version of the table",
            )
    for field in found:
        if field.name in wanted.names:
            yield from _changes(field.name, wanted.field(field.name), field, promoted)
        elif not field.nullable:
            yield Change(
                f"has a column {field.name} that must not be null (NOT NULL), and the files of the dataset have no "
                "such column",
                f"Let it be null (ALTER COLUMN {field.name} DROP NOT NULL)",
            )


def _changes(path: str, wanted: pa.Field, found: pa.Field, promoted: Promotions) -> Iterator[Change]:
    if wanted.nullable and not found.nullable:
        yield Change(
            f"has a column {path} that must not be null (NOT NULL), which is not checked for a file that is added as "
            "it is",
            f"Let it be null (ALTER COLUMN {path} DROP NOT NULL)",
        )
    ours, theirs = wanted.type, found.type
    if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
        names = {ours.field(index).name for index in range(ours.num_fields)}
        for each in (theirs.field(index) for index in range(theirs.num_fields)):
            inner = f"{path}.{each.name}"
            if each.name in names:
                yield from _changes(inner, ours.field(each.name), each, promoted)
            elif not each.nullable:
                yield from _changes(inner, pa.field(each.name, each.type), each, promoted)
    elif pa.types.is_map(ours) and pa.types.is_map(theirs):
        yield from _changes(f"{path}.key", ours.key_field, theirs.key_field, promoted)
        yield from _changes(f"{path}.value", ours.item_field, theirs.item_field, promoted)
    elif _is_list(ours) and _is_list(theirs):
        yield from _changes(f"{path}.element", ours.value_field, theirs.value_field, promoted)
    elif _normalized(ours) != _normalized(theirs) and (ours, theirs) not in promoted:
        yield Change(
            f"has a column {path} of the type {_normalized(theirs)}, and in the files of the dataset it is "
            f"{_normalized(ours)}: another program has changed it, and engines could not read the files",
            "Change the type back, or restore an earlier version of the table",
        )


def _is_list(type: pa.DataType) -> bool:
    return bool(pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_list_view(type))


def _normalized(type: pa.DataType) -> pa.DataType:
    """Return the type without what only Arrow distinguishes: texts are the same in a table of each format."""
    return pa.string() if pa.types.is_large_string(type) or pa.types.is_string_view(type) else type
