"""Raw documents in, Arrow batches of the `documents` table out. Imports: document_columns, documents, errors, schemas,
wire.

A document is parsed no further than to tell which one it is; only what the caller keeps is decoded, many at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from weblake import wire
from weblake.errors import MalformedReply
from weblake.tables import schemas
from weblake.tables.document_columns import columns
from weblake.tables.documents import Parsed, parse, parse_odd


class DocumentBatches:
    """Turns the raw documents of one load into record batches of exactly `schemas.DOCUMENTS`.

    For each document: `parse` it, see whether it is wanted, `append` it. Now and then, `flush` the batch.
    """

    def __init__(self, load_id: str, job_id: str, job_kind: str, loaded_at: datetime, *, position: int = 0) -> None:
        #: The position that the next document gets: how many were appended, where the first one got 0.
        self.position = position
        #: For each entry that cannot be a row, one short reason.
        self.malformed: list[str] = []
        #: JSON bytes of what was appended and not yet flushed. One batch holds less than 2 GB of each column.
        self.pending_bytes = 0
        self._entries = 0
        #: What is the same in every row, as columns that are long enough for the largest batch so far.
        self._same = {"load_id": load_id, "job_id": job_id, "job_kind": job_kind, "loaded_at": loaded_at}
        self._columns: Mapping[str, pa.Array] = {}
        self._columns_rows = -1
        self._documents: list[Parsed] = []

    def parse(self, raw: wire.JsonBytes) -> Parsed | None:
        """Returns the document, or None where the entry is no JSON object: then `malformed` has one reason more."""
        self._entries += 1
        try:
            return parse(raw)
        except MalformedReply:
            self.malformed.append(f"entry {self._entries} is no JSON object: {wire.excerpt(raw, 60)}")
            return None

    def append(self, document: Parsed) -> int:
        """Makes the document the next row and returns its position; it is decoded with the batch."""
        self._documents.append(document)
        self.pending_bytes += len(document.raw)
        self.position += 1
        return self.position - 1

    def flush(self) -> pa.RecordBatch:
        """Returns everything appended since the last call as one batch, which may have no row."""
        documents, self._documents, self.pending_bytes = self._documents, [], 0
        try:
            made = columns(documents)
        except UnicodeDecodeError:
            made = columns([_mended(document) for document in documents])
        count = len(documents)
        made |= self._constant(count)
        made["position"] = range(self.position - count, self.position)
        return schemas.column_batch(schemas.DOCUMENTS, count, made)

    def _constant(self, count: int) -> Mapping[str, pa.Array]:
        if count > self._columns_rows:
            kinds = {name: schemas.DOCUMENTS.field(name).type for name in self._same}
            self._columns = {name: schemas.column(kinds[name], [same] * count) for name, same in self._same.items()}
            self._columns_rows = count
        return {name: column.slice(0, count) for name, column in self._columns.items()}


def _mended(document: Parsed) -> Parsed:
    """The document as it is, or the same with what is no UTF-8 mended."""
    try:
        columns([document])
    except UnicodeDecodeError:
        return parse_odd(document.raw)
    return document
