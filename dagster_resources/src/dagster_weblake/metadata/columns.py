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

#: The columns of each table, in order.
COLUMNS = {
    "documents": (
        "load_id job_id job_kind position url source_url scrape_id status_code title description language keywords "
        "content_type og_locale_alternate markdown summary html raw_html screenshot audio video answer highlights "
        "links images json actions change_tracking branding warning error concurrency_limited concurrency_queue_duration_ms "
        "metadata extra repaired loaded_at"
    ),
    "page_errors": "load_id job_id job_kind url outcome code error occurred_at",
    "usage_periods": "period_start period_end api_key total_credits total_tokens reported_at",
    "activity": "id endpoint api_version created_at target",
}
_LARGE = "markdown summary html raw_html screenshot audio video answer highlights json branding extra"
_TIMES = "loaded_at occurred_at period_start period_end reported_at created_at"
_TIME = "timestamp[us, tz=UTC]"
#: The names of their Arrow types; `string` for all others.
TYPES = {
    **dict.fromkeys(_LARGE.split(), "large_string"),
    **dict.fromkeys(_TIMES.split(), _TIME),
    **dict.fromkeys(("og_locale_alternate", "links", "images"), "list<string>"),
    **dict.fromkeys(("concurrency_limited", "repaired"), "bool"),
    **dict.fromkeys(("position", "concurrency_queue_duration_ms"), "int64"),
    **dict.fromkeys(("total_credits", "total_tokens"), "double"),
    "status_code": "int32",
    "metadata": "map<string, string>",
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
    own = [_column(name, TYPES.get(name, "string")) for name in COLUMNS[table].split()]
    return dg.TableSchema(columns=[*own, *(_column(key, "string") for key in keys)])


def _column(name: str, kind: str) -> dg.TableColumn:
    """Return one column. A struct's fields are in its description: as a type they are too wide for the page's table."""
    description = DESCRIPTIONS.get(name)
    if not kind.startswith("struct<"):
        return dg.TableColumn(name, kind, description=description)
    return dg.TableColumn(name, "struct", description=f"{description} Fields: `{kind[7:-1]}`.")


def type_name(kind: pa.DataType) -> str:
    """Return the name of an Arrow type without element names: `list<string>`, not `list<element: string>`."""
    return re.sub("<(element|item): ", "<", str(kind))
