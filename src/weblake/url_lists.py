"""Lists of URLs from files: one a line, or a column of CSV or Parquet, on any supported storage.

Imports: errors; storage and pyarrow where they are needed.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path, PurePosixPath

from weblake.errors import FixRequest, InvalidOption


def read_urls(file: str, column: str | None = None) -> list[str]:
    """Returns the URLs in a file, in order, duplicates included; `-` is standard input.

    Args:
        file: A path or storage URL. `.parquet` and `.csv` are read by column, anything else as one URL a line, where
            empty lines and lines that begin with `#` do not count.
        column: The column of a CSV or Parquet file; `url` where it is not given.

    Raises:
        FixRequest: The file cannot be read or has no such column.
        InvalidOption: There is no URL in it, or a column of a plain list is asked for.
    """
    content = _read(file)
    ending = PurePosixPath(file).suffix.lower()
    if ending == ".parquet":
        urls = _parquet(content, file, column or "url")
    elif ending == ".csv":
        urls = _csv(content, file, column or "url")
    elif column is not None:
        raise InvalidOption(f"{file} is a plain list and has no columns.", hint="Leave --column out.")
    else:
        lines = (line.strip() for line in _text(content, file).splitlines())
        urls = [line for line in lines if line and not line.startswith("#")]
    if not urls:
        raise InvalidOption(f"There is no URL in {file}.")
    return urls


def _read(file: str) -> bytes:
    if file == "-":
        import sys

        return sys.stdin.buffer.read()
    try:
        if "://" not in file:
            return Path(file).read_bytes()
        from weblake.storage import open_storage

        parent, _, name = file.rpartition("/")
        content = open_storage(parent).read(name)
    except OSError as error:
        raise FixRequest(f"{file} cannot be read: {error.strerror or error}.") from None
    if content is None:
        raise FixRequest(f"{file} does not exist.")
    return content


def _text(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FixRequest(f"{file} is not UTF-8 text.", hint="Save it as UTF-8.") from None


def _csv(content: bytes, file: str, column: str) -> list[str]:
    # A table of pages may hold whole pages: a field may be as long as the file, instead of 128 KiB.
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    rows = csv.DictReader(io.StringIO(_text(content, file), newline=""))
    try:
        if column not in (rows.fieldnames or ()):
            raise _no_column(file, column, list(rows.fieldnames or ()))
        return [text for row in rows if (text := (row[column] or "").strip())]
    except csv.Error as error:
        raise FixRequest(f"{file} is no CSV file: {error}.", hint="Save it as CSV, or as one URL a line.") from None


def _parquet(content: bytes, file: str, column: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(pa.BufferReader(content)).names
        if column not in names:
            raise _no_column(file, column, names)
        values = pq.read_table(pa.BufferReader(content), columns=[column]).column(0)
        # Binary text is what writers that know no strings leave behind.
        texts = values.cast(pa.large_string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OSError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise FixRequest(
            f"{file} cannot be read as a Parquet file with a text column {column!r}: {why}.",
            hint="Name a column of texts with --column, or give one URL a line.",
        ) from None
    return [text for value in texts if value and (text := value.strip())]


def _no_column(file: str, column: str, names: list[str]) -> FixRequest:
    has = f"; it has {', '.join(names[:10])}" if names else ", nor any other"
    return FixRequest(f"{file} has no column {column!r}{has}.", hint="Name one with --column.")
