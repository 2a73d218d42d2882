"""The columns of the tables as Dagster's table schemas.

They are data here, equal to the Arrow schemas, so that loading definitions and starting steps does not import Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    import pyarrow as pa

#: The columns of each table, in order, with their Arrow types if they are not strings.
COLUMNS = {
    "documents": "load_id job_id job_kind position:int64 url source_url scrape_id status_code:int32 title description "
    "language keywords content_type og_locale_alternate:list<string> markdown:large summary:large html:large "
    "raw_html:large screenshot:large audio:large video:large answer:large highlights:large links:list<string> "
    "images:list<string> json:large actions:actions change_tracking:change_tracking branding:large warning error "
    "concurrency_limited:bool concurrency_queue_duration_ms:int64 metadata:map extra:large repaired:bool "
    "loaded_at:time page_key content_sha256",
    "page_errors": "load_id job_id job_kind url outcome code error occurred_at:time",
    "usage_periods": "period_start:time period_end:time api_key total_credits:double total_tokens:double "
    "reported_at:time",
    "activity": "id endpoint api_version created_at:time target",
}
_TIME = "timestamp[us, tz=UTC]"
#: The Arrow types that have another name above.
_TYPES = {
    "": "string",
    "large": "large_string",
    "time": _TIME,
    "map": "map<string, string>",
    "actions": "struct<screenshots: list<string>, scrapes: list<struct<url: string, html: large_string>>, "
    "javascript_returns: list<struct<type: string, value: large_string>>, pdfs: list<string>>",
    "change_tracking": f"struct<previous_scrape_at: {_TIME}, change_status: string, visibility: string, "
    "diff: large_string, json: large_string>",
}

#: Descriptions of columns whose names do not explain them.
DESCRIPTIONS = {
    "load_id": "The load that this row belongs to.",
    "job_id": "The service's id of the job.",
    "job_kind": "batch_scrape, crawl, scrape or parse.",
    "position": "Order in which the service returned it, from 0.",
    "url": "The page's address.",
    "source_url": "The address that was asked for.",
    "scrape_id": "The service's id of the page.",
    "status_code": "The site's HTTP status.",
    "content_type": "The site's content type.",
    "json": "JSON text of the json extraction.",
    "actions": "What a browser did on the page.",
    "change_tracking": "How the page differs from its last scrape.",
    "branding": "JSON text.",
    "warning": "The service's warning about this page.",
    "error": "Why the page could not be had, in the service's words.",
    "concurrency_limited": "Whether the page had to wait for a free place.",
    "concurrency_queue_duration_ms": "For how many milliseconds it waited.",
    "metadata": "Every metadata key, raw: strings as they are, anything else as JSON text.",
    "extra": "JSON object of the fields that have no column.",
    "repaired": "A value had to be repaired to be storable.",
    "loaded_at": "When the load was put on record, UTC.",
    "page_key": "The page: the address that was asked for, less what services change in it.",
    "content_sha256": "SHA-256 of the page's stored text.",
    "outcome": "failed, robots_blocked, rejected or missing.",
    "code": "The service's code of the error.",
    "occurred_at": "When it happened, UTC.",
    "period_start": "Start of the period, UTC.",
    "period_end": "End of the period, UTC.",
    "api_key": "The key's name, as the service gives it; null where the report is not split by key.",
    "total_credits": "Credits used in the period.",
    "total_tokens": "Tokens used in the period.",
    "reported_at": "When the service was asked, UTC.",
    "id": "The job's id.",
    "endpoint": "What was called: scrape, crawl, batch_scrape and so on.",
    "api_version": "The version of the API that was called.",
    "created_at": "When it was called, UTC.",
    "target": "What was asked for, such as the first address.",
}


def column_schema(table: str, keys: Iterable[str] = ()) -> dg.TableSchema:
    """Return the columns of a table in their order, and then its path keys: name, Arrow type, description.

    Raises:
        KeyError: There is no such table.
    """
    return dg.TableSchema(columns=[_column(each) for each in (*COLUMNS[table].split(), *keys)])


def _column(named: str) -> dg.TableColumn:
    """Return one column. A struct's fields are in its description: as a type they are too wide for the page's table."""
    name, _, word = named.partition(":")
    description, kind = DESCRIPTIONS.get(name), _TYPES.get(word, word)
    if not kind.startswith("struct<"):
        return dg.TableColumn(name, kind, description=description)
    return dg.TableColumn(name, "struct", description=f"{description} Fields: `{kind[7:-1]}`.")


def type_name(kind: pa.DataType) -> str:
    """Return the name of an Arrow type without element names: `list<string>`, not `list<element: string>`."""
    return re.sub("<(element|item): ", "<", str(kind))
