"""Whether readers of an Iceberg table find the columns of the dataset's files, which have names and no field ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from weblake.tables.changes import Change, Promotions, changes_of_columns
from weblake.tables.formats import first_line

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.name_mapping import MappedField

#: The promotions of types that the format allows.
_PROMOTED: Promotions = frozenset({(pa.int32(), pa.int64()), (pa.float32(), pa.float64())})
_MAPPING = "schema.name-mapping.default"


def changes_of_table(table: Table, wanted: pa.Schema, key: Sequence[str]) -> Iterator[Change]:
    """Yield what keeps the files of a dataset from being added to the current version of its table."""
    from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION

    if table.format_version > SUPPORTED_TABLE_FORMAT_VERSION:
        yield Change(
            f"has the format version {table.format_version}, and pyiceberg writes up to version "
            f"{SUPPORTED_TABLE_FORMAT_VERSION}",
            "Update pyiceberg, if it writes this version by now",
        )
        return
    try:
        mapping = table.name_mapping()
    except ValueError as error:
        yield Change(
            f"has a property {_MAPPING} that is not a name mapping ({first_line(error)})", "Restore the property"
        )
        return
    schema = table.schema()
    if mapping is not None:
        ids = dict(_ids(mapping.root))
        yield from _renamed(schema, ids, wanted.names)
        yield from _unmapped(schema, ids, wanted.names)
    if table.current_snapshot() is None:
        key = ()  # an empty table, which another program may have created
    yield from changes_of_columns(wanted, schema.as_arrow(), key, _PROMOTED)
    for field in table.spec().fields:
        if not field.transform.preserves_order:
            yield Change(
                f"is partitioned by {field.transform} of {schema.find_column_name(field.source_id)}, which the "
                "statistics of a file do not tell",
                f"Drop the partition field {field.name}",
            )


def _ids(fields: Sequence[MappedField], parent: str = "") -> Iterator[tuple[str, int | None]]:
    """Yield the paths of names in files to which a name mapping gives a column, with the column's id."""
    for field in fields:
        for name in field.names:
            yield f"{parent}{name}", field.field_id
            yield from _ids(field.fields, f"{parent}{name}.")


def _renamed(schema: Schema, ids: Mapping[str, int | None], wanted: Sequence[str]) -> Iterator[Change]:
    """Yield the columns that would be added again: readers would then find the values of all files in the new one."""
    names = {field.field_id: field.name for field in schema.fields}
    for name in wanted:
        now = names.get(ids.get(name) or 0)
        if name not in names.values() and now is not None:
            yield Change(
                f"has no column {name} any more: another program has renamed it to {now}", f"Rename it back to {name}"
            )


def _unmapped(schema: Schema, ids: Mapping[str, int | None], wanted: Sequence[str]) -> Iterator[Change]:
    for field_id in sorted(schema.field_ids):
        path = schema.find_column_name(field_id) or ""
        if path.partition(".")[0] in wanted and ids.get(path) != field_id:
            yield Change(
                f"has a property {_MAPPING} that does not lead the name {path} in the files to the table's column "
                f"{path}",
                f"Remove the property, which the next sync makes again, or name {path} in it",
            )
