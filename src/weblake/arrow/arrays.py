"""Builds Arrow arrays of a given type from Python values.

`pyarrow.array` is not used, because it imports pandas if pandas is installed, which takes more than a second of a small
job's time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from itertools import accumulate, chain
from typing import Any, TypeAlias

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)

#: The values of one column, as Python values or as a finished array.
Values: TypeAlias = Sequence[Any] | pa.Array
#: The keys of a map, in order.
Shape: TypeAlias = tuple[str, ...]


def record_batch(schema: pa.Schema, rows: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
    """Return the rows as a record batch of exactly this schema; a column that a row lacks is null.

    Values must have their column's type: a wrong one raises an error of pyarrow or Python. Datetimes without a time
    zone are interpreted as UTC.
    """
    return column_batch(schema, len(rows), {name: [row.get(name) for row in rows] for name in schema.names})


def column_batch(schema: pa.Schema, rows: int, columns: Mapping[str, Values]) -> pa.RecordBatch:
    """Return columns as a record batch of exactly this schema; missing columns are null, arrays are used unchanged."""
    found = build_arrays(schema, columns)
    return pa.RecordBatch.from_arrays(
        [found[field.name] if field.name in found else pa.nulls(rows, field.type) for field in schema], schema=schema
    )


def build_arrays(schema: pa.Schema, columns: Mapping[str, Values]) -> dict[str, pa.Array]:
    """Return each column as an array of its type in the schema; arrays are returned unchanged."""
    return {
        name: values if isinstance(values, pa.Array) else column(schema.field(name).type, values)
        for name, values in columns.items()
    }


def table(schema: pa.Schema, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Return the rows as a table of exactly this schema; for small tables."""
    return pa.Table.from_batches([record_batch(schema, rows)], schema=schema)


def column(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """Return the values as an array of exactly this type; None is null, lists and maps are list and dict."""
    if all(value is None for value in values):  # all() stops early; count(None) would compare every value
        return pa.nulls(len(values), kind)
    built: pa.Array = _BUILDERS[kind.id](kind, values)
    if len(built) != len(values):  # Arrow returns a shorter array if it had no memory for a text
        raise MemoryError(f"{len(values) - len(built)} of {len(values)} values of a column are missing")
    return built


def _string(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    built = builder.finish()
    if built.type == kind:
        return built
    # The same text with wider offsets. A cast would do the same but import pyarrow.compute.
    validity, offsets, text = built.buffers()
    wide = array("q", memoryview(offsets).cast("i")[: len(built) + 1])
    return pa.Array.from_buffers(kind, len(built), [validity, pa.py_buffer(wide), text])


def _number(code: str) -> Callable[[pa.DataType, Sequence[object]], pa.Array]:
    def build(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
        validity = None
        try:
            numbers = array(code, values)  # type: ignore[type-var]  # None raises TypeError
        except TypeError:
            numbers = array(code, [0 if value is None else value for value in values])  # type: ignore[type-var]
            validity = _validity(values)
        return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(numbers)])

    return build


def _timestamp(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    return _number("q")(kind, [_microseconds(value) for value in values])


def _microseconds(value: object) -> int | None:
    if value is None:
        return None
    assert isinstance(value, datetime)
    return ((value if value.tzinfo else value.replace(tzinfo=timezone.utc)) - _EPOCH) // _MICROSECOND


def _bool(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    bits = _bits([value is True for value in values])
    return pa.Array.from_buffers(kind, len(values), [_validity(values), bits])


def _list(kind: pa.DataType, values: Sequence[list[object]]) -> pa.Array:
    child = column(kind.value_type, list(chain.from_iterable(value or () for value in values)))
    return pa.Array.from_buffers(kind, len(values), [_validity(values), _offsets(values)], children=[child])


def map_array(kind: pa.MapType, shapes: Sequence[Shape | None], items: Sequence[str | None]) -> pa.Array:
    """Return maps of strings: the keys of each map in order, None for a null map, and the values of all in one list."""
    keys = column(kind.key_type, list(chain.from_iterable(shape or () for shape in shapes)))
    entries = pa.struct([kind.key_field, kind.item_field])
    child = pa.Array.from_buffers(entries, len(keys), [None], children=[keys, column(kind.item_type, items)])
    return pa.Array.from_buffers(kind, len(shapes), [_validity(shapes), _offsets(shapes)], children=[child])


def _map(kind: pa.DataType, values: Sequence[Mapping[str, str | None] | None]) -> pa.Array:
    shapes = [None if value is None else tuple(value) for value in values]
    return map_array(kind, shapes, list(chain.from_iterable(value.values() for value in values if value)))


def _struct(kind: pa.DataType, values: Sequence[dict[str, object] | None]) -> pa.Array:
    children = [column(field.type, [value.get(field.name) if value else None for value in values]) for field in kind]
    return pa.Array.from_buffers(kind, len(values), [_validity(values)], children=children)


def _offsets(values: Iterable[Sequence[object] | None]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate((len(value) if value else 0 for value in values), initial=0)))


def _validity(values: Sequence[object]) -> pa.Buffer | None:
    there = [value is not None for value in values]
    return None if all(there) else _bits(there)


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    """Return the flags as an Arrow bitmap: one bit each, least significant bit first."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return pa.py_buffer(int(digits or "0", 2).to_bytes(-(-len(flags) // 8), "little"))


_BUILDERS: Mapping[int, Callable[..., pa.Array]] = {
    pa.string().id: _string,
    pa.large_string().id: _string,
    pa.int32().id: _number("i"),
    pa.int64().id: _number("q"),
    pa.float64().id: _number("d"),
    pa.bool_().id: _bool,
    pa.timestamp("us").id: _timestamp,
    pa.list_(pa.string()).id: _list,
    pa.map_(pa.string(), pa.string()).id: _map,
    pa.struct([]).id: _struct,
}
