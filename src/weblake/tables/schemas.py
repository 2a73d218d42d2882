"""The tables that land, column by column, and how Python values become their columns. Imports pyarrow only.

No type is ever inferred: a column has its type from here, whatever came. `column` builds Arrow arrays without
`pyarrow.array`, which imports pandas wherever pandas is installed (over a second of a small job's time).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, chain
from typing import Any, TypeAlias

import pyarrow as pa

#: The version of every schema below; it stands in each file's footer. A column more is a version more.
SCHEMA_VERSION = 1

#: Microseconds of UTC, in every table.
TIMESTAMP = pa.timestamp("us", tz="UTC")

_STRINGS = pa.list_(pa.string())

#: What a browser did on a page. Bodies are large_string here as everywhere.
ACTIONS = pa.struct(
    [
        ("screenshots", _STRINGS),
        ("scrapes", pa.list_(pa.struct([("url", pa.string()), ("html", pa.large_string())]))),
        ("javascript_returns", pa.list_(pa.struct([("type", pa.string()), ("value", pa.large_string())]))),
        ("pdfs", _STRINGS),
    ]
)

#: How a page differs from its last scrape.
CHANGE_TRACKING = pa.struct(
    [
        ("previous_scrape_at", TIMESTAMP),
        ("change_status", pa.string()),
        ("visibility", pa.string()),
        ("diff", pa.large_string()),
        ("json", pa.large_string()),
    ]
)

#: One row per page that the service returned.
DOCUMENTS = pa.schema(
    [
        ("load_id", pa.string()),
        ("job_id", pa.string()),
        ("job_kind", pa.string()),
        ("position", pa.int64()),
        ("url", pa.string()),
        ("source_url", pa.string()),
        ("scrape_id", pa.string()),
        ("status_code", pa.int32()),
        ("title", pa.string()),
        ("description", pa.string()),
        ("language", pa.string()),
        ("keywords", pa.string()),
        ("content_type", pa.string()),
        ("og_locale_alternate", _STRINGS),
        ("markdown", pa.large_string()),
        ("summary", pa.large_string()),
        ("html", pa.large_string()),
        ("raw_html", pa.large_string()),
        ("screenshot", pa.large_string()),
        ("audio", pa.large_string()),
        ("video", pa.large_string()),
        ("answer", pa.large_string()),
        ("highlights", pa.large_string()),
        ("links", _STRINGS),
        ("images", _STRINGS),
        ("json", pa.large_string()),
        ("actions", ACTIONS),
        ("change_tracking", CHANGE_TRACKING),
        ("branding", pa.large_string()),
        ("warning", pa.string()),
        ("error", pa.string()),
        ("concurrency_limited", pa.bool_()),
        ("concurrency_queue_duration_ms", pa.int64()),
        ("metadata", pa.map_(pa.string(), pa.string())),
        ("extra", pa.large_string()),
        ("repaired", pa.bool_()),
        ("loaded_at", TIMESTAMP),
    ]
)

#: One row per submitted URL that is no document; outcome is failed, robots_blocked, rejected or missing.
PAGE_ERRORS = pa.schema(
    [
        ("load_id", pa.string()),
        ("job_id", pa.string()),
        ("job_kind", pa.string()),
        ("url", pa.string()),
        ("outcome", pa.string()),
        ("code", pa.string()),
        ("error", pa.string()),
        ("occurred_at", TIMESTAMP),
    ]
)

#: One row per period of usage, and per API key where the report is split by key.
USAGE_PERIODS = pa.schema(
    [
        ("period_start", TIMESTAMP),
        ("period_end", TIMESTAMP),
        ("api_key", pa.string()),
        ("total_credits", pa.float64()),
        ("total_tokens", pa.float64()),
        ("reported_at", TIMESTAMP),
    ]
)

#: One row per call of the team.
ACTIVITY = pa.schema(
    [
        ("id", pa.string()),
        ("endpoint", pa.string()),
        ("api_version", pa.string()),
        ("created_at", TIMESTAMP),
        ("target", pa.string()),
    ]
)

#: Every table by the name of its folder.
TABLES: Mapping[str, pa.Schema] = {
    "documents": DOCUMENTS,
    "page_errors": PAGE_ERRORS,
    "usage_periods": USAGE_PERIODS,
    "activity": ACTIVITY,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


#: So many strings of one column are joined and split: many where Arrow's compute functions have still to be imported.
_FEW, _MANY, _COMPUTE = 100, 10_000, "pyarrow.compute"
#: Split by a character that hardly any text has, and in less than 2 GB.
_BETWEEN, _LONGEST = "\x1f", 1 << 30

#: The values of one column, as they came or ready.
Values: TypeAlias = Sequence[Any] | pa.Array


def record_batch(schema: pa.Schema, rows: Sequence[Mapping[str, object]]) -> pa.RecordBatch:
    """Returns the rows as a record batch of exactly this schema; a name that a row lacks is null in it.

    Values must already be of their column's type: a wrong one raises pyarrow's or Python's own error. Datetimes without
    a zone are taken for UTC.
    """
    named = set[str]().union(*rows)
    return column_batch(
        schema, len(rows), {name: [row.get(name) for row in rows] for name in schema.names if name in named}
    )


def column_batch(schema: pa.Schema, rows: int, columns: Mapping[str, Values]) -> pa.RecordBatch:
    """The same of columns; one that is not there is null in every row, and arrays are taken as they are."""
    made = arrays(schema, columns)
    return pa.RecordBatch.from_arrays(
        [made[field.name] if field.name in made else pa.nulls(rows, field.type) for field in schema], schema=schema
    )


def arrays(schema: pa.Schema, columns: Mapping[str, Values]) -> dict[str, pa.Array]:
    """Each of these columns as an array of its type; arrays are taken as they are."""
    return {
        name: values if isinstance(values, pa.Array) else column(schema.field(name).type, values)
        for name, values in columns.items()
    }


def table(schema: pa.Schema, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Returns the rows as a table of exactly this schema: `record_batch` for the small tables."""
    return pa.Table.from_batches([record_batch(schema, rows)], schema=schema)


def column(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    """Returns the values as an array of exactly this type; None is null. Lists and maps are taken from Python's own."""
    if all(value is None for value in values):  # which ends at the first one; to count None compares each with it
        return pa.nulls(len(values), kind)
    built: pa.Array = _BUILDERS[kind.id](kind, values)
    if len(built) != len(values):  # what Arrow hands out where it had no memory for a text
        raise MemoryError(f"{len(values) - len(built)} of {len(values)} values of a column are missing")
    return built


def _string(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    if len(values) >= (_FEW if _COMPUTE in sys.modules else _MANY):
        made = _split(kind, values)
        if made is not None:
            return made
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    made = builder.finish()
    if made.type == kind:
        return made
    # Wider offsets, and the same text. A cast would do so too, and import pyarrow.compute for it.
    validity, offsets, text = made.buffers()
    wide = array("q", memoryview(offsets).cast("i")[: len(made) + 1])
    return pa.Array.from_buffers(kind, len(made), [validity, pa.py_buffer(wide), text])


def _split(kind: pa.DataType, values: Sequence[object]) -> pa.Array | None:
    """The same in a third of the time: joined by Python, and taken apart by Arrow. None where a value cannot pass."""
    import pyarrow.compute as compute  # costs as much as some ten thousand strings save

    validity = None
    try:
        text = _encoded(values)  # type: ignore[arg-type]  # told by what it raises
    except TypeError:
        try:
            text = _encoded(["" if value is None else value for value in values])  # type: ignore[misc]
        except (TypeError, UnicodeEncodeError):
            return None
        validity = _validity(values)
    except UnicodeEncodeError:
        return None
    if text.count(_BETWEEN.encode()) != len(values) - 1 or len(text) > _LONGEST:
        return None
    offsets = array("i" if kind == pa.string() else "q", (0, len(text)))
    joined = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    _, ends, apart = compute.split_pattern(joined, _BETWEEN).values.buffers()
    return pa.Array.from_buffers(kind, len(values), [validity, ends, apart])


def _encoded(values: Sequence[str]) -> bytes:
    return _BETWEEN.join(values).encode()


def _number(code: str) -> Callable[[pa.DataType, Sequence[object]], pa.Array]:
    def build(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
        numbers = array(code)
        numbers.extend(0 if value is None else value for value in values)  # type: ignore[misc]
        return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(numbers)])

    return build


def _timestamp(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    return _number("q")(kind, [_microseconds(value) for value in values])


def _microseconds(value: object) -> int | None:
    if value is None:
        return None
    assert isinstance(value, datetime)
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _bool(kind: pa.DataType, values: Sequence[object]) -> pa.Array:
    bits = _bits([value is True for value in values])
    return pa.Array.from_buffers(kind, len(values), [_validity(values), bits])


def _list(kind: pa.DataType, values: Sequence[list[object]]) -> pa.Array:
    child = column(kind.value_type, list(chain.from_iterable(value or () for value in values)))
    return pa.Array.from_buffers(kind, len(values), [_validity(values), _offsets(values)], children=[child])


def _map(kind: pa.DataType, values: Sequence[dict[str, object]]) -> pa.Array:
    keys = _keys(kind.key_type, values)
    items = column(kind.item_type, list(chain.from_iterable(value.values() for value in values if value)))
    entries = pa.struct([kind.key_field, kind.item_field])
    child = pa.Array.from_buffers(entries, len(keys), [None], children=[keys, items])
    return pa.Array.from_buffers(kind, len(values), [_validity(values), _offsets(values)], children=[child])


def _keys(kind: pa.DataType, values: Sequence[dict[str, object]]) -> pa.Array:
    """The keys of all, where most have the same ones in the same order: each text is made once."""
    if _COMPUTE not in sys.modules:
        return column(kind, list(chain.from_iterable(value or () for value in values)))
    places: dict[str, int] = {}
    shapes: dict[tuple[str, ...], array[int]] = {}
    found = array("i")
    for value in values:
        shape = tuple(value or ())
        known = shapes.get(shape)
        if known is None:
            known = shapes[shape] = array("i", [places.setdefault(key, len(places)) for key in shape])
        found.extend(known)
    indices = pa.Array.from_buffers(pa.int32(), len(found), [None, pa.py_buffer(found)])
    return column(kind, list(places)).take(indices)


def _struct(kind: pa.DataType, values: Sequence[dict[str, object] | None]) -> pa.Array:
    children = [column(field.type, [value.get(field.name) if value else None for value in values]) for field in kind]
    return pa.Array.from_buffers(kind, len(values), [_validity(values)], children=children)


def _offsets(values: Iterable[Sequence[object] | dict[str, object] | None]) -> pa.Buffer:
    return pa.py_buffer(array("i", accumulate((len(value) if value else 0 for value in values), initial=0)))


def _validity(values: Sequence[object]) -> pa.Buffer | None:
    there = [value is not None for value in values]
    return None if all(there) else _bits(there)


def _bits(flags: Sequence[bool]) -> pa.Buffer:
    """The flags as Arrow's bitmap, one bit each, the first one lowest."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return pa.py_buffer(int(digits or "0", 2).to_bytes(-(-len(flags) // 8), "little"))


_BUILDERS: Mapping[int, Callable[..., pa.Array]] = {
    pa.string().id: _string,
    pa.large_string().id: _string,
    pa.int32().id: _number("i"),
    pa.int64().id: _number("q"),
    pa.float64().id: _number("d"),
    pa.bool_().id: _bool,
    TIMESTAMP.id: _timestamp,
    _STRINGS.id: _list,
    pa.map_(pa.string(), pa.string()).id: _map,
    ACTIONS.id: _struct,
}
