"""Reads lists of URLs from files on any supported storage: one URL per line, or a column of CSV or Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal

from weblake.errors import FixRequest, InvalidOption, Remedy
from weblake.loads.urls.files import RangeStream, UrlFile, open_url_file
from weblake.storage import RootPath

if TYPE_CHECKING:
    import pyarrow.parquet as pq

Format = Literal["text", "csv", "parquet"]

#: Start and end of the URL's line, CSV record or row, and the URL.
LocatedUrl = tuple[int, int, str]

#: Bytes of a block when a file is read sequentially.
BLOCK_BYTES = 4 << 20

#: Maximum rows of a Parquet file in memory at once.
MAX_ROWS = 1 << 12

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Span:
    """The format of a file and a range of it: in bytes, or in rows of a Parquet file."""

    format: Format
    start: int
    end: int
    column: str | None = None
    #: The index of the column in a CSV record.
    field: int | None = None


def read_urls(file: RootPath, column: str | None = None) -> list[str]:
    """Return the URLs in a file, in order, duplicates included; `-` is standard input.

    Args:
        file: A local path, a storage URL, or an object with `fs` and `path`. `.parquet` and `.csv` are read by
            column, any other file as one URL per line; empty lines and lines that begin with `#` are ignored.
        column: The column of a CSV or Parquet file. Default: `url`.

    Raises:
        FixRequest: The file cannot be read or has no such column.
        InvalidOption: The file holds no URL, `column` is given for a plain list, or `file` is the URL of a web page.
        FeatureMissing: The extra for its storage is not installed.
    """
    with open_url_file(file) as opened:
        urls = [url for _, _, url in urls_in(opened, whole_span(opened, column))]
    if not urls:
        raise no_urls_error(opened)
    return urls


def whole_span(file: UrlFile, column: str | None) -> Span:
    """Return the span of all URLs of a file.

    Raises:
        FixRequest: The file has no such column.
        InvalidOption: `column` is given for a plain list.
    """
    if file.ending == ".parquet":
        return _parquet_span(file, column or "url")
    start = len(_BOM) if file.fetch(0, min(len(_BOM), file.size)) == _BOM else 0
    if file.ending == ".csv":
        return _csv_span(file, column or "url", start)
    if column is not None:
        raise InvalidOption(f"{file.name} is a plain list and has no columns.", hint=Remedy("Leave {column} out."))
    return Span("text", start, file.size)


def urls_in(file: UrlFile, span: Span) -> Iterator[LocatedUrl]:
    """Return an iterator over the URLs of a span, in order, which reads the file incrementally.

    Raises:
        FixRequest: The content of the file does not have the format of its extension.
    """
    if span.format == "parquet":
        return _read_parquet(file, span)
    return _read_csv(file, span) if span.format == "csv" else _read_text(file, span)


def no_urls_error(file: UrlFile) -> InvalidOption:
    """Return the error for a list without URLs."""
    return InvalidOption(f"There is no URL in {file.name}.")


class _Lines:
    """Iterator over the lines of a range, with their line ends; `at` is the byte offset of the end of the last line."""

    def __init__(self, file: UrlFile, start: int, end: int) -> None:
        self.at = start
        self._file = file
        stream = RangeStream(file, start, end, block_bytes=BLOCK_BYTES)
        self._read_text = io.TextIOWrapper(stream, encoding="utf-8", newline="")  # type: ignore[type-var]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line = next(self._read_text)
        except UnicodeDecodeError:
            raise FixRequest(
                f"{self._file.name} is not UTF-8 text.",
                hint="Save it as UTF-8 and uncompressed; a Parquet file needs a name that ends with .parquet.",
            ) from None
        self.at += _utf8_length(line)
        return line


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _read_text(file: UrlFile, span: Span) -> Iterator[LocatedUrl]:
    start = span.start
    for line in _Lines(file, span.start, span.end):
        for part in line.splitlines(keepends=True):  # splitlines also splits at form feeds and similar characters
            end = start + _utf8_length(part)
            url = part.strip()
            if url and not url.startswith("#"):
                yield start, end, url
            start = end


def _csv_span(file: UrlFile, column: str, start: int) -> Span:
    lines = _Lines(file, start, file.size)
    with _translate_csv_errors(file):
        header = next(csv.reader(lines), [])
    if column not in header:
        raise _missing_column_error(file, column, header)
    # Of two columns with the same name the last one is read, as by csv.DictReader.
    field = len(header) - 1 - header[::-1].index(column)
    return Span("csv", lines.at, file.size, column, field)


def _read_csv(file: UrlFile, span: Span) -> Iterator[LocatedUrl]:
    assert span.field is not None
    lines = _Lines(file, span.start, span.end)
    start = span.start
    with _translate_csv_errors(file):
        # With an empty line after the last record, because the reader does not report a quote that is never closed: it
        # reads the rest of the file as one field, and the empty line as a part of it.
        for record in csv.reader(chain(lines, [""])):
            if start == lines.at:
                return
            if len(record) > span.field and (url := record[span.field].strip()):
                yield start, lines.at, url
            start = lines.at
    raise FixRequest(
        f"{file.name} is not a CSV file: a quote is opened in it and never closed.",
        hint="Close it, or write it as two quotes in a quoted field; or give one URL a line.",
    )


@contextmanager
def _translate_csv_errors(file: UrlFile) -> Iterator[None]:
    # A CSV file may hold whole pages; the default limit of the process, 128 KiB, is raised and not restored, because
    # another thread may read a list at the same time.
    csv.field_size_limit(max(csv.field_size_limit(), file.size))
    try:
        yield
    except csv.Error as error:
        raise FixRequest(
            f"{file.name} is not a CSV file: {error}.", hint="Save it as CSV, or as one URL a line."
        ) from None


def _parquet_span(file: UrlFile, column: str) -> Span:
    import pyarrow.parquet as pq

    with _translate_arrow_errors(file, column):
        table = pq.ParquetFile(RangeStream(file), pre_buffer=False)
        names, rows = table.schema_arrow.names, table.metadata.num_rows
    if column not in names:
        raise _missing_column_error(file, column, names)
    return Span("parquet", 0, rows, column)


def _read_parquet(file: UrlFile, span: Span) -> Iterator[LocatedUrl]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert span.column is not None
    with _translate_arrow_errors(file, span.column):
        # One thread and one request at a time, because the stream has one position. With a buffer, the column of a
        # row group is not read into memory as a whole, and not further than the end of the span.
        table = pq.ParquetFile(RangeStream(file), pre_buffer=False, buffer_size=BLOCK_BYTES)
        groups, row = _overlapping_groups(table.metadata, span)
        for batch in table.iter_batches(MAX_ROWS, row_groups=groups, columns=[span.column], use_threads=False):
            skipped = max(span.start - row, 0)
            values = batch.column(batch.schema.names.index(span.column))[skipped : span.end - row]
            # Cast, because writers without a string type store texts as binary.
            for number, value in enumerate(values.cast(pa.large_string()).to_pylist(), row + skipped):
                if value and (url := value.strip()):
                    yield number, number + 1, url
            row += len(batch)
            if row >= span.end:
                break


def _overlapping_groups(metadata: pq.FileMetaData, span: Span) -> tuple[list[int], int]:
    """Return the row groups that overlap a span, and the number of the first row of the first one."""
    groups: list[int] = []
    first = row = 0
    for group in range(metadata.num_row_groups):
        end = row + metadata.row_group(group).num_rows
        if row < span.end and end > span.start:
            first = first if groups else row
            groups.append(group)
        row = end
    return groups, first


@contextmanager
def _translate_arrow_errors(file: UrlFile, column: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise FixRequest(
            f"{file.name} cannot be read as a Parquet file with a text column {column!r}: {why}.",
            hint=Remedy("Name a column of texts with {column}, or give one URL a line."),
        ) from None


def _missing_column_error(file: UrlFile, column: str, names: list[str]) -> FixRequest:
    has = f"; it has {', '.join(names[:10])}" if names else ", nor any other"
    return FixRequest(f"{file.name} has no column {column!r}{has}.", hint=Remedy("Name one with {column}."))
