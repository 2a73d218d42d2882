"""The newest version of each page is the one that a slow, obvious implementation finds, in every form of a reading."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import made_loads
import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from versions_lab import BEGAN, land, page

import weblake
from weblake.dataset import arrow_files, layout, newest
from weblake.dataset.root import open_dataset
from weblake.errors import InvalidOption

COLUMNS = ["load_id", "position", "page_key", "status_code", "markdown", "load_date"]
FORMS: dict[str, Callable[[weblake.Reading], list[dict[str, Any]]]] = {
    "batches": lambda reading: [row for batch in reading.to_batches(2) for row in batch.to_pylist()],
    "reader": lambda reading: reading.to_reader().read_all().to_pylist(),
    "pandas": lambda reading: reading.to_pandas().to_dict("records"),
    "polars": lambda reading: reading.to_polars().to_dicts(),
    "lazy": lambda reading: reading.to_polars_lazy().collect().to_dicts(),
    "streamed": lambda reading: reading.to_polars_lazy().collect(engine="streaming").to_dicts(),
}


def expected(loads: list[tuple[str, datetime, list[dict[str, Any]]]], *, successful: bool) -> set[tuple[Any, ...]]:
    """Return load id, position and text of the newest versions, slowly."""
    found: dict[str, tuple[Any, ...]] = {}
    for load_id, began, rows in loads:
        for position, row in enumerate(rows):
            status = row["status_code"]
            if row["source_url"] is None or (successful and (status is None or status >= 400)):
                continue
            key = row["source_url"].lower().removeprefix("http://").removeprefix("www.").rstrip("/")
            found[key] = max(found.get(key, ()), (began, load_id, position, row["markdown"]))
    return {version[1:] for version in found.values()}


versions = st.builds(
    page,
    st.integers(0, 4),
    st.sampled_from([200, 200, 301, 399, 400, 404, 500, None]),
    st.sampled_from(["a", "b", ""]),
    st.sampled_from(["http://a.test/", "http://www.A.test/"]),
) | st.just({"source_url": None, "status_code": 200, "markdown": "of no page"})
loads = st.lists(
    st.tuples(st.integers(0, 2), st.lists(versions, max_size=6), st.sampled_from([1, 2])), min_size=1, max_size=6
)


@pytest.mark.system
@given(loads, st.booleans(), st.sampled_from(sorted(FORMS)), st.permutations(range(6)))
@settings(max_examples=examples(60))
def test_latest_is_what_a_slow_implementation_finds(
    made: list[tuple[int, list[dict[str, Any]], int]], successful: bool, form: str, ids: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        dataset = open_dataset(root)
        known = []
        for n, (hours, rows, version) in zip(ids, made, strict=False):
            load_id, began = made_loads.load_id(n), BEGAN + timedelta(hours=hours)
            land(dataset, load_id, began, rows, version=version)
            known.append((load_id, began, rows))
        reading = weblake.read(root, columns=COLUMNS).latest(successful=successful)
        found = FORMS[form](reading)
        assert {(row["load_id"], row["position"], row["markdown"]) for row in found} == expected(
            known, successful=successful
        )
        assert len({row["page_key"] for row in found}) == len(found) == reading.count_rows()
        assert {row["load_id"] for row in found} == {layout.load_id_in(name) for name in reading.files()}


def texts(reading: weblake.Reading) -> list[str]:
    return sorted(reading.to_table().column("markdown").to_pylist())


def test_a_moment_is_a_load_or_a_time_and_counts_what_had_landed(tmp_path: Path) -> None:
    """A load that began first and landed last counts from its landing on; then it is older than what landed before."""
    dataset = open_dataset(tmp_path)
    first = land(dataset, "0" * 16, BEGAN, [page(1, text="first"), page(2, text="first")])
    late = land(
        dataset,
        "1" * 16,
        BEGAN + timedelta(hours=1),
        [page(1, text="late"), page(3, text="late")],
        landed=BEGAN + timedelta(hours=9),
    )
    third = land(dataset, "2" * 16, BEGAN + timedelta(hours=2), [page(1, text="third")])
    land(dataset, "3" * 16, BEGAN + timedelta(hours=10), [page(1, text="unfinished")], done=False)
    reading = weblake.read(tmp_path)
    assert texts(reading.latest(first)) == ["first", "first"]
    assert texts(reading.latest(third)) == texts(reading.latest(BEGAN + timedelta(hours=3))) == ["first", "third"]
    assert texts(reading.latest("2026-11-21T10:00:00Z")) == texts(reading.latest(late)) == ["first", "late", "third"]
    assert texts(reading.latest(datetime(2026, 11, 20))) == []
    assert texts(reading.latest()) == ["first", "late", "unfinished"]
    for when in ("yesterday", "f" * 16):
        with pytest.raises(InvalidOption, match="neither a load that has landed here nor a time"):
            reading.latest(when).to_table()
    with pytest.raises(InvalidOption, match="no versions of pages"):
        weblake.read(tmp_path, "page_errors").latest()
    with pytest.raises(InvalidOption, match="to_polars_lazy"):
        reading.latest().to_dataset()


def test_a_replaced_load_does_not_count_even_if_its_file_is_still_there(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    old = land(dataset, "0" * 16, BEGAN, [page(1, text="old"), page(2, text="old")])
    new = land(dataset, "1" * 16, BEGAN + timedelta(hours=1), [page(1, text="new")])
    dataset.ledger.record_retired(old, new)
    assert texts(weblake.read(tmp_path).latest()) == ["new"]
    assert texts(weblake.read(tmp_path, loads=[old, new]).latest()) == ["new"]


def test_columns_loads_path_keys_and_filters_of_a_reading_stay(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    one = land(dataset, "0" * 16, BEGAN, [page(n, text=f"one {n}") for n in range(5)])
    land(dataset, "1" * 16, BEGAN + timedelta(days=1), [page(n, text=f"two {n}") for n in (1, 3)])
    assert texts(weblake.read(tmp_path, loads=[one]).latest()) == [f"one {n}" for n in range(5)]
    assert texts(weblake.read(tmp_path, keys={"load_date": "2026-11-22"}).latest()) == ["two 1", "two 3"]
    few = weblake.read(tmp_path, columns=["load_date"]).latest()
    assert sorted(few.to_table()["load_date"].to_pylist()) == ["2026-11-21"] * 3 + ["2026-11-22"] * 2
    lazy = weblake.read(tmp_path).latest().to_polars_lazy()
    assert lazy.filter(pl.col("markdown").str.ends_with("1")).select("markdown").collect().to_series().to_list() == [
        "two 1"
    ]
    assert lazy.filter(pl.col("load_date") == "2026-11-21").select(pl.len()).collect().item() == 3
    assert lazy.select("position").head(2).collect().height == 2


def test_a_lazy_frame_sees_at_each_collection_which_versions_its_files_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is read before."""
    dataset = open_dataset(tmp_path)
    land(dataset, "0" * 16, BEGAN, [page(n, text="x" * 1500) for n in range(8)])
    land(dataset, "1" * 16, BEGAN + timedelta(hours=1), [page(n) for n in range(7)])
    calls: list[int] = []
    real = newest.newest_rows
    monkeypatch.setattr(newest, "newest_rows", lambda *args, **more: calls.append(1) or real(*args, **more))
    lazy, reader = weblake.read(tmp_path).latest().to_polars_lazy(), weblake.read(tmp_path).latest().to_reader()
    assert calls == []
    assert (lazy.collect().height, reader.read_all().num_rows, len(calls)) == (8, 8, 2)


def test_a_row_group_without_a_newest_version_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(tmp_path)
    old = land(dataset, "0" * 16, BEGAN, [page(n, text="x" * 1500) for n in range(8)])
    land(dataset, "1" * 16, BEGAN + timedelta(hours=1), [page(n) for n in range(7)])
    groups: list[int] = []
    real = arrow_files._batches

    def noted(file: pq.ParquetFile, columns: list[str], size: int, of: list[int] | None) -> Any:
        if "markdown" in columns:
            groups.extend(of or range(file.num_row_groups))
        return real(file, columns, size, of)

    monkeypatch.setattr(arrow_files, "_batches", noted)
    (found,) = weblake.read(tmp_path, loads=[old]).to_table().filter(pc.field("position") == 7).to_pylist()
    assert len(groups) == 8
    groups.clear()
    assert found in weblake.read(tmp_path).latest().to_table().to_pylist()
    assert groups.count(7) == 1
    assert len(groups) < 8
