"""The finding of each check: a sentence, numbers and the first offenders, without events or runs.

    the receipt alone            rows_above_zero, error_ratio, credits_under_budget
    the documents' file          duplicate_urls (its url column), schema_matches (its footer)
    every file of the receipt    receipt_matches_files (sizes and footers)
    the month's file             usage_under_budget

A file that cannot be read gives a finding, never a traceback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import dagster as dg

from dagster_weblake.metadata.columns import type_name
from dagster_weblake.metadata.text_format import amount, format_table, number, plain
from weblake import orchestration
from weblake.errors import WeblakeError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import weblake

#: Offenders that a finding names at most.
FIRST = 10
_BATCH_ROWS = 8192
_RESTORE = "Restore it from a backup, or land the load anew."


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    #: The finding as a sentence.
    says: str
    metadata: Mapping[str, float | str | dg.MetadataValue] = field(default_factory=dict)
    passed: bool = False
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
        if not dataset.exists(name):
            raise UnreadableError(f"{name} is gone.")
        with dataset.open(name) as source, pq.ParquetFile(source) as file:
            yield file
    except (WeblakeError, OSError, ValueError, pa.ArrowException) as error:
        raise UnreadableError(f"{name} cannot be read: {plain(error, 300)}") from error


def rows_above_zero(load: Load, limits: Limits) -> Finding:
    """At least `min_rows` documents have landed."""
    rows, submitted = load.receipt.stored, load.receipt.submitted
    return Finding(
        f"{number(rows)} of {number(submitted)} submitted pages are documents; at least {number(limits.min_rows)} must "
        "be.",
        {"rows": rows, "min_rows": limits.min_rows, "submitted": submitted},
        passed=rows >= limits.min_rows,
    )


def error_ratio(load: Load, limits: Limits) -> Finding:
    """At most `max_error_ratio` of the submitted pages failed, were rejected or are missing."""
    receipt, most = load.receipt, limits.max_error_ratio
    errors = receipt.failed + receipt.rejected + receipt.missing
    ratio = errors / receipt.submitted if receipt.submitted else 0.0
    counts = {name: getattr(receipt, name) for name in ("submitted", "failed", "rejected", "missing", "robots_blocked")}
    return Finding(
        f"{number(errors)} of {number(receipt.submitted)} submitted pages ({ratio:.1%}) failed, were rejected or are "
        f"missing; {most:.1%} may. Pages that robots.txt keeps out do not count.",
        {"error_ratio": ratio, "max_error_ratio": float(most), "errors": errors, **counts},
        passed=ratio <= most,
    )


def duplicate_urls(load: Load, limits: Limits) -> Finding:
    """At most `max_duplicate_urls` rows have a URL that an earlier row of the load has."""
    file, most = load.documents, limits.max_duplicate_urls
    extra, repeated = (0, []) if file is None else _repeats(load, file.path)
    rows = file.rows if file else 0
    named = {"first_duplicates": format_table(("url", "rows"), repeated)} if repeated else {}
    return Finding(
        f"{number(extra)} of {number(rows)} rows repeat the URL of another row; {number(most)} may.",
        {"duplicate_urls": extra, "max_duplicate_urls": most, "rows": rows, **named},
        passed=extra <= most,
    )


def schema_matches(load: Load, limits: Limits) -> Finding:
    """The documents' file has exactly the columns that this weblake writes."""
    from weblake import orchestration

    wanted = orchestration.table_schema("documents")
    if load.documents is None:
        return Finding("The load has no documents, and so no file of them.", passed=True)
    with opened(load.dataset, load.documents.path) as file:
        schema = file.schema_arrow
    if schema.equals(wanted):
        return Finding(f"The file has the {len(wanted)} columns of the table.", {"columns": len(wanted)}, passed=True)
    odd = _differences(schema, wanted)
    names = ", ".join(plain(name, 60) for name, *_ in odd[:3]) + (", …" if len(odd) > 3 else "")
    named = f"{len(odd)} differ ({names})" if odd else "they are in another order"
    return Finding(
        f"The file's columns are not those that this weblake writes: {named}. Another version or program wrote it; "
        "upgrade, or land the load anew.",
        {
            "columns": len(schema.names),
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
    counts = {"files": len(receipt.files), "mismatches": len(odd)}
    if not odd:
        return Finding(f"The files ({len(receipt.files)}) are as the receipt says.", counts, passed=True)
    return Finding(
        f"{plain(odd[0][0], 200)}: {odd[0][1]}. {_RESTORE}",
        {**counts, "first_mismatches": format_table(("file", "what is wrong"), odd[:FIRST])},
    )


def credits_under_budget(load: Load, limits: Limits) -> Finding:
    """The job used no more than `max_credits`."""
    assert limits.max_credits is not None
    used, most = load.receipt.credits_used, float(limits.max_credits)
    if used is None:
        return Finding("The service did not say what the job cost.", {"max_credits": most}, unknown=True)
    return Finding(
        f"The job used {number(used)} credits; {number(most)} may be used.",
        {"credits_used": float(used), "max_credits": most},
        passed=used <= most,
    )


#: Every check of a load by its name, in the order in which they are shown.
CHECKS: Mapping[str, Callable[[Load, Limits], Finding]] = {
    each.__name__: each
    for each in (
        rows_above_zero,
        error_ratio,
        duplicate_urls,
        schema_matches,
        receipt_matches_files,
        credits_under_budget,
    )
}


def find(check: str, load: Load, limits: Limits) -> Finding:
    """Return the finding of a check for a load."""
    try:
        return CHECKS[check](load, limits)
    except UnreadableError as error:
        return Finding(f"{error} {_RESTORE}")


def usage_under_budget(dataset: orchestration.Dataset, report: str, budget: float, month: str) -> Finding:
    """The month has used no more than its budget so far: that of the run's partition, or else the current month."""
    unit = report.removesuffix("_by_key")
    name = f"usage_periods/report={report}/period={month}/usage.parquet"
    limit: dict[str, float | str | dg.MetadataValue] = {"budget": float(budget), "period": month}
    if not dataset.exists(name):
        says = f"No usage of {month} has landed yet ({name} is not there). Materialize the asset for this month."
        return Finding(says, limit, unknown=True)
    try:
        with opened(dataset, name) as file:
            table = file.read(columns=[f"total_{unit}", "reported_at"])
    except UnreadableError as error:
        return Finding(f"{error} Materialize the asset for {month} again.", limit)
    used = sum(amount(value) or 0.0 for value in table.column(f"total_{unit}").to_pylist())
    reported = max((at for at in table.column("reported_at").to_pylist() if at is not None), default=None)
    if reported is not None:
        limit["reported_at"] = dg.MetadataValue.timestamp(reported)
    when = f", reported {reported:%Y-%m-%d %H:%M} UTC" if reported is not None else ""
    return Finding(
        f"{month} has used {number(used)} of {number(budget)} {unit} so far{when}.",
        {**limit, unit: used, "left": budget - used},
        passed=used <= budget,
    )


def _mismatch(load: Load, file: weblake.LandedFile) -> str:
    """Return what is wrong with a file of a receipt; empty if it matches."""
    try:
        with opened(load.dataset, file.path) as parquet:
            rows = int(parquet.metadata.num_rows)
        found = load.dataset.size(file.path)
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
    import pyarrow.compute as pc

    with opened(load.dataset, name) as file:
        if "url" not in file.schema_arrow.names:
            raise UnreadableError(f"{name} has no column url.")
        batches = file.iter_batches(_BATCH_ROWS, columns=["url"])
        counts = pa.chunked_array([batch.column(0) for batch in batches], pa.string()).drop_null().value_counts()
    repeated = counts.filter(pc.greater(counts.field("counts"), 1)).to_pylist()
    ordered = sorted(((each["values"], each["counts"]) for each in repeated), key=lambda item: (-item[1], item[0]))
    return sum(rows - 1 for _, rows in ordered), ordered[:FIRST]
