"""Tests that separately encoded row groups give, byte for byte, the file of one writer, and that no row is lost."""

from __future__ import annotations

import io
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.arrow import arrays, parquet, schemas
from weblake.arrow.footers import shift_offsets
from weblake.arrow.row_groups import MAGIC, Footer, RowGroupBuffer, row_group

#: Every kind of column, and texts of any size and content: magic, footers and what looks like places of pages.
SCHEMA = pa.schema(
    [
        ("load_id", pa.string()),  # with a dictionary
        ("html", pa.large_string()),  # with nothing
        ("position", pa.int64()),  # with statistics
        ("total_credits", pa.float64()),
        ("repaired", pa.bool_()),
        ("loaded_at", schemas.TIMESTAMP),
        ("metadata", pa.map_(pa.string(), pa.string())),
        ("actions", schemas.ACTIONS),
        ("links", pa.list_(pa.string())),
    ]
)
TEXTS = st.text(max_size=30) | st.just("PAR1") | st.integers(0, 300_000).map(lambda size: "x" * (size % 40_000))
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "load_id": TEXTS,
        "html": TEXTS,
        "position": st.integers(-(1 << 63), (1 << 63) - 1),
        "total_credits": st.floats(allow_nan=False),
        "repaired": st.booleans(),
        "metadata": st.dictionaries(TEXTS, TEXTS | st.none(), max_size=4),
        "links": st.lists(TEXTS, max_size=4),
        "actions": st.fixed_dictionaries({}, optional={"pdfs": st.lists(TEXTS, max_size=3)}),
    },
)
OPTIONS = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": ["load_id"],
    "write_statistics": ["load_id", "position", "total_credits", "repaired", "loaded_at"],
}


def batch(rows: Sequence[dict[str, object]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return arrays.record_batch(schema, rows)


def by_one_writer(groups: Iterable[Sequence[pa.RecordBatch]], values: dict[bytes, bytes]) -> bytes:
    out = io.BytesIO()
    with pq.ParquetWriter(out, SCHEMA, **OPTIONS) as writer:
        for group in groups:
            table = pa.Table.from_batches(group, SCHEMA)
            writer.write_table(table, row_group_size=table.num_rows)
        writer.add_key_value_metadata(values)
    return out.getvalue()


def put_together(groups: Iterable[Sequence[pa.RecordBatch]], values: dict[bytes, bytes]) -> bytes:
    footer, parts = Footer(SCHEMA), [MAGIC]
    with ThreadPoolExecutor(2) as threads:
        for made in threads.map(lambda group: row_group(SCHEMA, group), groups):
            footer.add(made)
            parts.append(made.body.to_pybytes())
    return b"".join((*parts, footer.serialize(values).to_pybytes()))


@settings(max_examples=examples(150))
@given(st.lists(st.lists(st.lists(ROWS, min_size=1, max_size=3), min_size=1, max_size=2), max_size=20))
def test_separately_encoded_row_groups_equal_the_file_of_one_writer(
    groups: list[list[list[dict[str, object]]]],
) -> None:
    made = [[batch(rows) for rows in group] for group in groups]
    values = {b"weblake.receipt": b'{"complete": true}'}
    whole = put_together(made, values)
    assert whole == by_one_writer(made, values)
    read = pq.read_table(io.BytesIO(whole))
    assert read.equals(pa.Table.from_batches([each for group in made for each in group], SCHEMA))


def test_separately_encoded_files_with_many_row_groups_equal_the_file_of_one_writer(tmp_path: Path) -> None:
    """Places of one byte and of four, and more row groups than fit in one byte of their number."""
    word = random.Random(7).randbytes(15_000).hex()
    groups = [[batch([{"html": word[at:], "load_id": "a" * 64, "position": at}])] for at in range(150)]
    with parquet.ParquetFile(tmp_path / "x.parquet", SCHEMA, group_bytes=1) as file:
        for (each,) in groups:
            file.write(each)
        file.close(b"{}")
    values = {parquet.VERSION_KEY: str(schemas.SCHEMA_VERSION).encode(), parquet.RECEIPT_KEY: b"{}"}
    assert (tmp_path / "x.parquet").read_bytes() == by_one_writer(groups, values)
    metadata = pq.read_metadata(tmp_path / "x.parquet")
    assert metadata.num_row_groups == 150
    assert metadata.row_group(149).column(1).data_page_offset > 2 << 20


@pytest.mark.parametrize("schema", schemas.TABLES.values(), ids=schemas.TABLES)
def test_a_footer_with_unchanged_offsets_is_identical(schema: pa.Schema) -> None:
    group = row_group(schema, [batch([{}, {}], schema)])
    assert shift_offsets(group.footer, 0, 0) == group.footer
    there_and_back = shift_offsets(shift_offsets(group.footer, 1 << 40, 12_345), -(1 << 40), -12_345)
    assert there_and_back == group.footer
    assert shift_offsets(group.footer, 1 << 40, 12_345) != group.footer


def test_the_ordinal_of_a_row_group_is_increased() -> None:
    """pyarrow writes none here; field 7 of the struct in the list of field 4 of the footer, as zigzag numbers."""
    assert shift_offsets(b"\x49\x1c\x74\x06\x00\x00", 1 << 40, 2) == b"\x49\x1c\x74\x0a\x00\x00"


def test_a_footer_of_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 11"):
        shift_offsets(b"\x1b\x00\x00", 5, 0)
    with pytest.raises(IndexError):
        shift_offsets(row_group(SCHEMA, [batch([{}])]).footer[:100], 5, 0)


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
