"""Loads with given versions of pages, written as a landing leaves them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import made_loads
import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import arrays, pages, parquet, schemas
from weblake.dataset import layout
from weblake.dataset.root import Dataset
from weblake.receipt import LandedFile, Receipt

BEGAN = datetime(2026, 11, 21, tzinfo=timezone.utc)


def page(
    n: int, status: int | None = 200, text: str | None = "text", spelling: str = "http://a.test/"
) -> dict[str, Any]:
    return {"source_url": f"{spelling}{n}", "status_code": status, "markdown": text}


def land(
    dataset: Dataset,
    load_id: str,
    began: datetime,
    rows: list[dict[str, Any]],
    *,
    landed: datetime | None = None,
    version: int = 2,
    replaces: tuple[str, ...] = (),
    done: bool = True,
) -> str:
    """Write a load as a landing leaves it; of version 1, its file lacks the computed columns."""
    name = layout.load_path("documents", None, began, load_id)
    whole = [row | {"load_id": load_id, "position": n, "loaded_at": began} for n, row in enumerate(rows)]
    batch = pages.with_computed(arrays.record_batch(schemas.DOCUMENTS, whole), pages.COMPUTED)
    with dataset.storage.scratch() as scratch:
        with parquet.ParquetFile(scratch / "x", schemas.DOCUMENTS, group_bytes=1200) as file:
            for row in range(batch.num_rows):
                file.write(batch.slice(row, 1))
            written = file.close(b"{}")
        if version == 1:
            pq.write_table(pa.Table.from_batches([batch]).drop_columns(list(pages.COMPUTED)), scratch / "x")
        assert dataset.storage.publish(written.path, name)
    receipt = Receipt(load_id, "scrape", "j", "completed", True, files=(LandedFile(name, len(rows), written.bytes),))
    dataset.ledger.record_intent(made_loads.intent(0, load_id=load_id, created_at=began.isoformat()))
    if done:
        at = (landed or began + timedelta(minutes=1)).isoformat()
        dataset.ledger.record_done(load_id, receipt.to_dict(), retired=replaces, at=at)
    return load_id
