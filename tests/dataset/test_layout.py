from __future__ import annotations

import os
import threading
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from weblake.dataset import layout
from weblake.dataset.layout import Layout, activity_path, check_partition, keys_of, load_path, refused_path, usage_path
from weblake.errors import InvalidOption, StorageRefused
from weblake.storage import Storage, open_storage

LOAD = "0123456789abcdef"
NOON = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
ODD = [
    *("a b", " lead", "trail ", "a=b", "a/b", "a\\b", "50%", "%41", "50%25", "a+b", "a:b", "x?y", "[x]", "{a,b}", "*"),
    *("a&b", "a'b", 'a"b', "a#b", "..", "a;b", "|", "<>", "~", "$x", "@", "(", "!", "`", "é", "e\u0301", "日本", "𝒳"),
    *("2026-11-21", "007", "1e5", "true", "null", "NULL", "None", "nan"),
]


def test_paths() -> None:
    assert load_path("documents", None, NOON, LOAD) == f"documents/load_date=2026-11-21/{LOAD}-00000.parquet"
    assert load_path("page_errors", {}, NOON, LOAD) == f"page_errors/load_date=2026-11-21/{LOAD}-00000.parquet"
    given = {"site": "a/b", "ds": "2026-11-01"}
    assert load_path("documents", given, NOON, LOAD) == f"documents/site=a%2Fb/ds=2026-11-01/{LOAD}-00000.parquet"
    assert keys_of(load_path("documents", given, NOON, LOAD)) == given
    assert usage_path("credits_by_key", "2026-11") == "usage_periods/report=credits_by_key/period=2026-11/usage.parquet"
    assert activity_path("2026-11-21") == activity_path(date(2026, 11, 21))
    assert activity_path(date(2026, 11, 21)) == "activity/activity_date=2026-11-21/activity.parquet"
    assert refused_path("documents", LOAD) == f"_weblake/refused/{LOAD}.documents.parquet"


def test_load_date_is_the_utc_date_of_the_intent() -> None:
    late = datetime(2026, 11, 21, 23, 30, tzinfo=timezone(timedelta(hours=-5)))
    assert "load_date=2026-11-22/" in load_path("documents", None, late, LOAD)


@pytest.mark.parametrize(
    "call",
    [
        lambda: load_path("documents", None, NOON, "0123456789ABCDEF"),
        lambda: load_path("documents", None, NOON, "../../etc/passwd"),
        lambda: load_path("activity", None, NOON, LOAD),
        lambda: refused_path("x/../y", LOAD),
        lambda: usage_path("money", "2026-11"),
        lambda: usage_path("credits", "2026-13"),
        lambda: usage_path("credits", "2026-1/../x"),
        lambda: activity_path("yesterday"),
    ],
)
def test_an_invalid_path_is_refused(call: object) -> None:
    with pytest.raises(InvalidOption):
        call()  # type: ignore[operator]


def test_column_names_are_those_of_the_schemas() -> None:
    schemas = pytest.importorskip("weblake.arrow.schemas")
    assert tuple(schemas.DOCUMENTS.names) == layout.DOCUMENTS_COLUMNS
    assert tuple(schemas.PAGE_ERRORS.names) == layout.PAGE_ERRORS_COLUMNS
    for table, keys in layout.FIXED_KEYS.items():
        assert not set(keys) & set(getattr(schemas, table.upper()).names)


@pytest.mark.parametrize(
    "key", ["", "Upper", "_hidden", "1st", "a-b", "a b", "a=b", "a/b", "ü", "url", "load_id", "outcome", 7]
)
def test_path_keys_that_a_reader_cannot_read_are_refused(key: str) -> None:
    with pytest.raises(InvalidOption):
        check_partition({key: "x"})


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x" * 201,
        "日" * 90,
        "/" * 90,
        "a\nb",
        "a\0b",
        "\x7f",
        "\ud800",
        "\u2028",
        "__HIVE_DEFAULT_PARTITION__",
        7,
        None,
    ],
)
def test_partition_values_that_do_not_round_trip_are_refused(value: str) -> None:
    with pytest.raises(InvalidOption, match="'site'"):
        check_partition({"site": value})


def test_the_longest_values_and_folder_names_are_allowed() -> None:
    for key, value in (("site", "x" * 200), ("k", "/" * 84 + "x"), ("k", "x")):
        check_partition({key: value})
    for key, value in (("site", "x" * 201), ("k", "/" * 84 + "xx")):
        with pytest.raises(InvalidOption):
            check_partition({key: value})


def _read_back(root: Path, value: str) -> dict[str, object]:
    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    name = load_path("documents", {"k": value}, NOON, LOAD)
    (root / name).parent.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), root / name)
    hive = ds.partitioning(pa.schema([("k", pa.string())]), flavor="hive")
    glob = f"{root}/documents/**/*.parquet".replace("'", "''")
    query = f"select k from read_parquet('{glob}', hive_partitioning=true, hive_types_autocast=false)"
    return {
        "pyarrow": ds.dataset(root / "documents", partitioning=hive).to_table()["k"][0].as_py(),
        "duckdb": duckdb.sql(query).fetchall()[0][0],
        "polars": pl.read_parquet(f"{root}/documents", hive_partitioning=True, hive_schema={"k": pl.String})["k"][0],
        "weblake": keys_of(name)["k"],
    }


@pytest.mark.parametrize("value", ODD)
def test_unusual_partition_values_round_trip_in_every_reader(tmp_path: Path, value: str) -> None:
    assert _read_back(tmp_path, value) == dict.fromkeys(("pyarrow", "duckdb", "polars", "weblake"), value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=60))
@example("%2F..%2F")
def test_any_allowed_partition_value_round_trips(tmp_path: Path, value: str) -> None:
    try:
        check_partition({"k": value})
    except InvalidOption:
        return
    root = tmp_path / os.urandom(8).hex()
    root.mkdir()
    assert _read_back(root, value) == dict.fromkeys(("pyarrow", "duckdb", "polars", "weblake"), value)


def test_first_load_fixes_the_keys_of_both_tables(any_root: str) -> None:
    ours = Layout(open_storage(any_root))
    assert ours.read() is None
    ours.claim("documents", ("site", "ds"))
    ours.claim("page_errors", ["site", "ds"])
    again = Layout(open_storage(any_root))
    again.claim("documents", ("site", "ds"))
    for keys in (("load_date",), ("site",), ("ds", "site"), ()):
        with pytest.raises(StorageRefused, match="partitioned by site, ds") as caught:
            again.claim("page_errors", keys)
        assert "another root" in caught.value.hint
    record = again.read()
    assert record is not None
    assert record.tables == {
        "documents": ("site", "ds"),
        "page_errors": ("site", "ds"),
        "usage_periods": ("report", "period"),
        "activity": ("activity_date",),
    }


class _AllAtOnce:
    """A storage whose first read waits until everybody has read: nobody sees what another writes after it."""

    def __init__(self, storage: Storage, gate: threading.Barrier) -> None:
        self._storage, self._gate, self._passed = storage, gate, False

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def read(self, name: str) -> bytes | None:
        found = self._storage.read(name)
        if not self._passed:
            self._passed = True
            self._gate.wait(30)
        return found


def test_of_two_first_loads_with_different_keys_one_is_refused(any_root: str) -> None:
    gate = threading.Barrier(6)
    won, refused = [], []

    def first_load(key: str) -> None:
        mine = Layout(_AllAtOnce(open_storage(any_root), gate))  # type: ignore[arg-type]
        try:
            mine.claim("documents", (key,))
            won.append(key)
        except StorageRefused:
            refused.append(key)

    threads = [threading.Thread(target=first_load, args=(key,)) for key in ("a", "a", "b", "b", "c", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 2
    assert won[0] == won[1]
    assert len(refused) == 4


@pytest.mark.parametrize("data", [b"", b"{", b"null", b'{"version":2,"tables":{}}', b'{"version":1}', b"\xff\xfe"])
def test_a_damaged_layout_is_never_taken_for_a_new_root(local_root: str, data: bytes) -> None:
    storage = open_storage(local_root)
    storage.create(layout.LAYOUT, data)
    with pytest.raises(StorageRefused, match=r"layout\.json"):
        Layout(storage).claim("documents", ("load_date",))
    assert storage.read(layout.LAYOUT) == data
