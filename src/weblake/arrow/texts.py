"""Converts JSON strings and lists of strings to Arrow columns without creating Python strings.

The HTML of a page as a Python string costs decoding, up to four times its bytes of memory, and encoding for Arrow.
Arrow's JSON reader unescapes directly into a column, without the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from weblake.api import response_json

#: Minimum average bytes of a text; shorter texts are decoded faster one by one.
MIN_MEAN_BYTES = 1 << 10


def columns(
    values: Mapping[str, Sequence[response_json.JsonBytes | None]], schema: pa.Schema
) -> dict[str, pa.Array] | None:
    """Return these columns of the schema from JSON texts, which must be valid JSON except for their encoding.

    None becomes null. Return None instead of all columns if Arrow refuses one value (a lone surrogate, bytes that are
    not UTF-8, a value of another type than its column), or if the strings are too short to save time.
    """
    kinds = {name: schema.field(name).type for name in values}
    sizes = [
        memoryview(raw).nbytes
        for name, raws in values.items()
        if kinds[name] == pa.large_string()
        for raw in raws
        if raw is not None
    ]
    if not sizes or sum(sizes) < MIN_MEAN_BYTES * len(sizes):
        return None
    import pyarrow.json as reader  # importing costs a small job more than it saves

    separators = [b'{"%d":' % at if at == 0 else b',"%d":' % at for at in range(len(values))]
    parts: list[response_json.JsonBytes] = []
    for row in zip(*values.values(), strict=True):
        for separator, raw in zip(separators, row, strict=True):
            parts += (separator, b"null" if raw is None else raw)
        parts.append(b"}\n")
    lines = b"".join(parts)
    del parts
    try:
        read = reader.read_json(
            pa.BufferReader(lines),
            read_options=reader.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=reader.ParseOptions(
                explicit_schema=pa.schema([(str(at), kind) for at, kind in enumerate(kinds.values())])
            ),
        ).combine_chunks()
        read.validate(full=True)
    except pa.ArrowInvalid:
        return None
    made = {name: read.column(at).chunk(0) for at, name in enumerate(values)}
    # Lists of strings must not contain null, which Arrow accepts.
    return None if any(pa.types.is_list(kinds[name]) and made[name].values.null_count for name in made) else made
