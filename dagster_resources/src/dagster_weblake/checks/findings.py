"""The finding of each check of a landed load: a sentence, numbers and the first offenders, without events or runs.

    the receipt alone            rows_above_zero, error_ratio, credits_under_budget
    the documents' file          duplicate_urls (its url column), schema_matches (its footer)
    every file of the receipt    receipt_matches_files (sizes and footers; of a file that was compacted the load's rows)

A file that cannot be read gives a finding, never a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.metadata.columns import type_name
from dagster_weblake.metadata.text_format import format_table, number, plain, real, text
from weblake.errors import WeblakeError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import weblake
    from weblake import orchestration

#: Offenders that a finding names at most.
FIRST = 10
_BATCH_ROWS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    passed: bool
    #: The finding as a sentence.
    says: str
    metadata: Mapping[str, dg.MetadataValue] = field(default_factory=dict)
    #: Whether the check could not be decided: such a finding warns, whatever the severity of the check.
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The thresholds of the document checks."""

    min_rows: int = 1
    max_error_ratio: float = 0.1
    max_duplicate_urls: int = 0
    max_credits: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The load that is checked."""

    dataset: orchestration.Dataset
    receipt: weblake.Receipt
    #: The asset's partition.
    partition: str | None = None

    @property
    def documents(self) -> weblake.LandedFile | None:
        """Return the documents' file; None if the load has none."""
        return next((file for file in self.receipt.files if file.path.startswith("documents/")), None)


class UnreadableError(Exception):
    """A landed file is missing or damaged; the text says which and how."""


@contextmanager
def opened(dataset: orchestration.Dataset, name: str) -> Iterator[pq.ParquetFile]:
    """Return a context manager for a landed Parquet file.

    Raises:
        UnreadableError: The file is missing, or is no readable Parquet file; also for reads from it inside the block.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not dataset.storage.exists(name):
            raise UnreadableError(f"{name} is gone.")
        with dataset.storage.open_input(name) as source, pq.ParquetFile(source) as file:
            yield file
    except (WeblakeError, OSError, ValueError, pa.ArrowException) as error:
        raise UnreadableError(f"{name} cannot be read: {plain(error, 300)}") from error


def rows_above_zero(load: Load, limits: Limits) -> Finding:
    """At least `min_rows` documents have landed."""
    rows = load.receipt.stored
    return Finding(
        passed=rows >= limits.min_rows,
        says=f"{number(rows)} of {number(load.receipt.submitted)} submitted pages are documents; "
        f"at least {number(limits.min_rows)} must be.",
        metadata={"rows": _int(rows), "min_rows": _int(limits.min_rows), "submitted": _int(load.receipt.submitted)},
    )


def error_ratio(load: Load, limits: Limits) -> Finding:
    """At most `max_error_ratio` of the submitted pages failed, were rejected or are missing."""
    receipt = load.receipt
    errors = receipt.failed + receipt.rejected + receipt.missing
    ratio = errors / receipt.submitted if receipt.submitted else 0.0
    counts = {name: _int(getattr(receipt, name)) for name in ("failed", "rejected", "missing", "robots_blocked")}
    return Finding(
        passed=ratio <= limits.max_error_ratio,
        says=f"{number(errors)} of {number(receipt.submitted)} submitted pages ({ratio:.1%}) failed, were rejected or "
        f"are missing; {limits.max_error_ratio:.1%} may. Pages that robots.txt keeps out do not count.",
        metadata={
            "error_ratio": real(ratio),
            "max_error_ratio": real(limits.max_error_ratio),
            "errors": _int(errors),
            "submitted": _int(receipt.submitted),
            **counts,
        },
    )


def duplicate_urls(load: Load, limits: Limits) -> Finding:
    """At most `max_duplicate_urls` rows have a URL that an earlier row of the load has."""
    file = load.documents
    extra, rows = (0, []) if file is None else _repeats(load, file.path)
    metadata = {
        "duplicate_urls": _int(extra),
        "max_duplicate_urls": _int(limits.max_duplicate_urls),
        "rows": _int(file.rows if file else 0),
    }
    if rows:
        metadata["first_duplicates"] = format_table(("url", "rows"), rows)
    return Finding(
        passed=extra <= limits.max_duplicate_urls,
        says=f"{number(extra)} of {number(file.rows if file else 0)} rows repeat the URL of another row; "
        f"{number(limits.max_duplicate_urls)} may.",
        metadata=metadata,
    )


def schema_matches(load: Load, limits: Limits) -> Finding:
    """The documents' file has exactly the columns that this weblake writes."""
    from weblake import orchestration

    wanted = orchestration.TABLES["documents"]
    if load.documents is None:
        return Finding(passed=True, says="The load has no documents, and so no file of them.")
    with opened(load.dataset, load.documents.path) as file:
        schema = file.schema_arrow
    if schema.equals(wanted):
        return Finding(
            passed=True,
            says=f"The file has the {len(wanted)} columns of the table.",
            metadata={"columns": _int(len(schema.names))},
        )
    odd = _differences(schema, wanted)
    return Finding(
        passed=False,
        says=f"The file's columns are not those that this weblake writes: {_named(odd)}. Another version or program "
        "wrote it; upgrade, or land the load anew.",
        metadata={
            "columns": _int(len(schema.names)),
            "differences": format_table(("column", "in the file", "in the table"), odd[:FIRST]),
        },
    )


def receipt_matches_files(load: Load, limits: Limits) -> Finding:
    """Every file of the receipt is there, with the bytes and rows that the receipt says."""
    receipt = load.receipt
    odd = [(file.path, why) for file in receipt.files if (why := _mismatch(load, file))]
    rows = load.documents.rows if load.documents else 0
    if rows != receipt.stored:
        odd.append(("documents", f"the receipt says {number(receipt.stored)} documents, its file {number(rows)}"))
    metadata = {"files": _int(len(receipt.files)), "mismatches": _int(len(odd))}
    if not odd:
        return Finding(passed=True, says=f"All {len(receipt.files)} files are as the receipt says.", metadata=metadata)
    return Finding(
        passed=False,
        says=f"{plain(odd[0][0], 200)}: {odd[0][1]}. Restore it from a backup, or land the load anew.",
        metadata=metadata | {"first_mismatches": format_table(("file", "what is wrong"), odd[:FIRST])},
    )


def credits_under_budget(load: Load, limits: Limits) -> Finding:
    """The job used no more than `max_credits`."""
    assert limits.max_credits is not None
    used, most = load.receipt.credits_used, real(limits.max_credits)
    if used is None:
        return Finding(
            passed=False,
            says="The service did not say what the job cost.",
            metadata={"max_credits": most},
            unknown=True,
        )
    return Finding(
        passed=used <= limits.max_credits,
        says=f"The job used {number(used)} credits; {number(limits.max_credits)} may be used.",
        metadata={"credits_used": real(used), "max_credits": most},
    )


#: Every check by its name, in the order in which they are shown.
CHECKS: Mapping[str, Callable[[Load, Limits], Finding]] = {
    "rows_above_zero": rows_above_zero,
    "error_ratio": error_ratio,
    "duplicate_urls": duplicate_urls,
    "schema_matches": schema_matches,
    "receipt_matches_files": receipt_matches_files,
    "credits_under_budget": credits_under_budget,
}


def find(check: str, load: Load, limits: Limits) -> Finding:
    """Return the finding of a check for a load."""
    try:
        return CHECKS[check](load, limits)
    except UnreadableError as error:
        return Finding(
            passed=False,
            says=f"{error} Restore it from a backup, or land the load anew.",
            metadata={"load_id": text(load.receipt.load_id)},
        )


def _named(odd: list[tuple[str, str, str]]) -> str:
    names = ", ".join(plain(name, 60) for name, *_ in odd[:3])
    return f"{len(odd)} differ ({names}{', …' if len(odd) > 3 else ''})" if odd else "they stand in another order"


def _mismatch(load: Load, file: weblake.LandedFile) -> str:
    """Return what is wrong with a file of a receipt; empty if it matches."""
    from weblake import orchestration

    # Such a file also holds other loads, and is rewritten without those that newer loads have replaced.
    shared = orchestration.is_compacted(file.path)
    try:
        with opened(load.dataset, file.path) as parquet:
            rows = int(parquet.metadata.num_rows)
            if shared:
                mine = orchestration.load_batches(parquet, file.path, load.receipt.load_id, ["load_id"], _BATCH_ROWS)
                rows = sum(batch.num_rows for batch in mine)
        found = file.bytes if shared else load.dataset.storage.size(file.path)
    except UnreadableError as error:
        return str(error).removeprefix(f"{file.path} ").rstrip(".")
    except WeblakeError as error:
        return plain(error, 300)
    if found != file.bytes:
        return f"it has {number(found)} bytes, the receipt says {number(file.bytes)}"
    return "" if rows == file.rows else f"it has {number(rows)} rows, the receipt says {number(file.rows)}"


def _differences(schema: pa.Schema, wanted: pa.Schema) -> list[tuple[str, str, str]]:
    odd = []
    for name in dict.fromkeys([*wanted.names, *schema.names]):
        found = [each.field(name).type if name in each.names else None for each in (schema, wanted)]
        if found[0] != found[1]:  # the texts may differ: Arrow has two names for list elements with one meaning
            theirs, ours = ("absent" if kind is None else type_name(kind) for kind in found)
            odd.append((name, theirs, ours))
    return odd


def _repeats(load: Load, name: str) -> tuple[int, list[tuple[str, int]]]:
    """Return the count of rows that repeat a URL, and the most repeated URLs with their rows."""
    import pyarrow as pa

    from weblake import orchestration

    with opened(load.dataset, name) as file:
        if "url" not in file.schema_arrow.names:
            raise UnreadableError(f"{name} has no column url.")
        batches = list(orchestration.load_batches(file, name, load.receipt.load_id, ["url"], _BATCH_ROWS))
        urls = pa.chunked_array([batch.column(0) for batch in batches], pa.string()).drop_null()
    counts = [
        (str(each["values"]), int(each["counts"])) for each in urls.value_counts().to_pylist() if each["counts"] > 1
    ]
    return sum(rows - 1 for _, rows in counts), sorted(counts, key=lambda item: (-item[1], item[0]))[:FIRST]


def _int(value: int) -> dg.MetadataValue:
    return dg.MetadataValue.int(value)
