"""What the protocol of Delta Lake asks of a writer, and whether a commit that adds files as they are can do it.

A writer that does not support a feature of a table must not write to it. deltalake checks that for the features that it
does not know; it commits files to a table with rules for rows, which it applies to rows that it writes itself only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weblake.tables.changes import Change, changes_of_columns

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: The features that a commit by reference can satisfy, with deltalake's part of it.
_SUPPORTED = frozenset(
    {
        "appendOnly",  # a sync adds loads and takes none out: see DeltaLakeTable.append_only
        # The rules that these features allow are looked for: see _rules.
        *("invariants", "checkConstraints", "generatedColumns"),
        "columnMapping",  # if the files have the mapped names: see _mapping
        "changeDataFeed",  # a feed is read from the files of a commit that adds and removes whole files
        "deletionVectors",  # a file that has one is not removed, but its rows
        "v2Checkpoint",  # deltalake
        *("timestampNtz", "variantType", "variantType-preview"),  # types of columns that the files do not have
    }
)
#: The newest version of the protocol for writers whose features are all supported; version 7 lists its features.
_LEGACY, _LISTED = 5, 7
_CONSTRAINT = "delta.constraints."
_MODE = "delta.columnMapping.mode"
_PHYSICAL = "delta.columnMapping.physicalName"
#: The rules of a column in its metadata, with their names and what removes them.
_COLUMN_RULES = {
    "delta.invariants": ("an invariant", "Remove the invariant of the column"),
    "delta.generationExpression": ("a generation expression", "Remove the generated column"),
    "delta.identity.start": ("an identity", "Remove the identity column"),
}


def changes_of_table(table: DeltaTable, wanted: pa.Schema, key: Sequence[str]) -> Iterator[Change]:
    """Yield what keeps the files of a dataset from being added to a version of its table.

    `wanted` are the columns of the files, with the path keys; `key` the columns by which a sync finds rows.
    """
    configuration = table.metadata().configuration
    columns = json.loads(table.schema().to_json())["fields"]
    yield from _features(table)
    yield from _rules(configuration, columns)
    yield from _mapping(configuration, columns, wanted.names)
    found = pa.schema(table.schema().to_arrow())
    if not set(key).issubset(found.names) and not pa.table(table.get_add_actions()).num_rows:
        key = ()  # an empty table, which another program has created
    yield from changes_of_columns(wanted, found, key)


def is_append_only(table: DeltaTable) -> bool:
    """Return whether no row may be taken out of a table."""
    return str(table.metadata().configuration.get("delta.appendOnly")).lower() == "true"


def _features(table: DeltaTable) -> Iterator[Change]:
    protocol = table.protocol()
    named = sorted({*(protocol.writer_features or ()), *(protocol.reader_features or ())} - _SUPPORTED)
    if named:
        yield Change(
            f"has the feature {' and '.join(named)}, which weblake does not support as a writer",
            f"Drop it (ALTER TABLE … DROP FEATURE {', DROP FEATURE '.join(named)})",
        )
    if _LEGACY < protocol.min_writer_version != _LISTED:
        yield Change(
            f"needs writers of version {protocol.min_writer_version} of the protocol, and weblake supports up to "
            f"{_LEGACY}, and {_LISTED} with its features by name",
            "Restore an earlier version of the table",
        )


def _rules(configuration: Mapping[str, str], columns: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    for name, condition in configuration.items():
        if name.startswith(_CONSTRAINT):
            short = name.removeprefix(_CONSTRAINT)
            yield Change(
                f"has the CHECK constraint {short} ({condition}), which is not checked for a file that is added as it "
                "is",
                f"Drop it (ALTER TABLE … DROP CONSTRAINT {short})",
            )
    for column in columns:
        for name, (rule, remedy) in _COLUMN_RULES.items():
            if name in column["metadata"]:
                yield Change(
                    f"has {rule} for the column {column['name']}, which is not applied to a file that is added as it "
                    "is",
                    remedy,
                )


def _mapping(
    configuration: Mapping[str, str], columns: Sequence[Mapping[str, Any]], wanted: Sequence[str]
) -> Iterator[Change]:
    """Yield the columns whose values readers would not find in the files of a dataset."""
    mode = configuration.get(_MODE, "none")
    if mode == "none":
        return
    if mode != "name":
        yield Change(
            f"has column mapping of the mode {mode}: readers look for ids of columns, which the files of the dataset "
            "do not have",
            f"Set {_MODE} to name",
        )
        return
    names = {str(column["metadata"].get(_PHYSICAL)): str(column["name"]) for column in columns}
    for name in wanted:
        now = names.get(name)
        if now == name:
            continue
        yield Change(
            f"has column mapping, and its column {name} is not the one of the files any more: it was "
            + (f"renamed to {now}" if now else "dropped, perhaps added again, or belongs to a later weblake"),
            f"Rename it back to {name}" if now else "Restore an earlier version of the table",
        )
    for column in columns:
        if column["name"] in wanted:
            for path in _renamed(str(column["name"]), column["type"]):
                yield Change(
                    f"has column mapping, and its column {path} is not the one of the files any more",
                    "Rename it back, or restore an earlier version of the table",
                )


def _renamed(path: str, type: Any) -> Iterator[str]:
    """Yield the paths of the fields within a type whose name in files differs."""
    if isinstance(type, str):
        return
    for field in type.get("fields", ()):
        inner = f"{path}.{field['name']}"
        if field["metadata"].get(_PHYSICAL) != field["name"]:
            yield inner
        yield from _renamed(inner, field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _renamed(path, type.get(part, ""))
