"""Metadata of definitions and of landed loads: counts, names, addresses and a preview of the rows.

It holds no key, no header and no page's text. Texts from sites and services are shortened and cannot become links or
markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING
from urllib.parse import quote

import dagster as dg

# This class is not in Dagster's public module, although the metadata of Dagster's own integrations is based on it.
from dagster._core.definitions.metadata.metadata_set import NamespacedMetadataSet

from dagster_weblake.metadata.columns import column_schema
from dagster_weblake.metadata.text_format import amount, format_table, plain, typed
from weblake import orchestration

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    import weblake


#: Rows and columns of the preview; rows of the outcomes.
PREVIEW_ROWS, PREVIEW_COLUMNS, OUTCOME_ROWS = 5, ("url", "title", "status_code", "content_type"), 10
#: Events that are read at once.
EVENTS = 500
#: Different reasons that are counted separately, however many a site returns, and characters of one.
_REASONS, _REASON = 1000, 120
#: Characters that are not percent-encoded in a file's URI. Readers differ in whether they decode it, so as few as
#: possible are encoded.
_SAFE = "/=@:+,!~"
#: Counts that every load reports, so that their plots have no gaps, and those that it reports if they are not 0.
_COUNTS = ("submitted", "stored", "failed")
_RARE_COUNTS = ("fresh", "robots_blocked", "rejected", "missing", "duplicates")


class WeblakeMetadataSet(NamespacedMetadataSet):
    """The metadata of a load, under `weblake/…`; `extract` reads it back from a materialization's metadata."""

    load_id: str | None = None
    job_id: str | None = None
    #: The address of the job's page, or of its status.
    job: str | None = None
    #: batch_scrape, crawl, scrape or parse.
    kind: str | None = None
    #: The job's final status: completed, failed, cancelled.
    status: str | None = None
    complete: bool | None = None
    submitted: int | None = None
    stored: int | None = None
    failed: int | None = None
    # A load leaves these out if they are 0.
    #: URLs that were not sent because a page of them is fresh.
    fresh: int | None = 0
    robots_blocked: int | None = 0
    rejected: int | None = 0
    missing: int | None = 0
    duplicates: int | None = 0
    #: None if the service does not say.
    credits_used: float | None = None
    #: Of the run that landed the load: seconds of waiting for the job, bytes of its results after decompression, and
    #: repeated requests. None if an earlier run had landed it.
    wait_seconds: float | None = None
    downloaded_bytes: int | None = None
    retries: int | None = None
    #: Starts without a response, whose outcome was found out; left out if 0.
    lost_starts: int | None = 0
    #: The dataset's root, without secrets.
    root: str | None = None
    #: Seconds of the epoch.
    landed_at: float | None = None
    #: Of a job that was only started: its deadline, in seconds of the epoch.
    deadline: float | None = None
    #: Of a job that was only started: the credits at which it is cancelled.
    max_credits: float | None = None

    @classmethod
    def namespace(cls) -> str:
        """Return `weblake`."""
        return "weblake"


def definition_metadata(
    table: str,
    *,
    report: str | None = None,
    budget: float | None = None,
    to: str | None = None,
    starts: str | None = None,
) -> dict[str, object]:
    """Return the metadata of an asset's definition.

    Args:
        table: documents, usage_periods or activity.
        report: For usage: credits, tokens, credits_by_key or tokens_by_key.
        budget: For usage: the limit of one month, if there is one; the check of usage uses it.
        to: The asset's own root; None if it is the resource's.
        starts: For an asset that only starts a job: the key of the asset that collects it. It holds no table then.

    Raises:
        KeyError: There is no such table.
    """
    own: dict[str, object] = {} if to is None else {"weblake/to": to}
    if starts is not None:
        return own | {"weblake/starts": starts}
    own["weblake/table"] = table
    name = table
    if report is not None:
        own["weblake/report"] = report
        name = f"{table}/report={report}"
    if budget is not None:
        own["weblake/budget"] = float(budget)
    return own | {
        "dagster/column_schema": column_schema(table),
        # A table has one name: with two roots, the name of a table outside the default root includes its address.
        "dagster/table_name": name if to is None else f"{to.rstrip('/')}/{name}",
        "dagster/storage_kind": "parquet",
    }


def load_named_by(record: dg.EventLogRecord) -> str | None:
    """Return the load that a materialization's metadata name; empty if no URL was due, None if the event names none."""
    event = record.asset_materialization
    found = {} if event is None else event.metadata
    if "weblake/load_id" not in found:
        return "" if "weblake/fresh" in found else None
    load = found["weblake/load_id"].value
    return load if isinstance(load, str) else None


def named_loads(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str] | None = None, *, pages: int | None = None
) -> Iterator[tuple[str, dg.EventLogRecord]]:
    """Yield the loads that an asset's materializations name, with the events, newest first; empty if no URL was due.

    Args:
        instance: The instance of the event log.
        key: The asset.
        partitions: Only events of these partitions; default all. A database limits the number of values.
        pages: The number of pages of events that are searched after the newest event; default all.
    """
    wanted = dg.AssetRecordsFilter(key, asset_partitions=partitions)
    cursor: str | None = None
    for limit in chain([1], repeat(EVENTS) if pages is None else [EVENTS] * pages):  # the newest one is usually enough
        page = instance.fetch_materializations(wanted, limit=limit, cursor=cursor)
        yield from ((load, record) for record in page.records if (load := load_named_by(record)) is not None)
        if not page.has_more:
            return
        cursor = page.cursor


def load_metadata(
    dataset: orchestration.Dataset,
    landing: orchestration.LandedLoad,
    *,
    partitioned: bool,
    job_url: str = "",
    totals: orchestration.Totals | None = None,
    changes: Mapping[str, int] | None = None,
) -> dict[str, dg.MetadataValue]:
    """Return the metadata of a load that has landed.

    The numbers of its receipt are numbers, so that Dagster plots them; the receipt itself is in the dataset. If a file
    has been removed again (a newer load has replaced it), only the preview is missing.

    Args:
        dataset: The dataset of the load.
        landing: The load.
        partitioned: Whether it is one partition of its asset.
        job_url: The address of the job's page, if it has one.
        totals: What the run has waited, retried and downloaded; None if an earlier run had landed the load.
        changes: How many pages are `new`, `changed` and `gone`; None if that was not counted.
    """
    receipt = landing.receipt
    files = {file.path.partition("/")[0]: file for file in receipt.files}
    documents, page_errors = files.get("documents"), files.get("page_errors")
    counts = {name: int(getattr(receipt, name)) for name in (*_COUNTS, *_RARE_COUNTS)}
    return typed(
        {
            # With nothing due there is no load: readers and checks use the one that landed before.
            "weblake/load_id": None if receipt.nothing_due else receipt.load_id,
            "weblake/job": _link(job_url),
            "weblake/job_id": receipt.job_id,
            "weblake/kind": receipt.kind,
            "weblake/status": receipt.status,
            "weblake/complete": receipt.complete,
            **({"weblake/limit_reached": True} if receipt.limit_reached else {}),
            "weblake/landed_at": _landed_at(landing),
            **table_facts(dataset, "documents", receipt.files, documents.rows if documents else 0, partitioned),
            **{f"weblake/{name}": count for name, count in counts.items() if count or name in _COUNTS},
            **{f"weblake/{kind}": count for kind, count in (changes or {}).items()},
            "weblake/credits_used": amount(receipt.credits_used),
            **({} if totals is None else _effort(totals)),
            "dagster/uri": _uri(dataset, documents),
            **({} if documents is None else _preview(dataset, documents.path)),
            "weblake/page_errors_uri": _uri(dataset, page_errors),
            **({} if page_errors is None else _outcomes(dataset, page_errors.path)),
        }
    )


def _effort(totals: orchestration.Totals) -> dict[str, object]:
    return {
        "weblake/wait_seconds": float(totals.wait_s),
        "weblake/downloaded_bytes": totals.downloaded_bytes,
        "weblake/retries": totals.retries,
        "weblake/lost_starts": totals.lost_starts or None,
    }


def started_metadata(
    dataset: orchestration.Dataset,
    intent: orchestration.Intent,
    job: orchestration.Job,
    *,
    deadline: float,
    max_credits: float | None,
    job_url: str = "",
) -> dict[str, dg.MetadataValue]:
    """Return the metadata of a job that was started and is collected later.

    Args:
        dataset: The dataset of the load.
        intent: The load.
        job: The job.
        deadline: The job's deadline, in seconds of the epoch.
        max_credits: The credits at which it is cancelled; None for no limit.
        job_url: The address of the job's page, if it has one.
    """
    kind = orchestration.JOB_KINDS.get(intent.kind)
    return typed(
        {
            "weblake/load_id": intent.load_id,
            "weblake/job": _link(job_url),
            "weblake/job_id": job.job_id,
            "weblake/kind": intent.kind,
            "weblake/root": dg.MetadataValue.text(dataset.url),
            "weblake/deadline": dg.MetadataValue.timestamp(deadline),
            "weblake/submitted": intent.submitted,
            "weblake/rejected": len(job.rejected) or None,
            "weblake/max_credits": amount(max_credits),
            "weblake/cancel_with": None if kind is None else f"weblake cancel {kind.command} {job.job_id}",
        }
    )


def activity_metadata(
    files: Sequence[weblake.LandedFile], dataset: orchestration.Dataset, entries: int, *, date: str | None
) -> dict[str, dg.MetadataValue]:
    """Return the metadata of activity that was landed.

    Args:
        files: The days' files that were replaced.
        dataset: The dataset of the files.
        entries: Calls that the service listed.
        date: The day that is materialized, YYYY-MM-DD; None for all at once.
    """
    wanted = [file for file in files if date is None or f"/activity_date={date}/" in f"/{file.path}"]
    uri = _uri(dataset, wanted[0] if wanted else None) if date else table_uri(dataset, "activity")
    facts = table_facts(dataset, "activity", wanted, sum(file.rows for file in wanted), date is not None)
    return typed({"weblake/entries": entries, **facts, "dagster/uri": uri})


def table_facts(
    dataset: orchestration.Dataset, table: str, files: Sequence[weblake.LandedFile], rows: int, partitioned: bool
) -> dict[str, object]:
    """Return the columns of a table, and the rows, bytes and root of landed files."""
    return {
        "dagster/column_schema": column_schema(table),
        "dagster/partition_row_count" if partitioned else "dagster/row_count": rows,
        "weblake/root": dg.MetadataValue.text(dataset.url),
        "weblake/bytes": sum(file.bytes for file in files),
    }


def file_uri(dataset: orchestration.Dataset, name: str) -> dg.MetadataValue:
    """Return the full address of a file of a dataset, without credentials: `file:///…` if it is local."""
    local = dataset.local_path(name)
    if local is not None:
        return dg.MetadataValue.text(f"file://{quote(str(local), safe=_SAFE)}")
    return dg.MetadataValue.text(f"{dataset.url.rstrip('/')}/{name}")


def table_uri(dataset: orchestration.Dataset, name: str) -> dg.MetadataValue:
    """Return the full address of a folder, with a slash at its end."""
    return dg.MetadataValue.text(f"{file_uri(dataset, name).value}/")


def _uri(dataset: orchestration.Dataset, file: weblake.LandedFile | None) -> dg.MetadataValue | None:
    return None if file is None else file_uri(dataset, file.path)


def _link(url: str) -> dg.MetadataValue | None:
    return dg.MetadataValue.url(url) if url else None


def _landed_at(landing: orchestration.LandedLoad) -> datetime:
    return datetime.fromisoformat(landing.landed_at) if landing.landed_at else datetime.now(timezone.utc)


def _preview(dataset: orchestration.Dataset, name: str) -> dict[str, dg.MetadataValue]:
    batches = _batches(dataset, name, PREVIEW_COLUMNS, PREVIEW_ROWS)
    each_row = (row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True))
    rows = list(islice(each_row, PREVIEW_ROWS))
    return {"preview": format_table(PREVIEW_COLUMNS, rows)} if rows else {}


def _outcomes(dataset: orchestration.Dataset, name: str) -> dict[str, dg.MetadataValue]:
    counts: Counter[tuple[str, str]] = Counter()
    for batch in _batches(dataset, name, ("outcome", "code", "error"), 1024):
        for outcome, code, error in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            reason = ": ".join(plain(part, _REASON) for part in (code, error) if part)
            kind = (str(outcome), reason)
            counts[kind if kind in counts or len(counts) < _REASONS else (str(outcome), "other reasons")] += 1
    if not counts:
        return {}
    rows: list[tuple[str, str, int]] = [(*kind, n) for kind, n in counts.most_common(OUTCOME_ROWS)]
    rest = counts.total() - sum(n for *_, n in rows)
    return {
        "outcomes": format_table(
            ("outcome", "reason", "pages"), [*rows, *([("", "other reasons", rest)] if rest else [])]
        )
    }


def _batches(dataset: orchestration.Dataset, name: str, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a landed file in batches, these columns only; none if the file cannot be read."""
    import pyarrow.parquet as pq

    try:
        with dataset.open(name) as source, pq.ParquetFile(source) as file:
            for batch in file.iter_batches(rows, columns=list(columns)):
                yield batch.select(list(columns))
    except Exception:  # noqa: BLE001 - storage libraries raise their own errors, and the preview is optional
        return
