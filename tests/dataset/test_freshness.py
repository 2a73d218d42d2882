"""Which pages are fresh is what a slow, obvious implementation finds; little is read for it."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import made_loads
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from versions_lab import BEGAN, land, page

from weblake.dataset import freshness, newest
from weblake.dataset.root import Dataset, open_dataset

KEYS = [f"a.test/{n}" for n in range(6)]
rows = st.lists(
    st.builds(page, st.integers(0, 4), st.sampled_from([200, 200, 399, 400, 404, 500, None]))
    | st.just({"source_url": None, "url": None, "status_code": 200, "markdown": "of no page"}),
    max_size=5,
)


def due(dataset: Dataset, since: datetime | None = None, without: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    found: list[str] = freshness.without_fresh(dataset, pa.array(KEYS), since, without=without).to_pylist()
    return found


@given(
    st.lists(st.tuples(st.integers(0, 5), rows, st.sampled_from([1, 2])), max_size=5),
    st.none() | st.integers(0, 6),
    st.sets(st.integers(0, 4)),
    st.sampled_from([1, 3, 1 << 20]),
)
@settings(max_examples=examples(60))
def test_due_is_what_a_slow_implementation_finds(
    loads: list[tuple[int, list[dict[str, Any]], int]], hours: int | None, without: set[int], at_once: int
) -> None:
    since = None if hours is None else BEGAN + timedelta(hours=hours)
    expected = set(KEYS)
    with tempfile.TemporaryDirectory() as root, mock.patch.object(freshness, "_MIN_ROWS", at_once):
        dataset = open_dataset(root)
        for n, (hour, pages, version) in enumerate(loads):
            began = BEGAN + timedelta(hours=hour)
            land(dataset, made_loads.load_id(n), began, pages, version=version)
            if n not in without and (since is None or began >= since):
                expected -= {
                    str(row["source_url"]).removeprefix("http://")
                    for row in pages
                    if row["status_code"] is not None and row["status_code"] < 400
                }
        found = due(dataset, since, {made_loads.load_id(n) for n in without})
    assert found == [key for key in KEYS if key in expected]


def test_a_load_that_was_replaced_does_not_count(tmp_path: Path) -> None:
    """Also while its file is still there, because the run that replaced it was killed."""
    dataset = open_dataset(tmp_path)
    old = land(dataset, "0" * 16, BEGAN, [page(1)])
    assert due(dataset) == [key for key in KEYS if key != "a.test/1"]
    dataset.ledger.record_retired(old, "1" * 16)
    assert due(dataset) == KEYS


def test_of_a_file_before_the_window_only_the_footer_is_read(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    for n in range(6):
        land(dataset, made_loads.load_id(n), BEGAN + timedelta(days=n), [page(n)])
    with mock.patch.object(newest, "version_batches", wraps=newest.version_batches) as read:
        assert due(dataset, BEGAN + timedelta(days=4)) == KEYS[:4]
    assert sorted(call.args[1].split("/")[1] for call in read.call_args_list) == [
        "load_date=2026-11-25",
        "load_date=2026-11-26",
    ]


def test_no_further_file_is_read_when_all_pages_are_found(tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    for n in range(20):
        land(dataset, made_loads.load_id(n), BEGAN + timedelta(days=n), [page(each) for each in range(6)])
    with (
        mock.patch.object(freshness, "_MIN_ROWS", 1),
        mock.patch.object(pq, "ParquetFile", wraps=pq.ParquetFile) as opened,
    ):
        assert due(dataset) == []
    assert opened.call_count < 20


@pytest.mark.system
def test_a_file_on_s3_costs_at_most_three_requests(s3_root: str) -> None:
    """The file is larger than what is read ahead; its texts are not read."""
    dataset = open_dataset(s3_root)
    texts = [bytes(range(33, 127)).decode() * 40 + str(n) for n in range(3)]
    for n in range(5):
        land(dataset, made_loads.load_id(n), BEGAN + timedelta(days=n), [page(n, text=text) for text in texts])
    import s3fs

    with mock.patch.object(
        s3fs.S3FileSystem, "_call_s3", autospec=True, side_effect=s3fs.S3FileSystem._call_s3
    ) as sent:
        assert due(dataset, BEGAN + timedelta(days=2)) == [KEYS[0], KEYS[1], KEYS[5]]
    assert sent.call_args_list
    assert sum(call.args[1] != "list_objects_v2" for call in sent.call_args_list) <= 15
