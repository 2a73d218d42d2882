"""Tests of the Parquet writer: one complete, checked file or none, bounded memory, failing disks."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from unittest import mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crash_steps import crash

from weblake.arrow import arrays, document_rows, parquet, schemas
from weblake.errors import StorageRefused

WHEN = datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=timezone.utc)
RECEIPT = {"load_id": "0123456789abcdef", "stored": 3, "complete": True}

FULL = {
    "markdown": "# Grüße 😀\x00\n",
    "rawHtml": "<html>" * 1000,
    "links": ["https://a.example/", "https://b.example/"],
    "images": [],
    "json": {"price": 12.5, "deep": [[{}]]},
    "branding": {"logo": "x"},
    "actions": {
        "screenshots": ["s1"],
        "scrapes": [{"url": "u", "html": "<p>"}, {"url": None}],
        "javascriptReturns": [{"type": "number", "value": 1}],
        "pdfs": [],
    },
    "changeTracking": {"previousScrapeAt": "2026-11-20T10:00:00Z", "changeStatus": "new", "diff": {"text": "+"}},
    "warning": "careful",
    "unknown": [1, None],
    "metadata": {
        "title": ["one", "two"],
        "sourceURL": "https://a.example/",
        "url": "https://a.example/x",
        "scrapeId": "8a2f",
        "statusCode": 200,
        "ogLocaleAlternate": ["de_DE", "fr_FR"],
        "concurrencyLimited": False,
        "concurrencyQueueDurationMs": 12.6,
        "og:image": None,
    },
}


def batch_of(*documents: object) -> pa.RecordBatch:
    batches = document_rows.DocumentBatches("0123456789abcdef", "job-1", "crawl", WHEN)
    for document in documents:
        parsed = batches.parse(json.dumps(document).encode())
        assert parsed is not None
        batches.append(parsed)
    return batches.flush()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with parquet.ParquetFile(tmp_path / "x.parquet", schemas.DOCUMENTS) as writer:
        writer.write(batch_of(FULL, {}, {"markdown": "two", "metadata": {}}))
        return writer.close(json.dumps(RECEIPT).encode()).path


def read_duckdb(path: Path) -> list[dict]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        relation = connection.sql(f"SELECT * FROM '{path}'")
        return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def receipt_in(path: Path) -> dict[str, object] | None:
    with path.open("rb") as file:
        return parquet.read_receipt(file)


def test_the_footer_names_load_and_version(file: Path) -> None:
    assert receipt_in(file) == RECEIPT
    assert pq.read_metadata(file).metadata[b"weblake.schema_version"] == b"2"
    assert pq.read_schema(file).equals(schemas.DOCUMENTS)


def test_bodies_have_neither_dictionary_nor_statistics(file: Path) -> None:
    group = pq.read_metadata(file).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    for name in ("markdown", "raw_html", "json", "extra", "metadata.key_value.value", "links.list.element"):
        assert not columns[name].has_dictionary_page, name
        assert columns[name].statistics is None, name
    for name in ("load_id", "job_kind", "status_code", "content_type"):
        assert columns[name].has_dictionary_page, name
    for name in ("source_url", "position", "status_code", "loaded_at"):
        assert columns[name].statistics.has_min_max, name


def test_a_file_without_rows_or_receipt_is_a_file(tmp_path: Path) -> None:
    with parquet.ParquetFile(tmp_path / "x.parquet", schemas.PAGE_ERRORS) as writer:
        written = writer.close()
    assert written == parquet.Written(tmp_path / "x.parquet", 0, written.path.stat().st_size)
    assert receipt_in(written.path) is None
    assert pq.read_table(written.path).schema.equals(schemas.PAGE_ERRORS)
    assert read_duckdb(written.path) == []


def test_small_tables_are_checked_files_too(tmp_path: Path) -> None:
    rows = [{"id": str(number), "created_at": WHEN, "endpoint": "crawl"} for number in range(5)]
    table = arrays.table(schemas.ACTIVITY, rows)
    written = parquet.write_table(tmp_path / "a.parquet", table, b'{"a":1}')
    assert (written.rows, written.bytes) == (5, written.path.stat().st_size)
    assert pq.read_table(written.path).equals(table)
    assert receipt_in(written.path) == {"a": 1}


# --- row groups ---


def groups_of(path: Path) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]


def write_sized(path: Path, batches: list[list[int]], group_bytes: int = 100_000) -> list[int]:
    """Writes a batch for each list of body sizes and returns the rows of each row group."""
    with parquet.ParquetFile(path, schemas.DOCUMENTS, group_bytes=group_bytes) as writer:
        for sizes in batches:
            writer.write(batch_of(*({"markdown": "x" * size} for size in sizes)))
        writer.close()
    lengths = [len(text) for text in pq.read_table(path)["markdown"].to_pylist()]
    assert lengths == [size for sizes in batches for size in sizes]
    return groups_of(path)


def test_small_batches_are_gathered(tmp_path: Path) -> None:
    groups = write_sized(tmp_path / "x.parquet", [[1000]] * 300)
    assert len(groups) <= 5
    assert sum(groups) == 300


def test_a_group_is_closed_with_the_batch_that_fills_it(tmp_path: Path) -> None:
    assert write_sized(tmp_path / "x.parquet", [[1000], [500_000], [1000]]) == [2, 1]


def test_a_large_table_is_cut_into_groups(tmp_path: Path) -> None:
    table = arrays.table(schemas.ACTIVITY, [{"target": "x" * 500}] * (parquet.TABLE_ROWS + 5))
    assert groups_of(parquet.write_table(tmp_path / "x.parquet", table).path) == [parquet.TABLE_ROWS, 5]


# --- what goes wrong ---


def test_an_exception_leaves_no_file(tmp_path: Path) -> None:
    def interrupted() -> None:
        with parquet.ParquetFile(tmp_path / "x.parquet", schemas.DOCUMENTS, group_bytes=1) as writer:
            writer.write(batch_of(FULL))
            assert (tmp_path / "x.parquet").stat().st_size > 0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_a_file_is_closed_leaves_no_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(parquet.ParquetFile, "_check", crash)
    with pytest.raises(KeyboardInterrupt):
        parquet.write_table(tmp_path / "x.parquet", pa.Table.from_batches([batch_of(FULL)]))
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_takes_a_part_of_the_bytes_is_continued(tmp_path: Path, monkeypatch) -> None:
    """As Linux does with 2 GB, and some network file systems with less."""
    real = Path.open

    def opened(path: Path, mode: str = "r", *args, **more):
        file = real(path, mode, *args, **more)
        if mode != "xb":
            return file
        write = file.write
        return mock.Mock(wraps=file, write=lambda data: write(data[:100]))

    monkeypatch.setattr(Path, "open", opened)
    assert write_sized(tmp_path / "x.parquet", [[1000, 500]]) == [2]


def test_a_writer_that_is_not_closed_leaves_no_file(tmp_path: Path) -> None:
    with parquet.ParquetFile(tmp_path / "x.parquet", schemas.DOCUMENTS) as writer:
        writer.write(batch_of(FULL))
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(StorageRefused, match="there already"):
        parquet.ParquetFile(file, schemas.DOCUMENTS)
    assert file.read_bytes() == before


def test_a_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused) as error:
        parquet.ParquetFile(tmp_path / "no" / "x.parquet", schemas.DOCUMENTS)
    assert error.value.hint


def before_check(monkeypatch, damage: Callable[[Path], object]) -> None:
    check = parquet.ParquetFile._check

    def damaged(file: parquet.ParquetFile, receipt: bytes | None) -> None:
        damage(file.path)
        check(file, receipt)

    monkeypatch.setattr(parquet.ParquetFile, "_check", damaged)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"PAR1" + data[4:-8] + b"12345678",
    ],
    ids=["last byte", "half", "empty", "footer"],
)
def test_a_file_that_the_disk_damaged_is_refused_and_removed(tmp_path: Path, monkeypatch, damage) -> None:
    before_check(monkeypatch, lambda path: path.write_bytes(damage(path.read_bytes())))
    with pytest.raises(StorageRefused) as error:
        parquet.write_table(tmp_path / "x.parquet", pa.Table.from_batches([batch_of(FULL)]), b"{}")
    assert "x.parquet" in error.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_other_rows_than_were_written_is_refused(tmp_path: Path, monkeypatch) -> None:
    parquet.write_table(tmp_path / "other.parquet", arrays.table(schemas.ACTIVITY, [{}, {}]), b"{}")
    other = (tmp_path / "other.parquet").read_bytes()
    before_check(monkeypatch, lambda path: path.write_bytes(other))
    with pytest.raises(StorageRefused, match="2 rows where 1"):
        parquet.write_table(tmp_path / "x.parquet", arrays.table(schemas.ACTIVITY, [{}]))
    with pytest.raises(StorageRefused, match="schema"):
        parquet.write_table(tmp_path / "x.parquet", arrays.table(schemas.PAGE_ERRORS, [{}]))
    assert [path.name for path in tmp_path.iterdir()] == ["other.parquet"]


@pytest.mark.parametrize("receipt", [b"", b"{", b"[]", b"\xff"])
def test_a_file_whose_receipt_cannot_be_read_back_is_refused(tmp_path: Path, receipt: bytes) -> None:
    with pytest.raises(StorageRefused, match="receipt"):
        parquet.write_table(tmp_path / "x.parquet", arrays.table(schemas.ACTIVITY, []), receipt)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_not_parquet_has_no_receipt(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(StorageRefused):
        receipt_in(tmp_path / "x.parquet")
    with pytest.raises(StorageRefused):
        parquet.read_receipt(io.BytesIO(b"nothing"))


def test_a_file_that_is_not_parquet_or_lacks_a_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageRefused, match=r"x\.parquet"):
        parquet.count_rows(io.BytesIO(b"nothing"), "x.parquet")
    with pytest.raises(StorageRefused, match=r"x\.parquet"):
        parquet.read_rows(io.BytesIO(b"nothing"), "x.parquet", schemas.ACTIVITY)
    other = io.BytesIO()
    pq.write_table(pa.table({"id": ["1"]}), other)
    assert parquet.count_rows(other, "x.parquet") == 1
    with pytest.raises(StorageRefused, match=r"x\.parquet"):
        parquet.read_rows(other, "x.parquet", schemas.ACTIVITY)


FULL_DISK = """
import json, os, resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from weblake.arrow import arrays, document_rows, parquet, schemas
from weblake.errors import StorageRefused
from datetime import datetime, timezone
limit = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
path = Path(sys.argv[1])
try:
    with parquet.ParquetFile(path, schemas.DOCUMENTS, group_bytes=100_000) as writer:
        for _ in range(3):
            batches = document_rows.DocumentBatches("l", "j", "crawl", datetime.now(timezone.utc))
            batches.append(batches.parse(json.dumps({"markdown": os.urandom(100_000).hex()}).encode()))
            writer.write(batches.flush())
        writer.close(b"{}")
except StorageRefused as error:
    print("refused", error.hint != "", path.exists())
else:
    print("written", True, path.exists())
"""


@pytest.mark.parametrize("limit", [0, 150_000, 305_000])
def test_a_full_disk_is_an_error_and_leaves_no_file(tmp_path: Path, limit: int) -> None:
    """RLIMIT_FSIZE refuses writes as a full disk does, at each stage: the first bytes, a row group, the footer."""
    command = [sys.executable, "-c", FULL_DISK, tmp_path / "x.parquet", "src", str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["refused", "True", "False"], done.stdout + done.stderr


MEMORY = """
import json, os, random, resource, sys, tempfile
from datetime import datetime, timezone
from pathlib import Path
import pyarrow as pa
from weblake.api import response_json as wire
from weblake.arrow import arrays, document_rows, parquet, schemas
random.seed(7)
words = [random.randbytes(4).hex() for _ in range(4000)]
document = lambda: {"markdown": " ".join(random.choices(words, k=5000)), "metadata": {"title": "t"}}
body = json.dumps({"status": "completed", "data": [document() for _ in range(100)]}).encode()
batches = document_rows.DocumentBatches("l", "j", "crawl", datetime.now(timezone.utc))
with parquet.ParquetFile(Path(sys.argv[1]), schemas.DOCUMENTS) as writer:
    for _ in range(int(sys.argv[2])):
        for raw in wire.read_chunk(bytes(body)).documents:
            batches.append(batches.parse(raw))
        writer.write(batches.flush())
    assert writer.close(b"{}").rows == 100 * int(sys.argv[2])
print(pa.default_memory_pool().max_memory(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.system
def test_memory_does_not_grow_with_the_job(tmp_path: Path) -> None:
    """Ten chunks of 4.5 MB, then fifty: Arrow's own peak and the process's.

    How far the thread that writes lags behind decides about the peak too: what grows with the job grows fivefold.
    """
    peaks = []
    for chunks in (10, 50):
        command = [sys.executable, "-c", textwrap.dedent(MEMORY), tmp_path / f"{chunks}.parquet", str(chunks)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        peaks.append([int(number) for number in done.stdout.split()])
    (arrow, rss), (arrow_later, rss_later) = peaks
    assert arrow_later <= arrow * 2
    assert rss_later <= rss * 1.5
    assert arrow_later < 6 * parquet.GROUP_BYTES
