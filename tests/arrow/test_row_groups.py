"""Tests that the batches of row groups are bounded, and that no row is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.arrow import arrays
from weblake.arrow.row_groups import RowGroupBuffer

SCHEMA = pa.schema([("html", pa.large_string()), ("position", pa.int64())])


def batch(rows: Sequence[dict[str, object]]) -> pa.RecordBatch:
    return arrays.record_batch(SCHEMA, rows)


@settings(max_examples=examples(300))
@given(
    st.lists(st.lists(st.integers(0, 300), max_size=9), max_size=9),
    st.integers(1, 2_000),
)
def test_gathered_rows_are_passed_on_once_and_in_order(sizes: list[list[int]], most: int) -> None:
    rows = [
        [{"html": "x" * size, "position": 100 * at + n} for n, size in enumerate(some)] for at, some in enumerate(sizes)
    ]
    buffer, groups = RowGroupBuffer(most), list[list[pa.RecordBatch]]()
    for some in rows:
        groups += buffer.add(batch(some))
        assert buffer.bytes * 2 < most
    groups += [rest] if (rest := buffer.rest()) else []
    assert buffer.rest() == []
    assert buffer.bytes == 0
    positions = [n for group in groups for each in group for n in each.column("position").to_pylist()]
    assert positions == [row["position"] for some in rows for row in some]
    for group in groups:
        assert sum(each.num_rows for each in group) == 1 or sum(each.nbytes for each in group) <= most
