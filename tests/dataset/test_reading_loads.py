"""Tests of reading landed data by load and by path key, completely and lazily, from every kind of root."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import weblake
from weblake.arrow import arrays, parquet, schemas
from weblake.dataset import layout, lazy_frames
from weblake.dataset.layout import Layout
from weblake.errors import InvalidOption, StorageRefused
from weblake.storage import Storage, open_storage

OLD, NEW = "0" * 16, "1" * 16
WHEN = datetime(2026, 11, 21, tzinfo=timezone.utc)
ROWS_OF_A_GROUP = 10


@pytest.fixture(scope="module", params=["local", pytest.param("s3", marks=pytest.mark.system), "memory"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/lake"
    if request.param == "local":
        return str(tmp_path_factory.mktemp("root") / "lake")
    return f"{request.getfixturevalue('module_s3_root')}-{uuid.uuid4().hex}"


def put(storage: Storage, name: str, schema: pa.Schema, rows: list[dict[str, object]], group: int = 1 << 20) -> None:
    with storage.scratch() as scratch, parquet.ParquetFile(scratch / "x", schema, group_bytes=group) as file:
        for first in range(0, len(rows), ROWS_OF_A_GROUP):
            file.write(arrays.record_batch(schema, rows[first : first + ROWS_OF_A_GROUP]))
        assert storage.publish(file.close(b"{}").path, name)


def document(load_id: str, n: int) -> dict[str, object]:
    return {
        "load_id": load_id,
        "position": n,
        "url": f"https://a.test/{n}",
        "status_code": (200, 404, None)[n % 3],
        "markdown": f"{load_id} {n} " + "ä" * 500,
        "links": [f"https://a.test/{n + 1}"],
        "metadata": {"n": str(n)},
        "loaded_at": WHEN,
    }


@pytest.fixture(scope="module")
def lake(root: str) -> str:
    """Return a root that tests only read: two loads under path keys like numbers, two months of two usage reports."""
    storage = open_storage(root)
    Layout(storage).claim("documents", ("shop", "day"))
    for load_id, shop, count in ((OLD, "007", 25), (NEW, "8=ü", 5)):
        name = layout.load_path("documents", {"shop": shop, "day": "2026-11-21"}, WHEN, load_id)
        put(storage, name, schemas.DOCUMENTS, [document(load_id, n) for n in range(count)], group=1)
    for report in ("credits", "tokens"):
        for month in ("2026-10", "2026-11"):
            put(storage, layout.usage_path(report, month), schemas.USAGE_PERIODS, [{"total_credits": 1.0}])
    return root


FORMS: dict[str, Callable[[weblake.Reading], pa.Table]] = {
    "batches": lambda reading: pa.Table.from_batches(list(reading.to_batches()), schema=reading.schema()),
    "reader": lambda reading: reading.to_reader().read_all(),
    "table": lambda reading: reading.to_table(),
    "dataset": lambda reading: reading.to_dataset().to_table(),
    "polars": lambda reading: reading.to_polars().to_arrow(),
    "lazy": lambda reading: reading.to_polars_lazy().collect().to_arrow(),
    "streamed": lambda reading: reading.to_polars_lazy().collect(engine="streaming").to_arrow(),
}


def rows(table: pa.Table) -> list[dict[str, object]]:
    """Rows as every library means them: Polars has maps as lists of structs."""
    found: list[dict[str, object]] = table.to_pylist(maps_as_pydicts="strict")
    for row in found:
        pairs = row["metadata"]
        if isinstance(pairs, list):
            row["metadata"] = {pair["key"]: pair["value"] for pair in pairs}
    return found


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_rows_and_columns(lake: str, form: str) -> None:
    expected = [
        dict.fromkeys(schemas.DOCUMENTS.names) | document(load, n) | {"shop": shop, "day": "2026-11-21"}
        for load, shop, count in ((OLD, "007", 25), (NEW, "8=ü", 5))
        for n in range(count)
    ]
    reading = weblake.read(lake)
    found = FORMS[form](reading)
    assert found.column_names == reading.schema().names == [*schemas.DOCUMENTS.names, "shop", "day"]
    assert rows(found) == expected
    if form not in ("polars", "lazy", "streamed"):
        assert found.schema.equals(reading.schema())


@pytest.mark.parametrize("form", FORMS)
def test_loads_keys_and_columns_select(lake: str, form: str) -> None:
    columns = ["day", "position", "shop"]
    one = FORMS[form](weblake.read(lake, loads=[NEW, "2" * 16], columns=columns))
    assert one.column_names == columns
    assert one.to_pylist() == [{"day": "2026-11-21", "position": n, "shop": "8=ü"} for n in range(5)]
    seven = weblake.read(lake, keys={"shop": ["007", "008"]}, columns=["shop"])
    assert FORMS[form](seven).to_pylist() == [{"shop": "007"}] * 25
    assert FORMS[form](weblake.read(lake, loads=(), columns=columns)).to_pylist() == []
    assert FORMS[form](weblake.read(lake, loads=[OLD], keys={"shop": "8=ü"})).num_rows == 0
    empty = FORMS[form](weblake.read(lake, "page_errors"))
    assert empty.num_rows == 0
    assert empty.column_names == [*schemas.PAGE_ERRORS.names, "shop", "day"]
    usage = weblake.read(lake, "usage_periods", keys={"report": "credits", "period": ["2026-11", "2026-12"]})
    assert usage.files() == ["usage_periods/report=credits/period=2026-11/usage.parquet"]
    assert FORMS[form](usage).select(["total_credits", "report", "period"]).to_pylist() == [
        {"total_credits": 1.0, "report": "credits", "period": "2026-11"}
    ]


@pytest.mark.system
def test_a_polars_filter_gives_the_same_rows_as_on_a_frame(lake: str) -> None:
    reading = weblake.read(lake)
    whole, lazy = reading.to_polars(), reading.to_polars_lazy()
    status, n = pl.col("status_code"), pl.col("position")
    for wanted in (
        status == 404,
        ~status.is_in([200]),  # null stays null, and is no match
        status.is_null() & (n > 3),
        pl.col("shop") == "007",
        (pl.col("shop") == "8=ü") & (n < 3),
        pl.col("day").str.ends_with("-22"),
        pl.col("markdown").str.contains(f"{NEW} 4"),
        n.is_between(11, 19) | (pl.col("load_id") == NEW),
        (n > 3) & (n < 9),  # one column twice
        pl.col("url").str.to_lowercase() == pl.col("url"),
        pl.lit(value=False),
        pl.lit(value=True),
    ):
        assert lazy.filter(wanted).collect().equals(whole.filter(wanted)), wanted
        assert lazy.filter(wanted).select("url").collect().equals(whole.filter(wanted).select("url")), wanted
        assert lazy.filter(wanted).select(pl.len()).collect().item() == whole.filter(wanted).height, wanted
        assert lazy.filter(wanted).head(2).collect().equals(whole.filter(wanted).head(2)), wanted
        assert lazy.head(7).filter(wanted).collect().equals(whole.head(7).filter(wanted)), wanted
        numbers = lambda frame: frame.select(pl.int_range(pl.len()))  # noqa: E731
        assert numbers(lazy.filter(wanted)).collect().equals(numbers(whole.filter(wanted))), wanted
    for count in (0, 1, 26, 99):
        assert lazy.head(count).collect().equals(whole.head(count))
    assert lazy.select(pl.len()).collect().item() == 30
    assert lazy.group_by("shop").len().sort("shop").collect().rows() == [("007", 25), ("8=ü", 5)]


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_polars_query_that_uses_no_column_has_all_rows(lake: str, engine: Literal["in-memory", "streaming"]) -> None:
    for columns in (None, ["shop"], ["position", "markdown"]):
        lazy = weblake.read(lake, columns=columns).to_polars_lazy()
        for frame, rows_there in ((lazy, 30), (lazy.head(26), 26), (lazy.filter(pl.lit(value=True)), 30)):
            numbered = frame.with_row_index("number").select("number").collect(engine=engine)
            assert numbered["number"].to_list() == list(range(rows_there))


def test_polars_gets_columns_in_the_order_of_the_schema(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[Callable[..., Iterator[pl.DataFrame]]] = []
    monkeypatch.setattr(lazy_frames, "register_io_source", lambda source, **_: sources.append(source))
    weblake.read(lake).to_polars_lazy()
    for predicate, limit in ((None, None), (pl.col("position") < 9, None), (pl.col("position") < 9, 9)):
        frames = list(sources[0](["url", "position"], predicate, limit, None))  # as the engine of Polars 1.30 asks
        assert {tuple(frame.columns) for frame in frames} == {("position", "url")}


def test_files_that_a_filter_excludes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = open_storage(tmp_path)
    for load_id, day in ((OLD, "2026-11-20"), (NEW, "2026-11-21")):
        name = f"documents/load_date={day}/{load_id}-00000.parquet"
        put(storage, name, schemas.DOCUMENTS, [document(load_id, n) for n in range(25)], group=1)
    opened: list[str] = []
    read: list[tuple[list[int] | None, tuple[str, ...]]] = []
    kind = type(storage)
    open_input, batches, one = kind.open_input, pq.ParquetFile.iter_batches, pq.ParquetFile.read_row_group

    def watch_open(self: Storage, name: str) -> object:
        opened.append(name)
        return open_input(self, name)  # type: ignore[arg-type]

    def watch_read(self: pq.ParquetFile, **how: object) -> object:
        read.append((how.get("row_groups"), tuple(how["columns"])))  # type: ignore[arg-type]
        return batches(self, **how)

    def watch_one(self: pq.ParquetFile, group: int, **how: object) -> object:
        read.append(([group], tuple(how["columns"])))  # type: ignore[arg-type]
        return one(self, group, **how)

    monkeypatch.setattr(kind, "open_input", watch_open)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", watch_read)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", watch_one)
    lazy = weblake.read(tmp_path).to_polars_lazy()
    assert opened == read == []
    wanted = (pl.col("load_date") == "2026-11-21") & (pl.col("position") == 3)
    assert lazy.filter(wanted).select("markdown").collect().item().startswith(f"{NEW} 3 ")
    groups = pq.ParquetFile(next(tmp_path.glob(f"documents/*/{NEW}*"))).num_row_groups
    bodies = [groups for groups, columns in read if "markdown" in columns]
    assert groups > 1
    assert len(bodies) == 1, "the text of one row group"
    assert {name for _, columns in read for name in columns} == {"position", "markdown"}

    opened.clear()
    assert lazy.filter(pl.col("load_date") == "2026-11-21").select(pl.len()).collect().item() == 25
    assert [name for name in opened if OLD in name] == []


def test_a_dataset_pushes_path_keys_down(lake: str) -> None:
    data = weblake.read(lake).to_dataset()
    kept = [fragment.path for fragment in data.get_fragments(filter=ds.field("shop") == "007")]
    assert [OLD in path for path in kept] == [True]
    assert data.to_table(columns=["position"], filter=ds.field("position") > 22)["position"].to_pylist() == [23, 24]
    assert data.count_rows() == weblake.read(lake).count_rows() == 30
    assert weblake.read(lake, loads=[NEW]).count_rows() == 5
    few = weblake.read(lake, columns=["position"]).to_dataset()
    assert few.schema.names == ["position"]
    assert few.count_rows() == 30


def test_a_lazy_reader_reports_a_file_that_was_removed() -> None:
    storage = open_storage(f"memory://{uuid.uuid4().hex}/lake")
    name = layout.load_path("documents", None, WHEN, OLD)
    put(storage, name, schemas.DOCUMENTS, [document(OLD, 0)])
    reading = weblake.read(storage.url)
    lazy, reader, data = reading.to_polars_lazy(), reading.to_reader(), reading.to_dataset()
    storage.delete(name)
    for read in (lazy.collect, reader.read_all, data.to_table):
        with pytest.raises(StorageRefused, match=f"{OLD}.* is gone .*Read the table again"):
            read()


def test_a_column_that_an_older_file_lacks_is_null(tmp_path: Path) -> None:
    path = tmp_path / layout.load_path("documents", None, WHEN, OLD)
    path.parent.mkdir(parents=True)
    older = arrays.table(schemas.DOCUMENTS, [document(OLD, 1)]).drop_columns(["status_code", "markdown"])
    pq.write_table(older.append_column("later", pa.array([1])), path)
    for form, read in FORMS.items():
        found = read(weblake.read(tmp_path, columns=["url", "status_code", "markdown", "load_date"]))
        assert found.to_pylist() == [
            {"url": "https://a.test/1", "status_code": None, "markdown": None, "load_date": "2026-11-21"}
        ], form
    lazy = weblake.read(tmp_path).to_polars_lazy()
    assert lazy.filter(pl.col("status_code").is_null()).select("url").collect().item() == "https://a.test/1"
    assert lazy.filter(pl.col("status_code") == 1).collect().is_empty()


def test_the_computed_columns_of_a_file_of_version_1_are_computed_as_they_are_read(tmp_path: Path) -> None:
    whole = [document(OLD, n) | {"source_url": f"http://www.A.test/{n}/"} for n in range(3)]
    whole[1] |= {"source_url": None, "markdown": None, "html": "<p>", "json": "{}"}
    whole[2] |= {"url": None, "source_url": None, "markdown": None}
    path = tmp_path / layout.load_path("documents", None, WHEN, OLD)
    path.parent.mkdir(parents=True)
    pq.write_table(arrays.table(schemas.DOCUMENTS, whole).drop_columns(["page_key", "content_sha256"]), path)
    put(open_storage(tmp_path), layout.load_path("documents", None, WHEN, NEW), schemas.DOCUMENTS, [{"page_key": "b"}])
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in (str(whole[0]["markdown"]), "<p>")]
    expected = {"page_key": ["a.test/0", "a.test/1", None, "b"], "content_sha256": [*hashes, None, None]}
    for form in FORMS.keys() - {"dataset"}:
        assert FORMS[form](weblake.read(tmp_path, columns=list(expected))).to_pydict() == expected, form
    lazy = weblake.read(tmp_path).to_polars_lazy()
    found = lazy.filter(pl.col("page_key") == "a.test/1").select("position", "content_sha256", "page_key")
    assert found.collect().rows() == [(1, hashes[1], "a.test/1")]
    assert lazy.select("content_sha256").head(2).collect().to_series().to_list() == hashes


@pytest.mark.system
def test_storage_options_reach_the_file_system(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(open_storage(s3_root), layout.load_path("documents", None, WHEN, OLD), schemas.DOCUMENTS, [document(OLD, 0)])
    options = {
        "key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret": os.environ["AWS_SECRET_ACCESS_KEY"],
        "endpoint_url": os.environ["AWS_ENDPOINT_URL"],
    }
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    reading = weblake.read(s3_root, storage_options=options, columns=["position"])
    for form, read in FORMS.items():
        assert read(reading).to_pylist() == [{"position": 0}], form


def test_contradictory_arguments_are_refused(tmp_path: Path) -> None:
    put(open_storage(tmp_path), layout.load_path("documents", None, WHEN, OLD), schemas.DOCUMENTS, [document(OLD, 0)])
    with pytest.raises(InvalidOption, match="There is no table 'pages'"):
        weblake.read(tmp_path, "pages")
    with pytest.raises(InvalidOption, match="not a load id"):
        weblake.read(tmp_path, loads=["../x"])
    with pytest.raises(InvalidOption, match="activity holds no loads"):
        weblake.read(tmp_path, "activity", loads=[OLD])
    with pytest.raises(InvalidOption, match="No column"):
        weblake.read(tmp_path, columns=[])
    with pytest.raises(StorageRefused):
        weblake.read("ftp://a.test/x")
    for read in FORMS.values():
        with pytest.raises(InvalidOption, match=r"no path key 'period'\. Path keys: load_date"):
            read(weblake.read(tmp_path, keys={"period": "2026-11"}))
        with pytest.raises(InvalidOption, match="no column 'nonsense'"):
            read(weblake.read(tmp_path, columns=["url", "nonsense"]))
    assert weblake.read(tmp_path, loads=OLD, columns="url").to_table().to_pylist() == [{"url": "https://a.test/0"}]
