"""Paths of all files below a root, and the encoding of partition values as folder names.

Folders have Hive's form `key=value`, escaped as Hive and Spark do it: ASCII characters with a meaning in a path, a URL
or a glob, and percent signs, are percent-encoded; all other text is unchanged. pyarrow, DuckDB, Polars and Spark decode
the value. They also infer types from the text (`007` becomes a number in pyarrow and Polars) unless a schema is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from urllib.parse import unquote

import msgspec

from weblake.dataset.identity import checked_load_id
from weblake.errors import InvalidOption, Remedy, StorageRefused
from weblake.storage import Storage

#: Folder of the records that weblake keeps about a root.
ROOT_RECORDS = "_weblake"
LAYOUT = "_weblake/layout.json"
LEDGER = "_weblake/ledger"
REFUSED = "_weblake/refused"
SUBMITTED = "_weblake/submitted"
#: The load last started for each file of URLs that was given to the command line (loads/list_sources.py).
LISTS = "_weblake/lists"
#: The landed loads of each slot (slots.py), and how the names of an entry and of a note about publishing end.
SLOTS, SLOT_ENTRY, SLOT_PUBLISHING = "_weblake/slots", ".json", ".publishing"
#: The records of the Delta Lake and Iceberg tables of a dataset (tables/registration.py).
TABLES = "_weblake/tables"
#: Loads that a table has committed, added or removed.
COMMITTED = "_weblake/committed"
#: The Delta Lake tables of the dataset, which have copies of its rows.
DELTA = "delta"
#: Entries of the service's activity list that a run has read and that are not yet merged into a day's file.
PENDING_ACTIVITY = "_weblake/activity"

#: Which version of which page each replaced load had, and the note that somebody asks for that (dataset/changes.py).
REPLACED, CURSORS = "_weblake/replaced", "_weblake/replaced/cursors.json"

#: The partition keys of the load tables by default.
DEFAULT_KEYS = ("load_date",)
#: Maximum characters of a partition value, and maximum bytes of the encoded `key=value`: the limit of file systems.
MAX_VALUE, MAX_SEGMENT = 200, 255
REPORTS = ("credits", "tokens", "credits_by_key", "tokens_by_key")

#: The columns of each table, as names only: computing a path must not require pyarrow.
DOCUMENTS_COLUMNS = (
    *("load_id", "job_id", "job_kind", "position", "url", "source_url", "scrape_id", "status_code", "title"),
    *("description", "language", "keywords", "content_type", "og_locale_alternate", "markdown", "summary", "html"),
    *("raw_html", "screenshot", "audio", "video", "answer", "highlights", "links", "images", "json", "actions"),
    *("change_tracking", "branding", "warning", "error", "concurrency_limited", "concurrency_queue_duration_ms"),
    *("metadata", "extra", "repaired", "loaded_at", "page_key", "content_sha256"),
)
PAGE_ERRORS_COLUMNS = ("load_id", "job_id", "job_kind", "url", "outcome", "code", "error", "occurred_at")

#: The tables that loads are landed in. They share one set of keys: documents and errors of a load have equal folders.
LOAD_TABLES = ("documents", "page_errors")
#: The tables whose keys are always the same.
FIXED_KEYS = {"usage_periods": ("report", "period"), "activity": ("activity_date",)}

_KEY = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPED = re.compile(r"""["#%'*/:=?\\{}\[\]^]""")
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
#: The names of data files: of a load and of a report.
_DATA = re.compile(r"[0-9a-f]{16}-00000\.parquet|(usage|activity)\.parquet")
#: Hive's name for null: readers would return null for this value.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MONTH, _DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])"), re.compile(r"\d{4}-\d{2}-\d{2}")
_VERSION = 1


def check_partition(partition: Mapping[str, str]) -> None:
    """Raise InvalidOption for partition keys and values that some reader would not read back.

    Keys are `[a-z][a-z0-9_]*` (pyarrow skips folders that begin with an underscore) and not the name of a column;
    values have 1 to 200 characters, no control characters, and are not Hive's name for null.

    Raises:
        InvalidOption: The message names the key and the reason.
    """
    for key, value in partition.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise InvalidOption(
                f"{key!r} cannot be a partition key.",
                hint="Use lower-case letters, digits and underscores, and begin with a letter.",
            )
        if key in DOCUMENTS_COLUMNS or key in PAGE_ERRORS_COLUMNS:
            raise InvalidOption(
                f"The partition key {key!r} is a column already.",
                hint="Choose another name: pandas and pyarrow cannot read a table that has it twice.",
            )
        why = _unfit(key, value)
        if why:
            raise InvalidOption(f"The value of the partition key {key!r} {why}.", hint="Use another value.")


def load_path(table: str, partition: Mapping[str, str] | None, created: datetime, load_id: str) -> str:
    """Return the final path of a load's file in `documents` or `page_errors`, relative to the root.

    Args:
        table: One of LOAD_TABLES.
        partition: Path keys and values in their order; None or empty for the default, `load_date`.
        created: When the intent was recorded. Its UTC date is the load's `load_date`, however late the file is written.
        load_id: 16 hexadecimal digits.
    """
    keys = dict(partition) if partition else {DEFAULT_KEYS[0]: created.astimezone(timezone.utc).date().isoformat()}
    check_partition(keys)
    return f"{_table(table)}/{_folders(keys)}/{checked_load_id(load_id)}-00000.parquet"


def is_data(name: str) -> bool:
    """Return whether weblake has written a file of a table, and no other program."""
    return _DATA.fullmatch(name.rpartition("/")[2]) is not None and "/_" not in name


def load_id_in(name: str) -> str:
    """Return the load id in the name of a load's file or record."""
    return name.rpartition("/")[2].partition("-")[0].partition(".")[0]


def check_holds_dataset(storage: Storage) -> None:
    """Refuse a root without a dataset, most likely a wrong path.

    Raises:
        StorageRefused: The root holds no records and no tables.
    """
    places = (ROOT_RECORDS, *LOAD_TABLES, *FIXED_KEYS)
    if not storage.exists(LAYOUT) and not any(storage.list(place) for place in places):
        raise no_dataset(storage)


def no_dataset(storage: Storage) -> StorageRefused:
    """Return the error that a root holds no dataset."""
    return StorageRefused(
        f"{storage.url} holds no dataset.",
        hint="Give the root of a dataset that weblake has written. A new root becomes one with its first load.",
    )


def refused_path(table: str, load_id: str) -> str:
    """Return the path of a checked file that must not be published."""
    return f"{REFUSED}/{checked_load_id(load_id)}.{_table(table)}.parquet"


def submitted_path(load_id: str, digest: str) -> str:
    """Return the path of a list of URLs that was sent for a load."""
    return f"{SUBMITTED}/{checked_load_id(load_id)}-{digest}.json.gz"


def list_source_path(source: str) -> str:
    """Return the path of the record that names the load last started for a file of URLs."""
    return f"{LISTS}/{checked_load_id(source)}.json"


def slot_entry_path(group: str, load_id: str) -> str:
    """Return the path of the index entry of a landed load in a group of loads that may replace each other."""
    return f"{SLOTS}/{checked_load_id(group)}/{checked_load_id(load_id)}{SLOT_ENTRY}"


def publishing_path(group: str, load_id: str) -> str:
    """Return the path of the note that a load of a group is being published, or was by a run that died meanwhile."""
    return f"{SLOTS}/{checked_load_id(group)}/{checked_load_id(load_id)}{SLOT_PUBLISHING}"


def usage_path(report: str, period: str) -> str:
    """Return the path of the file of one usage report and month, such as `2026-11`."""
    if report not in REPORTS or not _MONTH.fullmatch(period):
        raise InvalidOption(
            f"There is no usage report {report!r} of {period!r}.",
            hint=f"Reports: {', '.join(REPORTS)}; periods: YYYY-MM.",
        )
    return f"usage_periods/{_folders({'report': report, 'period': period})}/usage.parquet"


def activity_path(day: date | str) -> str:
    """Return the path of the activity file of one UTC day."""
    text = day if isinstance(day, str) else f"{day:%Y-%m-%d}"
    if not _DAY.fullmatch(text):
        raise InvalidOption(f"{text!r} is not a day.", hint="Days are YYYY-MM-DD.")
    return f"activity/{_folders({'activity_date': text})}/activity.parquet"


def keys_of(name: str) -> dict[str, str]:
    """Return the path keys and decoded values in a file's path, in order."""
    pairs = (part.partition("=") for part in name.split("/")[:-1] if "=" in part)
    return {unquote(key): unquote(value) for key, _, value in pairs}


class LayoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of the path keys of each table of a root, in order."""

    version: int
    tables: dict[str, tuple[str, ...]]


class Layout:
    """Reads and creates the record of a root's path keys, which the first load fixes permanently.

    There is one record, created atomically: of two concurrent first loads with different keys one succeeds, and the
    other is refused before it has paid.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> LayoutRecord | None:
        """Return the record, or None in a root where nothing has landed.

        Raises:
            StorageRefused: The record cannot be read.
        """
        data = self._storage.read(LAYOUT)
        if data is None:
            return None
        try:
            record = msgspec.json.decode(data, type=LayoutRecord)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise self._unreadable("it is damaged") from error
        if record.version != _VERSION:
            raise self._unreadable(f"it has version {record.version}, which this weblake does not know")
        return record

    def keys(self, table: str) -> tuple[str, ...]:
        """Return a table's path keys; the default keys if none are recorded yet."""
        record = self.read()
        return record.tables.get(table, ()) if record else FIXED_KEYS.get(table, DEFAULT_KEYS)

    def claim(self, table: str, keys: Sequence[str]) -> None:
        """Record a load table's path keys, or compare them with the recorded ones.

        Raises:
            StorageRefused: The table has other keys, or the same keys in another order. Nothing has been paid yet.
        """
        record = self.read() or self._first(_table(table), tuple(keys))
        fixed = record.tables.get(table, ())
        if fixed != tuple(keys):
            raise StorageRefused(
                f"The table {table} of {self._storage.url} is partitioned by {', '.join(fixed) or 'nothing'}, "
                f"not by {', '.join(keys)}.",
                hint=Remedy(
                    "A table has one set of keys, fixed by its first load: give the same ones, or use {another_root}."
                ),
            )

    def _first(self, table: str, keys: tuple[str, ...]) -> LayoutRecord:
        tables = {**dict.fromkeys(LOAD_TABLES, keys), **FIXED_KEYS}
        record = LayoutRecord(version=_VERSION, tables=tables)
        # Equal bytes from another writer mean the same keys, so this record needs no nonce.
        self._storage.create(LAYOUT, msgspec.json.encode(record))
        found = self.read()
        if found is None:
            raise self._unreadable("it vanished after it was written")
        return found

    def _unreadable(self, why: str) -> StorageRefused:
        return StorageRefused(
            f"The record {LAYOUT} of {self._storage.url} cannot be read: {why}.",
            hint=Remedy(
                "Restore it, upgrade weblake, or use {another_root}; deleting it lets the next load fix the keys anew."
            ),
        )


def _table(table: str) -> str:
    if table not in LOAD_TABLES:
        raise InvalidOption(f"{table!r} is not a table of loads.", hint=f"Tables: {', '.join(LOAD_TABLES)}.")
    return table


def _folders(keys: Mapping[str, str]) -> str:
    return "/".join(_segment(key, value) for key, value in keys.items())


def _segment(key: str, value: str) -> str:
    return f"{key}={_ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', value)}"


def _unfit(key: str, value: object) -> str:
    if not isinstance(value, str):
        return "is not a text"
    if not value or len(value) > MAX_VALUE:
        return f"has {len(value)} characters; 1 to {MAX_VALUE} are allowed"
    if _UNFIT.search(value):
        return "holds a control character or half a surrogate pair"
    if value == _NULL:
        return "is the word that stands for null in partitioned tables"
    if len(_segment(key, value).encode()) > MAX_SEGMENT:
        return f"is longer than {MAX_SEGMENT} bytes once it is encoded as a folder name"
    return ""
