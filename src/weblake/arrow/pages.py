"""The columns of `documents` that are computed from others: the page of a row, and the hash of its stored text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256

import pyarrow as pa

from weblake.api.page_keys import page_key
from weblake.arrow import arrays

#: The texts that are hashed, in order: the first one that was stored is the text of the page.
TEXTS = ("markdown", "html", "raw_html", "json")
#: The computed columns, and the columns that each is computed from.
COMPUTED: Mapping[str, tuple[str, ...]] = {"page_key": ("source_url", "url"), "content_sha256": TEXTS}


def key_of(source_url: str | None, url: str | None) -> str | None:
    """Return the key of a document's page; None if the document names no URL."""
    named = source_url or url
    return page_key(named) if named else None


def content_sha256(columns: Mapping[str, pa.Array], rows: int) -> pa.Array:
    """Return the SHA-256 of each page's text as hexadecimal digits; null for a page without a stored text."""
    hashes: list[str | None] = [None] * rows
    for name in TEXTS:
        texts = columns.get(name)
        if texts is None or texts.null_count == rows:
            continue
        # Hashed in Arrow's buffers, which takes half the time of a loop over the values.
        validity, offsets, data = texts.buffers()
        ends = memoryview(offsets).cast("q" if texts.type == pa.large_string() else "i")[texts.offset :]
        text = memoryview(data or b"")
        for row in range(rows):
            if hashes[row] is None and (validity is None or texts[row].is_valid):
                hashes[row] = sha256(text[ends[row] : ends[row + 1]]).hexdigest()
        if None not in hashes:
            break
    return arrays.column(pa.string(), hashes)


def with_computed(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Return the rows with these computed columns, which their file of schema version 1 lacks."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in names:
        if name == "content_sha256":
            columns[name] = content_sha256(columns, batch.num_rows)
        else:
            urls = [columns[each].to_pylist() if each in columns else [None] * len(batch) for each in COMPUTED[name]]
            columns[name] = arrays.column(pa.string(), [key_of(*pair) for pair in zip(*urls, strict=True)])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
