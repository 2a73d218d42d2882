"""Raw documents in, Arrow batches of the `documents` table out.

A document is parsed no further than to tell which one it is; only what the caller keeps is decoded, many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

import pyarrow as pa

from weblake.api import response_json
from weblake.errors import MalformedReply
from weblake.tables import arrays, fields, schemas
from weblake.tables.document_columns import Left, all_columns, columns, left_columns
from weblake.tables.documents import Parsed, parse, parse_odd

#: What a row takes in all columns, however little its document says.
ROW_BYTES = 256


class DocumentBatches:
    """Turns the raw documents of one load into record batches of exactly `schemas.DOCUMENTS`.

    For each document: `parse` it, or all of a chunk, see whether it is wanted, `append` it. Now and then, `flush` the
    batch.
    """

    def __init__(self, load_id: str, job_id: str, job_kind: str, loaded_at: datetime, *, position: int = 0) -> None:
        #: The position that the next document gets: how many were appended, where the first one got 0.
        self.position = position
        #: JSON bytes of what was appended and not yet flushed, and ROW_BYTES for each. One batch holds less than 2 GB
        #: of each column.
        self.pending_bytes = 0
        #: What is the same in every row, as columns that are long enough for the largest batch so far.
        self._same = {"load_id": load_id, "job_id": job_id, "job_kind": job_kind, "loaded_at": loaded_at}
        self._columns: Mapping[str, pa.Array] = {}
        self._columns_rows = -1
        self._documents: list[Parsed] = []

    def parse(self, raw: response_json.JsonBytes) -> Parsed | None:
        """Returns the document, or None where the entry is no JSON object."""
        return next(self.parse_all(response_json.Documents((raw,))))

    def parse_all(self, documents: response_json.Documents) -> Iterator[Parsed | None]:
        """Yields the same of each document of a chunk."""
        for place in range(len(documents)):
            try:
                parsed = parse(documents, place)
            except MalformedReply:
                parsed = None  # the caller counts it
            yield parsed

    def append(self, document: Parsed) -> int:
        """Makes the document the next row and returns its position; it is decoded with the batch."""
        self._documents.append(document)
        self.pending_bytes += document.size + ROW_BYTES
        self.position += 1
        return self.position - 1

    def flush(self) -> Callable[[], pa.RecordBatch]:
        """Returns what gives everything appended since the last call as one batch, which may have no row.

        What is left for that call runs mostly beside other threads, and may be done in any.
        """
        documents, self._documents, self.pending_bytes = self._documents, [], 0
        count = len(documents)
        same = {**self._constant(count), "position": range(self.position - count, self.position)}
        try:
            made, left = columns(documents)
        except UnicodeDecodeError:
            return partial(_odd_batch, documents, same)
        ready = arrays.made(schemas.DOCUMENTS, made | same)
        return partial(_batch, documents, same, ready, left)

    def _constant(self, count: int) -> Mapping[str, pa.Array]:
        if count > self._columns_rows:
            kinds = {name: schemas.DOCUMENTS.field(name).type for name in self._same}
            self._columns = {name: arrays.column(kinds[name], [same] * count) for name, same in self._same.items()}
            self._columns_rows = count
        return {name: column.slice(0, count) for name, column in self._columns.items()}


def _batch(
    documents: Sequence[Parsed], same: Mapping[str, arrays.Values], ready: Mapping[str, pa.Array], left: Left
) -> pa.RecordBatch:
    try:
        return arrays.column_batch(schemas.DOCUMENTS, len(documents), {**ready, **left_columns(left)})
    except (UnicodeDecodeError, *fields.WRONG):
        return _odd_batch(documents, same)


def _odd_batch(documents: Sequence[Parsed], same: Mapping[str, arrays.Values]) -> pa.RecordBatch:
    """The batch, of documents with something in them that is no UTF-8, or is of another type than its column."""
    try:
        made = all_columns(documents)
    except UnicodeDecodeError:
        made = all_columns([_mended(document) for document in documents])
    return arrays.column_batch(schemas.DOCUMENTS, len(documents), {**made, **same})


def _mended(document: Parsed) -> Parsed:
    """The document as it is, or the same with what is no UTF-8 mended."""
    try:
        all_columns([document])
    except UnicodeDecodeError:
        return parse_odd(document.texts, document.place)
    return document
