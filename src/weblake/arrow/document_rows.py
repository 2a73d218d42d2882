"""Converts raw documents to Arrow batches of the `documents` table.

A document is first parsed only as far as its identity requires. The documents that the caller keeps are decoded
together, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

import pyarrow as pa

from weblake.api import response_json
from weblake.arrow import arrays, fields, pages, schemas
from weblake.arrow.document_columns import Deferred, all_columns, columns, deferred_columns
from weblake.arrow.documents import Parsed, parse, parse_irregular
from weblake.errors import MalformedReply

#: Estimated minimum bytes of a row in all columns.
MIN_ROW_BYTES = 256


class DocumentBatches:
    """Converts the raw documents of one load to record batches of exactly `schemas.DOCUMENTS`.

    Usage: `parse` each document, or all documents of a chunk, `append` the ones to keep, and `flush` the batch from
    time to time.
    """

    def __init__(self, load_id: str, job_id: str, job_kind: str, loaded_at: datetime, *, position: int = 0) -> None:
        #: The position of the next document: by default the number of documents appended so far.
        self.position = position
        #: JSON bytes of the documents appended and not yet flushed, plus MIN_ROW_BYTES for each. A column of a batch
        #: must have less than 2 GB.
        self.pending_bytes = 0
        #: The values that are equal in every row, and their columns, as long as the largest batch so far.
        self._same = {"load_id": load_id, "job_id": job_id, "job_kind": job_kind, "loaded_at": loaded_at}
        self._columns: Mapping[str, pa.Array] = {}
        self._columns_rows = -1
        self._documents: list[Parsed] = []

    def parse(self, raw: response_json.JsonBytes) -> Parsed | None:
        """Return the parsed document, or None if the entry is not a JSON object."""
        return next(self.parse_all(response_json.Documents((raw,))))

    def parse_all(self, documents: response_json.Documents) -> Iterator[Parsed | None]:
        """Yield the parsed document, or None, for each entry of a chunk."""
        for place in range(len(documents)):
            try:
                parsed = parse(documents, place)
            except MalformedReply:
                parsed = None  # the caller counts it
            yield parsed

    def append(self, document: Parsed) -> int:
        """Append a document as the next row and return its position; it is decoded with the batch."""
        self._documents.append(document)
        self.pending_bytes += document.size + MIN_ROW_BYTES
        self.position += 1
        return self.position - 1

    def flush(self) -> Callable[[], pa.RecordBatch]:
        """Return a function that returns the documents appended since the last call as one batch, which may be empty.

        The function may be called in any thread and runs mostly without the interpreter lock.
        """
        documents, self._documents, self.pending_bytes = self._documents, [], 0
        count = len(documents)
        same = {**self._constant(count), "position": range(self.position - count, self.position)}
        try:
            made, left = columns(documents)
        except UnicodeDecodeError:
            return partial(_irregular_batch, documents, same)
        ready = arrays.build_arrays(schemas.DOCUMENTS, made | same)
        return partial(_batch, documents, same, ready, left)

    def _constant(self, count: int) -> Mapping[str, pa.Array]:
        if count > self._columns_rows:
            kinds = {name: schemas.DOCUMENTS.field(name).type for name in self._same}
            self._columns = {name: arrays.column(kinds[name], [same] * count) for name, same in self._same.items()}
            self._columns_rows = count
        return {name: column.slice(0, count) for name, column in self._columns.items()}


def _batch(
    documents: Sequence[Parsed], same: Mapping[str, arrays.Values], ready: Mapping[str, pa.Array], left: Deferred
) -> pa.RecordBatch:
    try:
        return _hashed(len(documents), {**ready, **deferred_columns(left)})
    except (UnicodeDecodeError, *fields.TYPE_ERRORS):
        return _irregular_batch(documents, same)


def _irregular_batch(documents: Sequence[Parsed], same: Mapping[str, arrays.Values]) -> pa.RecordBatch:
    """Return the batch of documents of which some hold bytes that are not UTF-8 or values of unexpected types."""
    try:
        made = all_columns(documents)
    except UnicodeDecodeError:
        made = all_columns([_reparse(document) for document in documents])
    return _hashed(len(documents), {**made, **same})


def _hashed(rows: int, columns: Mapping[str, arrays.Values]) -> pa.RecordBatch:
    """Return the batch of these columns, with the hash of each page's text."""
    ready = arrays.build_arrays(schemas.DOCUMENTS, columns)
    ready["content_sha256"] = pages.content_sha256(ready, rows)
    return arrays.column_batch(schemas.DOCUMENTS, rows, ready)


def _reparse(document: Parsed) -> Parsed:
    """Return the document, parsed again with bytes that are not UTF-8 repaired if it holds any."""
    try:
        all_columns([document])
    except UnicodeDecodeError:
        return parse_irregular(document.texts, document.place)
    return document
