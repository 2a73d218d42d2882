"""Tests of the columns of strings and maps."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.arrow import arrays


def test_a_truncated_arrow_column_is_reported_as_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(arrays._BUILDERS, pa.int64().id, lambda kind, values: pa.array(values[:-1], kind))
    with pytest.raises(MemoryError, match="1 of 3 values"):
        arrays.column(pa.int64(), [1, 2, 3])


@pytest.mark.system
def test_documents_do_not_import_pyarrow_compute() -> None:
    code = """
import sys
from datetime import datetime
from weblake.arrow import document_rows
batches = document_rows.DocumentBatches("load", "job", "crawl", datetime(2026, 11, 23))
for _ in range(99):
    batches.append(batches.parse(b'{"markdown":"m","metadata":{"title":"t","statusCode":200,"og:x":["y"]}}'))
assert batches.flush().num_rows == 99
assert not {"pyarrow.compute", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


MAP = pa.map_(pa.string(), pa.string())
MAPS = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "é", "\x1f", ""]) | st.text(max_size=3), st.none() | st.text()
)


@settings(max_examples=examples(300))
@given(st.lists(MAPS, min_size=1, max_size=20))
def test_maps_have_the_given_keys_and_values(values: list[dict[str, str | None] | None]) -> None:
    made = arrays.column(MAP, values)
    made.validate(full=True)
    assert made.type == MAP
    assert made.to_pylist() == [None if value is None else list(value.items()) for value in values]
