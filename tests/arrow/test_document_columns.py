"""Tests that long texts become columns by Arrow's own reader exactly as Python reads them, or not at all."""

from __future__ import annotations

import json
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.arrow import document_columns

SCHEMA = pa.schema(
    [*((name, pa.large_string()) for name in ("one", "other", "html")), ("links", pa.list_(pa.string()))]
)
LONG = 'word \u00e9 \U0001f600 " \\ / \b\f\n\r\t \x00 ' * 5000


@given(
    st.lists(
        st.tuples(st.none() | st.text(), st.none() | st.text(), st.none() | st.lists(st.text(), max_size=3)),
        min_size=1,
        max_size=5,
    ),
    st.booleans(),
)
@settings(max_examples=examples(300))
def test_columns_are_what_python_reads(
    rows: list[tuple[str | None, str | None, list[str] | None]], ascii_only: bool
) -> None:
    raws = [
        [None if value is None else json.dumps(value, ensure_ascii=ascii_only).encode() for value in row]
        for row in rows
    ]
    names = ("one", "other", "links")
    with mock.patch.object(document_columns, "MIN_MEAN_BYTES", 0):
        made = document_columns.text_columns({name: [row[at] for row in raws] for at, name in enumerate(names)}, SCHEMA)
    if made is None:
        assert all(text is None for row in rows for text in row[:2])
        return
    for at, name in enumerate(names):
        column = made[name]
        assert column.type == SCHEMA.field(name).type
        column.validate(full=True)
        assert column.to_pylist() == [row[at] for row in rows]


def test_short_columns_are_left_to_the_general_decoder() -> None:
    assert document_columns.text_columns({"html": [b'"short"']}, SCHEMA) is None
    assert document_columns.text_columns({"html": [b'"short"'], "links": [b'["%s"]' % (b"x" * 5000)]}, SCHEMA) is None
    assert document_columns.text_columns({}, SCHEMA) is None


@pytest.mark.parametrize("bad", [b'"\\ud800"', b'"\xff"', b'"\xed\xa0\x80"', b'"\\udc00\\ud800"', b"5", b'"\x01"'])
def test_a_column_with_a_value_that_is_not_text_is_refused(bad: bytes) -> None:
    good = json.dumps(LONG).encode()
    assert document_columns.text_columns({"html": [good]}, SCHEMA) is not None
    assert document_columns.text_columns({"html": [good, bad]}, SCHEMA) is None


@pytest.mark.parametrize("bad", [b"[null]", b'["a",null]', b"[1]", b'[["a"]]', b"[{}]", b'["\\ud800"]', b'["\xff"]'])
def test_a_list_column_with_other_values_than_strings_is_refused(bad: bytes) -> None:
    html = [json.dumps(LONG).encode()] * 2
    assert document_columns.text_columns({"html": html, "links": [b'["a"]', b"[]"]}, SCHEMA) is not None
    assert document_columns.text_columns({"html": html, "links": [b'["a"]', bad]}, SCHEMA) is None
