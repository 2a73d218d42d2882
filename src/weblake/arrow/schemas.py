"""Arrow schemas of all tables. No type is inferred from data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

#: The version of all schemas below, stored in the footer of each file. Adding a column increases it.
SCHEMA_VERSION = 2

#: The type of all timestamps: microseconds, UTC.
TIMESTAMP = pa.timestamp("us", tz="UTC")

_STRINGS = pa.list_(pa.string())

#: Results of the actions of a browser on a page. Bodies are large_string, as in all tables.
ACTIONS = pa.struct(
    [
        ("screenshots", _STRINGS),
        ("scrapes", pa.list_(pa.struct([("url", pa.string()), ("html", pa.large_string())]))),
        ("javascript_returns", pa.list_(pa.struct([("type", pa.string()), ("value", pa.large_string())]))),
        ("pdfs", _STRINGS),
    ]
)

#: The changes of a page since its last scrape.
CHANGE_TRACKING = pa.struct(
    [
        ("previous_scrape_at", TIMESTAMP),
        ("change_status", pa.string()),
        ("visibility", pa.string()),
        ("diff", pa.large_string()),
        ("json", pa.large_string()),
    ]
)

#: One row per page that the service returned.
DOCUMENTS = pa.schema(
    [
        ("load_id", pa.string()),
        ("job_id", pa.string()),
        ("job_kind", pa.string()),
        ("position", pa.int64()),
        ("url", pa.string()),
        ("source_url", pa.string()),
        ("scrape_id", pa.string()),
        ("status_code", pa.int32()),
        ("title", pa.string()),
        ("description", pa.string()),
        ("language", pa.string()),
        ("keywords", pa.string()),
        ("content_type", pa.string()),
        ("og_locale_alternate", _STRINGS),
        ("markdown", pa.large_string()),
        ("summary", pa.large_string()),
        ("html", pa.large_string()),
        ("raw_html", pa.large_string()),
        ("screenshot", pa.large_string()),
        ("audio", pa.large_string()),
        ("video", pa.large_string()),
        ("answer", pa.large_string()),
        ("highlights", pa.large_string()),
        ("links", _STRINGS),
        ("images", _STRINGS),
        ("json", pa.large_string()),
        ("actions", ACTIONS),
        ("change_tracking", CHANGE_TRACKING),
        ("branding", pa.large_string()),
        ("warning", pa.string()),
        ("error", pa.string()),
        ("concurrency_limited", pa.bool_()),
        ("concurrency_queue_duration_ms", pa.int64()),
        ("metadata", pa.map_(pa.string(), pa.string())),
        ("extra", pa.large_string()),
        ("repaired", pa.bool_()),
        ("loaded_at", TIMESTAMP),
        # Since version 2: computed from the columns that pages.COMPUTED names.
        ("page_key", pa.string()),
        ("content_sha256", pa.string()),
    ]
)

#: One row per submitted URL without a document; outcome is failed, robots_blocked, rejected or missing.
PAGE_ERRORS = pa.schema(
    [
        ("load_id", pa.string()),
        ("job_id", pa.string()),
        ("job_kind", pa.string()),
        ("url", pa.string()),
        ("outcome", pa.string()),
        ("code", pa.string()),
        ("error", pa.string()),
        ("occurred_at", TIMESTAMP),
    ]
)

#: One row per period of usage, and per API key if the report is split by key.
USAGE_PERIODS = pa.schema(
    [
        ("period_start", TIMESTAMP),
        ("period_end", TIMESTAMP),
        ("api_key", pa.string()),
        ("total_credits", pa.float64()),
        ("total_tokens", pa.float64()),
        ("reported_at", TIMESTAMP),
    ]
)

#: One row per API call of the team.
ACTIVITY = pa.schema(
    [
        ("id", pa.string()),
        ("endpoint", pa.string()),
        ("api_version", pa.string()),
        ("created_at", TIMESTAMP),
        ("target", pa.string()),
    ]
)

#: The schema of each table, by the name of its folder.
TABLES: Mapping[str, pa.Schema] = {
    "documents": DOCUMENTS,
    "page_errors": PAGE_ERRORS,
    "usage_periods": USAGE_PERIODS,
    "activity": ACTIVITY,
}


def with_keys(table: str, keys: Iterable[str] = ()) -> pa.Schema:
    """Return the columns of a table and, after them, its path keys as strings.

    The table is `documents`, `page_errors`, `usage_periods` or `activity`.
    """
    return pa.schema([*TABLES[table], *(pa.field(key, pa.string()) for key in keys)])
