"""Converts raw documents to Arrow batches of the `documents` table.

A document is first parsed only as far as its identity requires. The documents that the caller keeps are decoded
together, a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pyarrow as pa

from weblake.api import response_json
from weblake.arrow import arrays, pages, schemas
from weblake.arrow.document_columns import columns
from weblake.arrow.documents import Parsed, parse, parse_irregular
from weblake.errors import MalformedReply

#: Estimated minimum bytes of a row in all columns.
MIN_ROW_BYTES = 256


class DocumentBatches:
    """Converts the raw documents of one load to record batches of exactly `schemas.DOCUMENTS`.

    Usage: `parse` each document, or all documents of a chunk, `append` the ones to keep, and `flush` the batch from
    time to time.
    """

    def __init__(self, load_id: str, job_id: str, job_kind: str, loaded_at: datetime) -> None:
        #: The position of the next document: the number of documents appended so far.
        self.position = 0
        #: JSON bytes of the documents appended and not yet flushed, plus MIN_ROW_BYTES for each. A column of a batch
        #: must have less than 2 GB.
        self.pending_bytes = 0
        same = {"load_id": load_id, "job_id": job_id, "job_kind": job_kind, "loaded_at": loaded_at}
        #: The values that are equal in every row.
        self._same = {
            name: arrays.column(schemas.DOCUMENTS.field(name).type, [value])[0] for name, value in same.items()
        }
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

    def append(self, document: Parsed) -> None:
        """Append a document as the next row; it is decoded with the batch."""
        self._documents.append(document)
        self.pending_bytes += sum(map(len, document.fields.values())) + MIN_ROW_BYTES
        self.position += 1

    def flush(self) -> pa.RecordBatch:
        """Return the documents appended since the last call as one batch, which may be empty."""
        documents, self._documents, self.pending_bytes = self._documents, [], 0
        rows = len(documents)
        try:
            made = columns(documents)
        except UnicodeDecodeError:
            made = columns([_repaired(document) for document in documents])
        made |= {name: pa.repeat(value, rows) for name, value in self._same.items()}
        made["position"] = range(self.position - rows, self.position)
        ready = arrays.build_arrays(schemas.DOCUMENTS, made)
        ready["content_sha256"] = pages.content_sha256(ready, rows)
        return arrays.column_batch(schemas.DOCUMENTS, rows, ready)


def _repaired(document: Parsed) -> Parsed:
    """Return the document, parsed again with bytes that are not UTF-8 replaced if it holds any."""
    try:
        columns([document])
    except UnicodeDecodeError:
        return parse_irregular(document.texts, document.place)
    return document
