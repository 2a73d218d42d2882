"""The statistics of a file in a Delta Lake log never leave out a row that a reader asks for."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weblake.tables import delta_statistics

#: Longer than the texts for which pyarrow writes a minimum and a maximum (4,096 bytes).
_LONG = f"http://pages.test/{'z' * 5000}"


def statistics(column: str, groups: list[list[object]], kind: pa.DataType) -> dict[str, object]:
    """Return the statistics of a file with these row groups."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, pa.schema([(column, kind)])) as writer:
        for values in groups:
            writer.write_table(pa.table({column: pa.array(values, kind)}))
    found = delta_statistics.statistics_of(pq.read_metadata(pa.BufferReader(sink.getvalue())))
    return {name: of[column] for name, of in found.items() if isinstance(of, dict) and column in of}


@pytest.mark.parametrize("position", range(3))
def test_a_row_group_without_a_minimum_leaves_the_column_without_one(position: int) -> None:
    """Also if another row group has only nulls, which need none."""
    groups: list[list[object]] = [[None, None], ["http://pages.test/a"]]
    groups.insert(position, [_LONG])
    assert statistics("source_url", groups, pa.string()) == {}


def test_row_groups_without_values_count_as_nulls() -> None:
    found = statistics("source_url", [["b", "d", None], [None, None], ["a", "c"], ["b"]], pa.string())
    assert found == {"minValues": "a", "maxValues": "d", "nullCount": 3}


def test_a_time_has_a_year_of_four_digits() -> None:
    early = datetime(5, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)
    found = statistics("created_at", [[early]], pa.timestamp("us", "UTC"))
    assert found["minValues"] == found["maxValues"] == "0005-01-02T03:04:05.000678Z"
