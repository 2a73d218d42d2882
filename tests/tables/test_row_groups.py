"""Batches are gathered to row groups of bounded size, and no row of them is lost."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from weblake.tables import arrays
from weblake.tables.row_groups import RowGroupBuffer

SCHEMA = pa.schema([("html", pa.large_string()), ("position", pa.int64())])


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(0, 300), max_size=9), max_size=9),
    st.integers(1, 2_000),
)
def test_what_is_gathered_is_handed_on_once_in_its_order(sizes: list[list[int]], most: int) -> None:
    rows = [
        [{"html": "x" * size, "position": 100 * at + n} for n, size in enumerate(some)] for at, some in enumerate(sizes)
    ]
    gathering, groups = RowGroupBuffer(most), list[list[pa.RecordBatch]]()
    for some in rows:
        groups += gathering.add(arrays.record_batch(SCHEMA, some))
        assert gathering.bytes * 2 < most
    groups += [rest] if (rest := gathering.take()) else []
    assert gathering.take() == []
    assert gathering.bytes == 0
    positions = [n for group in groups for each in group for n in each.column("position").to_pylist()]
    assert positions == [row["position"] for some in rows for row in some]
    for group in groups:
        assert sum(each.num_rows for each in group) == 1 or sum(each.nbytes for each in group) <= most
