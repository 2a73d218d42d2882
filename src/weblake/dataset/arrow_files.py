"""Arrow access to the files of a table: record batches with path keys, and an Arrow dataset on any storage.

Arrow opens the files of a local root itself. Files of any other root are read through the storage, so that its
credentials, read-ahead and error messages apply; a URL is never passed to Arrow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import IO, TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from weblake.arrow import arrays, pages, parquet, schemas
from weblake.dataset import layout
from weblake.errors import StorageRefused
from weblake.storage import Storage

if TYPE_CHECKING:
    import pyarrow.dataset as ds  # imports pandas where it is installed, which reading a table does not need

#: Largest row group that is read in one call, in uncompressed bytes.
_SMALL_GROUP = 1 << 20


def dataset(storage: Storage, names: Sequence[str], schema: pa.Schema) -> ds.Dataset:
    """Return the files as one Arrow dataset with exactly this schema; columns that the files lack are path keys."""
    import pyarrow.dataset as ds

    native = storage.local_path("x") is not None
    files = fs.LocalFileSystem() if native else fs.PyFileSystem(_StorageFiles(storage))
    form = ds.ParquetFileFormat()
    fragments = [
        form.make_fragment(str(storage.local_path(name)) if native else name, files, partition_expression=_holds(name))
        for name in names
    ]
    return ds.FileSystemDataset(fragments, schema, form, files)


def rows(
    file: pq.ParquetFile,
    name: str,
    schema: pa.Schema,
    batch_size: int,
    row_groups: Sequence[int] | None = None,
    picked: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file of a table in record batches with the columns of `schema`.

    Path keys are filled in; the computed columns that a file of schema version 1 lacks are computed; other columns that
    it lacks are null. `picked` are the sorted numbers of the rows to read; None for all.
    """
    keys, table = layout.keys_of(name), schemas.TABLES[name.partition("/")[0]]
    stored = parquet.columns_in_file(file, [each for each in schema.names if each not in keys], table)
    computed = [each for each in pages.COMPUTED if each in schema.names and each in table.names and each not in stored]
    needed = dict.fromkeys(each for column in computed for each in pages.COMPUTED[column] if each not in stored)
    columns = [*stored, *parquet.columns_in_file(file, list(needed), table)]
    if picked is None:
        found = _batches(file, columns, batch_size, row_groups)
    else:
        found = _picked_batches(file, columns or ["load_id"], batch_size, row_groups, picked)
    for batch in found:
        yield _with_keys(pages.with_computed(batch, computed) if computed else batch, keys, schema)


def _picked_batches(
    file: pq.ParquetFile,
    columns: Sequence[str],
    batch_size: int,
    row_groups: Sequence[int] | None,
    picked: Sequence[int],
) -> Iterator[pa.RecordBatch]:
    """Yield the picked rows of a file; a row group without one is not read."""
    first = 0
    for group in range(file.num_row_groups):
        end = first + file.metadata.row_group(group).num_rows
        if (row_groups is None or group in row_groups) and bisect_left(picked, first) < bisect_left(picked, end):
            begin = first
            for batch in _batches(file, columns, batch_size, [group]):
                some = picked[bisect_left(picked, begin) : bisect_left(picked, begin + batch.num_rows)]
                if len(some) == batch.num_rows:
                    yield batch
                elif some:
                    yield batch.take(arrays.column(pa.int64(), [row - begin for row in some]))
                begin += batch.num_rows
        first = end


def _batches(
    file: pq.ParquetFile, columns: Sequence[str], batch_size: int, row_groups: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in record batches with these columns, which the file must have."""
    groups = list(range(file.num_row_groups) if row_groups is None else row_groups)
    # A row group that fits into a batch is read whole: Arrow needs half the time, which matters with many small files.
    if len(groups) == 1:
        group = file.metadata.row_group(groups[0])
        if 0 < group.num_rows <= batch_size and group.total_byte_size <= _SMALL_GROUP and columns:
            yield from file.read_row_group(groups[0], columns=list(columns), use_threads=False).to_batches()
            return
    yield from file.iter_batches(batch_size=batch_size, row_groups=groups, columns=list(columns))


def opened(storage: Storage, name: str) -> IO[bytes]:
    """Return a file of a table, open for reading. The caller closes it.

    Raises:
        StorageRefused: The file cannot be read, or no longer exists because a newer load has replaced it since the
            listing.
    """
    try:
        return storage.open_input(name)
    except StorageRefused:
        if storage.exists(name):
            raise
        raise StorageRefused(
            f"{name} is gone from {storage.url}: a newer load has replaced it since the table was listed.",
            hint="Read the table again.",
        ) from None


def _with_keys(rows: pa.RecordBatch, keys: Mapping[str, str], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of one file's rows with the columns of `schema`; path keys are filled in, missing columns null."""
    stored = rows.schema.names
    if stored == schema.names[: len(stored)]:  # the usual case, measurably faster for tables of many files
        rest = (pa.repeat(pa.scalar(keys.get(f.name), f.type), rows.num_rows) for f in list(schema)[len(stored) :])
        return pa.RecordBatch.from_arrays([*rows.columns, *rest], schema=schema)
    places = {name: place for place, name in enumerate(stored)}
    arrays = []
    for field in schema:
        place = places.get(field.name)
        if place is None:
            arrays.append(pa.repeat(pa.scalar(keys.get(field.name), field.type), rows.num_rows))
        else:
            arrays.append(rows.column(place))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _holds(name: str) -> ds.Expression:
    """Return the partition expression of a file: each path key equals its value."""
    import pyarrow.dataset as ds

    true = [ds.field(key) == ds.scalar(value) for key, value in layout.keys_of(name).items()]
    return reduce(and_, true, ds.scalar(value=True))


class _StorageFiles(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Arrow file system over a storage that supports reading files only."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StorageFiles) and other._storage is self._storage

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return id(self._storage)

    def get_type_name(self) -> str:
        return "weblake"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        return [fs.FileInfo(path, fs.FileType.File, size=self._storage.find_size(path)) for path in paths]

    def open_input_file(self, path: str) -> pa.PythonFile:
        return pa.PythonFile(opened(self._storage, path), mode="r")

    open_input_stream = open_input_file

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            "A table that weblake has landed is read only here: land with weblake.land and the like."
        )

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = get_file_info_selector = _refuse
