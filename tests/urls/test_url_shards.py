"""Tests of the shards of a list of URLs: together they are the list, and each reads only its own part."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import random
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from weblake.errors import FeatureMissing, FixRequest, InvalidOption, StorageRefused
from weblake.loads.urls import files, lists
from weblake.loads.urls.lists import read_urls
from weblake.loads.urls.shards import UrlShard, read_shard, url_shards

URLS = [f"https://example.org/{n}" for n in range(10)]


# --- what a list holds, said a second time and simply ------------------------------------------------------------


def plain_text(content: bytes) -> list[str]:
    lines = (line.strip() for line in content.decode("utf-8-sig").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def plain_csv(content: bytes, column: str) -> list[str]:
    rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig"), newline=""))
    return [text for row in rows if (text := (row[column] or "").strip())]


def together(path: Any, column: str | None = None, **sizes: Any) -> list[str]:
    shards = url_shards(path, column=column, max_shards=10**6, **sizes)
    read = [read_shard(cast(UrlShard, json.loads(json.dumps(shard)))) for shard in shards]
    assert [len(part) for part in read] == [shard["count"] for shard in shards]
    assert [shard["index"] for shard in shards] == list(range(len(shards)))
    assert {shard["of"] for shard in shards} == {len(shards)}
    assert [shard["first"] for shard in shards] == [sum(map(len, read[:n])) for n in range(len(read))]
    return [url for part in read for url in part]


SIZES = st.integers(1, 7).map(lambda n: {"per_shard": n}) | st.integers(1, 7).map(lambda n: {"shards": n})
BLOCKS = st.sampled_from([1, 2, 3, 7, 64])
ODD = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150))
BREAKS = st.sampled_from(["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
WORDS = st.sampled_from(["", " ", "#", "# no", "https://a.example/ü?q=1", "https://b.example/", "\ufeff", "日本"])


@ODD
@given(lines=st.lists(st.tuples(WORDS, WORDS, BREAKS), max_size=25), bom=st.booleans(), sizes=SIZES, block=BLOCKS)
def test_the_shards_of_a_text_file_are_the_list(
    tmp_path: Path, lines: list[tuple[str, str, str]], bom: bool, sizes: dict[str, Any], block: int
) -> None:
    content = "".join(f"{one}{two}{end}" for one, two, end in lines) + "https://last.example/no-newline"
    file = tmp_path / "list.txt"
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "BLOCK_BYTES", block)
        assert together(file, **sizes) == read_urls(file) == plain_text(file.read_bytes())


FIELDS = st.sampled_from(
    ["", " ", "https://a.example/ü", 'https://b.example/"q"', "x,y", "l1\nl2", "l1\r\nl2", "a\rb", "#c"]
)


@ODD
@given(
    rows=st.lists(st.lists(FIELDS, max_size=4), max_size=20),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    bom=st.booleans(),
    tail=st.booleans(),
    sizes=SIZES,
    block=BLOCKS,
)
def test_the_shards_of_a_csv_file_are_the_list(
    tmp_path: Path, rows: list[list[str]], end: str, bom: bool, tail: bool, sizes: dict[str, Any], block: int
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator=end)
    # Two columns of one name: the last counts. Short and empty rows have none.
    writer.writerows([["page", "note\nwith lines", "page", "more"], *rows, ["", "", "https://last.example/"]])
    content = out.getvalue() if tail else out.getvalue().removesuffix(end)
    file = tmp_path / "list.csv"
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + content.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "BLOCK_BYTES", block)
        expected = plain_csv(file.read_bytes(), "page")
        assert together(file, "page", **sizes) == read_urls(file, "page") == expected


@ODD
@given(
    values=st.lists(st.none() | st.sampled_from(["", "  ", "https://a.example/", " https://b.example/ü\n", "x"])),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]),
    group=st.integers(1, 9),
    rows=st.sampled_from([1, 2, 5, 100]),
    sizes=SIZES,
)
def test_the_shards_of_a_parquet_file_are_the_list(
    tmp_path: Path, values: list[str | None], kind: pa.DataType, group: int, rows: int, sizes: dict[str, Any]
) -> None:
    values = [*values, "https://last.example/"]
    column = pa.array(values, pa.string()).cast(kind)
    table = pa.table({"other": list(range(len(values))), "url": column, "url.note": ["n"] * len(values)})
    file = tmp_path / "list.parquet"
    pq.write_table(table, file, row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "MAX_ROWS", rows)
        expected = [text for value in values if value and (text := value.strip())]
        assert together(file, **sizes) == read_urls(file) == expected


# --- where the list is -------------------------------------------------------------------------------------------


def write_list(kind: str, urls: list[str], group: int = 3) -> bytes:
    out = io.BytesIO()
    if kind == "parquet":
        pq.write_table(
            pa.table({"url": urls, "body": [random.randbytes(999) for _ in urls]}), out, row_group_size=group
        )
    elif kind == "csv":
        out.write("\n".join(["n,url", *(f"{n},{url}" for n, url in enumerate(urls))]).encode())
    else:
        out.write("\n".join(urls).encode())
    return out.getvalue()


@pytest.mark.parametrize("kind", ["txt", "csv", "parquet"])
@pytest.mark.system
def test_a_list_on_s3(s3_root: str, kind: str) -> None:
    import boto3

    bucket, _, prefix = s3_root.removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/urls.{kind}", Body=write_list(kind, URLS))
    assert together(f"{s3_root}/urls.{kind}", per_shard=4) == read_urls(f"{s3_root}/urls.{kind}") == URLS
    boto3.client("s3").put_object(Bucket=bucket, Key=f"top.{kind}", Body=write_list(kind, URLS))
    assert together(f"s3://{bucket}/top.{kind}", shards=3) == URLS
    with pytest.raises(FixRequest, match="does not exist"):
        url_shards(f"{s3_root}/none.{kind}")
    with pytest.raises(FixRequest, match="is not a file"):
        read_urls(s3_root)


@pytest.mark.parametrize("kind", ["txt", "csv", "parquet"])
def test_a_list_may_be_in_memory_a_file_url_or_a_path(tmp_path: Path, kind: str) -> None:
    from upath import UPath

    here = f"{uuid.uuid4().hex}.{kind}"
    MemoryFileSystem().pipe_file(f"/{here}", write_list(kind, URLS))
    (tmp_path / here).write_bytes(write_list(kind, URLS))
    (tmp_path / "in a dir").mkdir()
    (tmp_path / "in a dir" / here).write_bytes(write_list(kind, URLS))
    places: list[Any] = [
        f"memory://{here}",
        UPath(f"memory://{here}"),
        (tmp_path / here).as_uri(),
        UPath(tmp_path / here),
    ]
    places += [tmp_path / "in a dir" / here, UPath(f"file://{tmp_path}/in a dir/{here}")]
    for place in places:
        assert together(place, per_shard=4) == read_urls(place) == URLS, place


def test_a_relative_path_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "urls.txt").write_bytes(write_list("txt", URLS))
    monkeypatch.chdir(tmp_path)
    (shard,) = url_shards("urls.txt")
    monkeypatch.chdir("/")
    assert read_shard(shard) == URLS


def test_standard_input_and_pipes_are_read_but_not_split(tmp_path: Path) -> None:
    content = write_list("txt", URLS)
    code = "from weblake.loads.urls.lists import read_urls; print(read_urls('-'))"
    run = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, check=True)
    assert run.stdout.decode().strip() == str(URLS)
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    for read in (read_urls, url_shards):
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(pipe.write_bytes, content)
            if read is read_urls:
                assert read(pipe) == URLS
            else:
                with pytest.raises(InvalidOption, match="can be read only once"):
                    read(pipe)
            assert written.result(10) == len(content)


# --- only the bytes that are needed ------------------------------------------------------------------------------


class Counting(MemoryFileSystem):  # type: ignore[misc]
    """Notes every range that it is asked for."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int]] = []

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        assert start is not None
        assert end is not None
        self.asked.append((start, end))
        return cast(bytes, super().cat_file(path, start=start, end=end, **kwargs))


class CountedPath:
    def __init__(self, name: str, content: bytes) -> None:
        self.fs, self.path = Counting(), f"/{name}"
        self.fs.pipe_file(self.path, content)

    @property
    def bytes_read(self) -> int:
        return sum(end - start for start, end in self.fs.asked)


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_a_shard_reads_its_own_bytes_in_one_request(kind: str) -> None:
    path = CountedPath(f"{uuid.uuid4().hex}.{kind}", write_list(kind, URLS * 1000))
    shards = url_shards(path, per_shard=500)
    assert shards[0]["file"] == f"memory://{path.path.strip('/')}"
    for shard in shards:
        path.fs.asked.clear()
        assert read_shard(shard, path) == URLS * 50
        assert path.fs.asked == [(shard["start"], shard["end"])]
    assert [shard["start"] for shard in shards[1:]] == [shard["end"] for shard in shards[:-1]]


def test_a_shard_of_parquet_reads_one_column_of_its_row_groups() -> None:
    content = write_list("parquet", [f"https://example.org/{n:06d}" for n in range(4000)], group=1000)
    path = CountedPath(f"{uuid.uuid4().hex}.parquet", content)
    shards = url_shards(path, per_shard=1000)
    assert path.bytes_read < len(content) / 10  # the pages beside the URLs are not fetched
    meta = pq.read_metadata(io.BytesIO(content))
    for number, shard in enumerate(shards):
        path.fs.asked.clear()
        assert len(read_shard(shard, path)) == 1000
        chunk = meta.row_group(number).column(0)
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        footer = len(content) - (64 << 10)
        data = [(start, end) for start, end in path.fs.asked if start < footer]
        assert min(start for start, _ in data) >= begin
        assert max(end for _, end in data) <= begin + chunk.total_compressed_size


@pytest.mark.system
def test_a_list_is_never_held_as_a_whole(tmp_path: Path) -> None:
    # 80 MB each, and as much again as a list; Arrow's allocator takes 50 MB for itself, however long the file is.
    code = """
import sys
from weblake.loads.urls.shards import read_shard, url_shards
import pyarrow.parquet
def peak():  # not getrusage: that one begins with what the parent had
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
shards = url_shards(sys.argv[1], per_shard=100_000, column=sys.argv[2] or None)
read_shard(shards[3] | {})
print(peak() - before, sum(shard["count"] for shard in shards))
"""
    urls = [f"https://example.org/a/rather/long/path/{'x' * 40}/{n:07d}/" for n in range(900_000)]
    for kind in ("txt", "csv", "parquet"):
        file = tmp_path / f"urls.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table({"url": urls}), file)
        else:
            file.write_text("\n".join(["url", *urls] if kind == "csv" else urls))
        column = "" if kind == "txt" else "url"
        run = subprocess.run(
            [sys.executable, "-c", code, str(file), column], capture_output=True, text=True, check=True
        )
        grown, found = map(int, run.stdout.split())
        assert found == len(urls)
        assert grown < (75 if kind == "parquet" else 40) * 1024, f"{kind}: {grown} KiB"


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["txt", "csv", "parquet"])
@pytest.mark.parametrize("change", ["other", "shorter", "empty", "garbage", "reordered", "grown"])
def test_a_list_that_changed_is_refused(tmp_path: Path, kind: str, change: str) -> None:
    file = tmp_path / f"urls.{kind}"
    file.write_bytes(write_list(kind, URLS))
    shard = url_shards(file, per_shard=4)[1]
    other = {
        "other": write_list(kind, [url.replace("org", "net") for url in URLS]),
        "shorter": write_list(kind, URLS[:5]),
        "empty": b"",
        "garbage": b'\xff\x00"' * 400,
        "reordered": write_list(kind, [*URLS[:4], URLS[5], URLS[4], *URLS[6:]]),
        "grown": write_list(kind, ["https://example.org/new", *URLS]),
    }[change]
    file.write_bytes(other)
    with pytest.raises(FixRequest, match=r"urls\.\w+ has changed since it was cut: shard 1 of 3") as caught:
        read_shard(shard)
    assert not isinstance(caught.value, StorageRefused)
    assert "Cut it again with url_shards" in caught.value.hint
    file.unlink()
    with pytest.raises(FixRequest, match="No such file"):
        read_shard(shard)


def test_lines_appended_after_the_shards_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_bytes(write_list("txt", URLS) + b"\n")
    shards = url_shards(file, per_shard=4)
    with file.open("ab") as more:
        more.write(b"https://example.org/later\n")
    assert [url for shard in shards for url in read_shard(shard)] == URLS


def test_a_list_that_grows_while_it_is_cut_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "urls.txt"
    file.write_bytes(write_list("txt", URLS))
    monkeypatch.setattr("weblake.loads.urls.shards._even_sizes", lambda *_: iter([4, 4]))
    with pytest.raises(FixRequest, match="grew while it was split"):
        url_shards(file, shards=2)


@pytest.mark.parametrize("read", [read_urls, url_shards])
@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_a_list_that_shrinks_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Any, kind: str
) -> None:
    file = tmp_path / f"urls.{kind}"
    file.write_bytes(write_list(kind, URLS))
    monkeypatch.setattr(lists, "BLOCK_BYTES", 64)

    def shrink_after_the_beginning(opened: files.UrlFile, start: int, end: int) -> bytes:
        return b"" if start >= 64 else fetch(opened, start, end)

    fetch = files.UrlFile.fetch
    monkeypatch.setattr(files.UrlFile, "fetch", shrink_after_the_beginning)
    with pytest.raises(FixRequest, match="became shorter while it was read"):
        read(file)


def test_sizes(tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_bytes(write_list("txt", URLS))
    assert [shard["count"] for shard in url_shards(file)] == [10]
    assert [shard["count"] for shard in url_shards(file, shards=4)] == [3, 3, 2, 2]
    assert [shard["count"] for shard in url_shards(file, shards=40)] == [1] * 10
    assert [shard["count"] for shard in url_shards(file, per_shard=3)] == [3, 3, 3, 1]
    assert max(len(json.dumps(shard)) for shard in url_shards(file, per_shard=1)) < 500
    with pytest.raises(InvalidOption, match="10 URLs, which makes 10 shards; at most 4") as caught:
        url_shards(file, per_shard=1, max_shards=4)
    assert caught.value.hint == "Give per_shard=3 or more."
    assert len(url_shards(file, per_shard=3, max_shards=4)) == 4
    for wrong in ({"per_shard": 0}, {"shards": -1}, {"per_shard": 2.5}, {"shards": True}, {"max_shards": 0}):
        with pytest.raises(InvalidOption, match="whole number"):
            url_shards(file, **wrong)
    with pytest.raises(InvalidOption, match="exclude each other"):
        url_shards(file, per_shard=1, shards=1)
    assert len(url_shards(file, shards=4, max_shards=4)) == 4
    with pytest.raises(InvalidOption, match="more than max_shards=4"):
        url_shards(file, shards=5, max_shards=4)


def test_invalid_shards_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_bytes(write_list("txt", URLS))
    (shard,) = url_shards(file)
    for wrong in ({}, {**shard, "count": "ten"}, {**shard, "format": "xml"}):
        with pytest.raises(InvalidOption, match="no shard of a list of URLs"):
            read_shard(wrong)


@pytest.mark.parametrize("read", [read_urls, url_shards])
def test_invalid_lists_are_refused(tmp_path: Path, read: Any) -> None:
    for name, content, why in (
        ("empty.txt", b"# nothing\n\n", "no URL in"),
        ("latin.txt", b"https://example.org/\xfc\n", "not UTF-8"),
        ("latin.csv", b"url\nhttps://example.org/\xfc\n", "not UTF-8"),
        ("urls.txt.gz", gzip.compress(write_list("txt", URLS)), "Save it as UTF-8 and uncompressed"),
        ("urls.csv.bz2", bz2.compress(write_list("csv", URLS)), "Save it as UTF-8 and uncompressed"),
        ("urls.pq", write_list("parquet", URLS), r"needs a name that ends with \.parquet"),
        ("other.csv", b"page,note\nx,y\n", "no column 'url'; it has page, note"),
        ("none.csv", b"", "no column 'url', nor any other"),
        ("blank.csv", b"url\n\n \n", "no URL in"),
        ("open.csv", b'url,note\nx,1\ny,"2\nz,3\n', "a quote is opened in it and never closed"),
        ("open-last.csv", b'url,note\nx,1\ny,"2', "a quote is opened in it and never closed"),
        ("no.parquet", b"url\nhttps://example.org/\n", "cannot be read as a Parquet file"),
        ("empty.parquet", b"", "cannot be read as a Parquet file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FixRequest, match=why):
            read(tmp_path / name)
    pq.write_table(pa.table({"url": [[1]], "page": [{"a": 1}]}), tmp_path / "lists.parquet")
    with pytest.raises(FixRequest, match="text column 'url'"):
        read(tmp_path / "lists.parquet")
    with pytest.raises(FixRequest, match="no column 'href'; it has url, page"):
        read(tmp_path / "lists.parquet", column="href")
    (tmp_path / "urls.txt").write_bytes(write_list("txt", URLS))
    with pytest.raises(InvalidOption, match="plain list and has no columns"):
        read(tmp_path / "urls.txt", column="url")
    with pytest.raises(FixRequest, match="Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("read", [read_urls, url_shards])
def test_a_url_that_is_not_a_file_is_refused(read: Any) -> None:
    secret = uuid.uuid4().hex
    with pytest.raises(InvalidOption, match="address of a page") as caught:
        read(f"https://user:{secret}@example.org/list.txt?X-Amz-Signature={secret}")
    assert "a list that holds it" in caught.value.hint
    assert secret not in str(caught.value)
    for url in (f"https://{secret}@example.org/list.txt", f"ftp://example.org?access_token={secret}#x@y"):
        with pytest.raises(InvalidOption, match=r"://example\.org") as caught:
            read(url)
        assert secret not in str(caught.value), url
    with pytest.raises(InvalidOption, match="on no storage that is known"):
        read("sftp://example.org/urls.txt")
    with pytest.raises(StorageRefused, match="must not hold a user") as refused:
        read(f"s3://user:{secret}@bucket/urls.txt")
    assert secret not in str(refused.value)
    with pytest.raises(InvalidOption, match="cannot be read from a int"):
        read(7)
    with pytest.raises((FeatureMissing, StorageRefused)):
        read("gs://bucket/urls.txt")


def test_the_error_of_a_failing_storage_is_kept() -> None:
    path = CountedPath(f"{uuid.uuid4().hex}.txt", write_list("txt", URLS))
    (shard,) = url_shards(path)

    def fails(*_: object, **__: object) -> bytes:
        raise TimeoutError("the storage took too long")

    path.fs.cat_file = fails  # type: ignore[method-assign]
    for read in (lambda: read_shard(shard, path), lambda: url_shards(path), lambda: read_urls(path)):
        with pytest.raises(StorageRefused, match="took too long"):
            read()


def test_a_field_may_be_as_long_as_the_file(tmp_path: Path) -> None:
    file = tmp_path / "urls.csv"
    file.write_bytes(b"url,page\n" + URLS[0].encode() + b"," + b"x" * (csv.field_size_limit() + 1) + b"\n")
    assert read_urls(file) == [URLS[0]]


def test_urls_that_were_cut_elsewhere_are_other_urls(tmp_path: Path) -> None:
    """The bytes of the list are as many as before, and its URLs are the same letters."""
    file = tmp_path / "urls.txt"
    file.write_text("ab\nc\n")
    (shard,) = url_shards(file)
    file.write_text("a\nbc\n")
    with pytest.raises(FixRequest, match="has changed since it was cut"):
        read_shard(shard)


def test_no_secret_of_an_address_is_in_the_name_of_a_list() -> None:
    opened = files.UrlFile("s3://user:secret@bucket/urls.txt", 0, lambda start, end: b"")
    assert (opened.name, "secret" in opened.address) == ("s3://***@bucket/urls.txt", True)


def test_a_list_is_not_looked_up_in_a_cached_listing() -> None:
    """Another process may have written it since."""

    class Cached:
        protocol = "gcs"
        fresh = False

        def invalidate_cache(self) -> None:
            self.fresh = True

        def info(self, path: str) -> dict[str, object]:
            assert self.fresh
            return {"type": "file", "size": 5}

        def cat_file(self, path: str, start: int, end: int) -> bytes:
            return b"a\nb\nc"[start:end]

    assert read_urls(SimpleNamespace(fs=Cached(), path="bucket/urls.txt")) == ["a", "b", "c"]  # type: ignore[arg-type]
