"""JSON strings in, and lists of them, Arrow's columns out, with no Python string between. Imports headroom, wire.

A page's HTML as a Python string costs its decoding, up to four times its bytes, and its encoding again for Arrow.
Arrow's own JSON reader unescapes straight into a column, and other threads run meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from weblake.api import response_json
from weblake.tables import free_memory

#: Texts shorter than these bytes on average are decoded sooner one by one.
WORTH_BYTES = 1 << 10
#: The reader holds a text while it unescapes it, in its own tables and in the column, for every byte of JSON.
_TIMES = 4


def columns(
    values: Mapping[str, Sequence[response_json.JsonBytes | None]], schema: pa.Schema
) -> dict[str, pa.Array] | None:
    """Returns JSON, each good JSON but for its encoding, as these columns of the schema; None stays null.

    None for all of it where Arrow refuses one of them (a lone surrogate, bytes that are no UTF-8, what is not of its
    column's type), and where the strings are not worth the while.
    """
    kinds = {name: schema.field(name).type for name in values}
    sizes = [
        memoryview(raw).nbytes
        for name, raws in values.items()
        if kinds[name] == pa.large_string()
        for raw in raws
        if raw is not None
    ]
    if not sizes or sum(sizes) < WORTH_BYTES * len(sizes):
        return None
    import pyarrow.json as reader  # costs a small job more than it saves

    separators = [b'{"%d":' % at if at == 0 else b',"%d":' % at for at in range(len(values))]
    parts: list[response_json.JsonBytes] = []
    for row in zip(*values.values(), strict=True):
        for separator, raw in zip(separators, row, strict=True):
            parts += (separator, b"null" if raw is None else raw)
        parts.append(b"}\n")
    lines = b"".join(parts)
    del parts
    free_memory.need(_TIMES * len(lines) + free_memory.THREAD_BYTES)
    try:
        read = reader.read_json(
            pa.BufferReader(lines),
            read_options=reader.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=reader.ParseOptions(
                explicit_schema=pa.schema([(str(at), kind) for at, kind in enumerate(kinds.values())]),
                unexpected_field_behavior="error",
            ),
        ).combine_chunks()
        read.validate(full=True)
    except pa.ArrowInvalid:
        return None
    made = {name: read.column(at).chunk(0) for at, name in enumerate(values)}
    # A list of strings has no null in it; Arrow's may.
    return None if any(pa.types.is_list(kinds[name]) and made[name].values.null_count for name in made) else made
