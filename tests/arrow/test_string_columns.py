"""Tests that a column of many strings equals one of few strings, with any content."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.arrow import arrays

KINDS = [pa.string(), pa.large_string()]
WORDS = st.none() | st.text() | st.sampled_from(["", "\x1f", "a\x1fb", "\x00", "é", "\U0001f600" * 9])


@settings(max_examples=examples(300))
@given(st.lists(WORDS, min_size=1), st.sampled_from(KINDS))
def test_a_split_column_has_the_given_values(values: list[str | None], kind: pa.DataType) -> None:
    made = arrays._split_joined(kind, values)
    if made is None:
        assert any("\x1f" in value for value in values if value)
    else:
        made.validate(full=True)
        assert made.type == kind
        assert made.to_pylist() == values


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_long_column_is_split_into_chunks(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pa.lib, "StringBuilder")  # the other way
    values = [None if n % 7 == 0 else f"{n} é" for n in range(arrays._MIN_STRINGS)]
    made = arrays.column(kind, values)
    assert (made.type, made.to_pylist()) == (kind, values)


def test_a_column_that_cannot_be_split_is_built_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["\x1f", *["x"] * arrays._MIN_STRINGS]
    assert arrays.column(pa.string(), values).to_pylist() == values
    with pytest.raises(UnicodeEncodeError):
        arrays.column(pa.string(), ["\ud800", *values])
    monkeypatch.setattr(arrays, "_MAX_JOINED_BYTES", 3 * len(values))
    assert arrays._split_joined(pa.string(), ["yy"] * len(values)) is not None
    assert arrays._split_joined(pa.string(), ["yyy"] * len(values)) is None


def test_a_truncated_arrow_column_is_reported_as_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(arrays._BUILDERS, pa.int64().id, lambda kind, values: pa.array(values[:-1], kind))
    with pytest.raises(MemoryError, match="1 of 3 values"):
        arrays.column(pa.int64(), [1, 2, 3])


@pytest.mark.system
def test_small_columns_do_not_import_pyarrow_compute() -> None:
    code = f"""
import sys
from datetime import datetime
from weblake.arrow import arrays, document_rows
import pyarrow as pa
batches = document_rows.DocumentBatches("load", "job", "crawl", datetime(2026, 11, 23))
for _ in range(99):
    batches.append(batches.parse(b'{{"markdown":"m","metadata":{{"title":"t","statusCode":200,"og:x":["y"]}}}}'))
assert batches.flush()().num_rows == 99
arrays.column(pa.string(), ["x"] * {arrays._MIN_STRINGS - 1})
assert not {{"pyarrow.compute", "pandas"}} & set(sys.modules)
arrays.column(pa.string(), ["x"] * {arrays._MIN_STRINGS})
assert "pyarrow.compute" in sys.modules
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


MAP = pa.map_(pa.string(), pa.string())
MAPS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "é", "\x1f", ""]) | st.text(max_size=3), st.none() | st.text()
)


@settings(max_examples=examples(300))
@given(st.lists(MAPS, min_size=1, max_size=20), st.booleans())
def test_maps_do_not_depend_on_shared_keys(values: list[dict[str, str | None] | None], large: bool) -> None:
    """In the job of a large column, and of a small one, where Arrow's compute functions are not loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_COMPUTE_MODULE", "pyarrow.compute" if large else "no.such.module")
        import pyarrow.compute  # noqa: F401

        made = arrays.column(MAP, values)
    made.validate(full=True)
    assert made.type == MAP
    assert made.to_pylist() == [None if value is None else list(value.items()) for value in values]
