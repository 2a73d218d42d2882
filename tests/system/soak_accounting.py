"""Checks of a soak: its counts add up, and its processes hold no more at the end than before."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pyarrow.parquet as pq
from soak_lab import Measurement, ProcessResources, Soak

import weblake
from weblake.dataset.history import history
from weblake.dataset.root import open_dataset

#: Growth of memory in bytes that is no leak: bounded lists, a day of activity that gets longer (see soak.md). A
#: landing that kept its documents would show as 15 MB for each of them.
KILOBYTES = 6 * 1024
#: The allowed difference of open sockets, files and threads: each of the six threads that land may have an idle
#: connection or none. A landing that kept one would show as 8.
IDLE = 6


def check_counts(soak: Soak) -> dict[str, float]:
    """Assert that client, dataset, ledger and service report the same numbers, and return them."""
    soak.service.faults.clear()
    totals, counts = soak.totals, soak.service.counts()
    started = sum(counts.get(f"{kind}_started", 0) for kind in ("batch_scrape", "crawl", "scrape"))
    assert started == totals["loads"], (counts, totals)
    assert counts["pages_billed"] == totals["stored"] == totals["credits"], (counts, totals)
    assert totals["submitted"] == totals["stored"] + totals["failed"]
    ledger = list(history(open_dataset(soak.root)))
    assert len(ledger) == totals["loads"]
    assert sum(each.receipt.stored for each in ledger) == totals["stored"]
    documents = weblake.read(soak.root, "documents").to_table()
    assert documents.num_rows == totals["stored"]
    assert len(set(documents["source_url"].to_pylist())) == documents.num_rows  # no page was requested twice
    assert weblake.read(soak.root, "page_errors").to_table().num_rows == totals["failed"]
    usage = sum(pq.read_table(file)["total_credits"][0].as_py() for file in soak.root.rglob("usage.parquet"))
    assert usage == totals["stored"]
    activity = sum(pq.read_table(file).num_rows for file in soak.root.rglob("activity.parquet"))
    assert activity == totals["loads"]
    return {"started": started, "usage": usage, "activity": activity} | totals


def growth(measurements: Sequence[Measurement]) -> list[str]:
    """Return what grew from the middle third of the rounds to the last third."""
    third = max(1, len(measurements) // 3)
    middle, last = measurements[-2 * third : -third], measurements[-third:]
    found = []
    for who in ("client", "service"):
        for what in ProcessResources.__dataclass_fields__:
            before, after = (
                statistics.median(getattr(getattr(measurement, who), what) for measurement in some)
                for some in (middle, last)
            )
            spare = KILOBYTES if what == "own_kb" else IDLE
            if after > before + spare:
                found.append(f"{who}: {what} went from {before:g} to {after:g}")
    before, after = (statistics.median(measurement.objects for measurement in some) for some in (middle, last))
    if after > before * 1.01:
        found.append(f"client: objects went from {before:g} to {after:g}")
    for what in ("temporary", "staging_files"):
        if getattr(last[-1], what) > getattr(middle[0], what):
            found.append(f"{what} files went from {getattr(middle[0], what)} to {getattr(last[-1], what)}")
    return found
