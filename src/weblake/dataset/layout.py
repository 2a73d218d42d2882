"""Where everything lies below a root, and how partition values become folder names.

Folders are Hive's `key=value`, escaped as Hive and Spark do it: ASCII that means something in a path, a URL or a glob
is percent-encoded as are percent signs, and all other text stands as it is. pyarrow, DuckDB, Polars and Spark read the
value back. They also guess types from the text (`007` becomes a number in pyarrow and Polars) unless told a schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from urllib.parse import unquote

import msgspec

from weblake.dataset.identity import checked_load_id
from weblake.errors import InvalidOption, StorageRefused
from weblake.storage import Storage

#: All that weblake keeps about a root.
ROOT_RECORDS = "_weblake"
LAYOUT = "_weblake/layout.json"
LEDGER = "_weblake/ledger"
REFUSED = "_weblake/refused"
SUBMITTED = "_weblake/submitted"
#: The open load of each file of URLs that the command line was given (list_sources.py).
LISTS = "_weblake/lists"
#: The landed loads of each slot (slots.py).
SLOTS = "_weblake/slots"
#: Says that every landed load that has a slot is in the index; holds the load ids that could not be read for it.
SLOT_INDEX, EMPTY_SLOT_INDEX = f"{SLOTS}/index.json", b'{"version":1,"unreadable":[]}'
#: The records of retired loads, in a root that `weblake compact` has made (ledger_archive.py).
RETIRED = "_weblake/retired"
#: Which loads have been taken out of files that hold several, or are to be.
REMOVED = "_weblake/removed"
#: What each run read of the service's activity list and has not been folded into a day's file for good.
PENDING_ACTIVITY = "_weblake/activity"
#: What `weblake compact` puts into the root that it makes: first the one, and when all is there the other.
COMPACTION, COMPACTED = "_weblake/compaction.json", "_weblake/compacted.json"

#: The keys of a table whose user names none.
DEFAULT_KEYS = ("load_date",)
#: Most characters of a partition value, and most bytes of `key=value` once encoded: what file systems take.
MAX_VALUE, MAX_SEGMENT = 200, 255
REPORTS = ("credits", "tokens", "credits_by_key", "tokens_by_key")

#: The columns of each table; here as names only, because whoever plans a path must not need pyarrow.
DOCUMENTS_COLUMNS = (
    *("load_id", "job_id", "job_kind", "position", "url", "source_url", "scrape_id", "status_code", "title"),
    *("description", "language", "keywords", "content_type", "og_locale_alternate", "markdown", "summary", "html"),
    *("raw_html", "screenshot", "audio", "video", "answer", "highlights", "links", "images", "json", "actions"),
    *("change_tracking", "branding", "warning", "error", "concurrency_limited", "concurrency_queue_duration_ms"),
    *("metadata", "extra", "repaired", "loaded_at"),
)
PAGE_ERRORS_COLUMNS = ("load_id", "job_id", "job_kind", "url", "outcome", "code", "error", "occurred_at")

#: The tables that loads go to; they share one set of keys, so that a document and the errors of its load lie alike.
LOAD_TABLES = ("documents", "page_errors")
#: The tables whose keys are always the same.
FIXED_KEYS = {"usage_periods": ("report", "period"), "activity": ("activity_date",)}

_KEY = re.compile(r"[a-z][a-z0-9_]*")
_ESCAPED = re.compile(r"""["#%'*/:=?\\{}\[\]^]""")
_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
#: How Hive writes null: a value of that name would come back as null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MONTH, _DAY = re.compile(r"\d{4}-(0[1-9]|1[0-2])"), re.compile(r"\d{4}-\d{2}-\d{2}")
_VERSION = 1
#: The end of the name of a file that holds several loads; before it stands the load that lay first in it.
_COMPACTED = "-compacted.parquet"


def check_partition(partition: Mapping[str, str]) -> None:
    """Refuses partition keys and values that some reader would not read back.

    Keys are `[a-z][a-z0-9_]*` (pyarrow skips folders that begin with an underscore) and no column's name; values are
    1 to 200 characters without control characters, and not Hive's word for null.

    Raises:
        InvalidOption: Names the key and what is wrong with it.
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
            raise InvalidOption(f"The value of the partition key {key!r} {why}.", hint="Give another value.")


def load_path(table: str, partition: Mapping[str, str] | None, created: datetime, load_id: str) -> str:
    """The final name of a load's file in `documents` or `page_errors`.

    Args:
        table: One of LOAD_TABLES.
        partition: Path keys and values in their order; None or empty for the default, `load_date`.
        created: When the intent was recorded: its UTC date is the load's `load_date`, however late it is written.
        load_id: 16 hexadecimal digits.
    """
    keys = dict(partition) if partition else {DEFAULT_KEYS[0]: created.astimezone(timezone.utc).date().isoformat()}
    check_partition(keys)
    return f"{_table(table)}/{_folders(keys)}/{checked_load_id(load_id)}-00000.parquet"


def compacted_path(folder: str, load_id: str) -> str:
    """The name of a file that holds several loads of one folder of a table, by the first of them.

    A load lies in one file, so no two files have one name.
    """
    return f"{folder}/{checked_load_id(load_id)}{_COMPACTED}"


def is_compacted(name: str) -> bool:
    """Whether a file may hold several loads; any other of ours holds the one that it is named by."""
    return name.endswith(_COMPACTED)


def load_id_in(name: str) -> str:
    """What stands where a load's own file has its load id."""
    return name.rpartition("/")[2].partition("-")[0]


def check_whole(storage: Storage) -> None:
    """Refuses a root that `weblake compact` has begun to make and not finished: half of its loads may be unknown there.

    Raises:
        StorageRefused: It is one.
    """
    if storage.read(COMPACTION) is not None and storage.read(COMPACTED) is None:
        raise StorageRefused(
            f"{storage.url} is no whole dataset yet: the compaction that makes it has not finished.",
            hint="Wait for it; if it was stopped, start it once more: it goes on.",
        )


def check_holds_dataset(storage: Storage) -> None:
    """Refuse a root in which nothing has landed and nothing was meant to: most likely it is another path.

    Raises:
        StorageRefused: It holds no dataset.
    """
    places = (ROOT_RECORDS, *LOAD_TABLES, *FIXED_KEYS)
    if not storage.exists(LAYOUT) and not any(storage.list(place) for place in places):
        raise no_dataset(storage)


def no_dataset(storage: Storage) -> StorageRefused:
    """Return the error that a root holds no dataset."""
    return StorageRefused(f"{storage.url} holds no dataset.", hint="Give the root that weblake has landed in.")


def refused_path(table: str, load_id: str) -> str:
    """Where a checked file is kept that may not be published."""
    return f"{REFUSED}/{checked_load_id(load_id)}.{_table(table)}.parquet"


def submitted_folder(load_id: str) -> str:
    """The folder of the lists of URLs that were sent for a load."""
    return f"{SUBMITTED}/{checked_load_id(load_id)}"


def submitted_path(load_id: str, digest: str | None = None) -> str:
    """Where a list of URLs that was sent for a load is kept; without a digest, where earlier versions kept it."""
    folder = submitted_folder(load_id)
    return f"{folder}.json.gz" if digest is None else f"{folder}/{digest}.json.gz"


def list_source_path(source: str) -> str:
    """The record of the load that a file of URLs was last started as."""
    return f"{LISTS}/{checked_load_id(source)}.json"


def slot_entry_path(group: str, load_id: str) -> str:
    """The index entry of a landed load in a group of loads that may replace each other."""
    return f"{SLOTS}/{checked_load_id(group)}/{checked_load_id(load_id)}.json"


def retired_path(shard: int) -> str:
    """The file that holds a part of the archived records of retired loads."""
    return f"{RETIRED}/{shard:05d}.json.gz"


def removed_folder(name: str) -> str:
    """The folder that names the loads to be taken out of a compacted file."""
    return f"{REMOVED}/{name.partition('/')[0]}/{load_id_in(name)}"


def usage_path(report: str, period: str) -> str:
    """The file of one report and month, such as `2026-11`."""
    if report not in REPORTS or not _MONTH.fullmatch(period):
        raise InvalidOption(
            f"There is no usage report {report!r} of {period!r}.",
            hint=f"Reports: {', '.join(REPORTS)}; periods: YYYY-MM.",
        )
    return f"usage_periods/{_folders({'report': report, 'period': period})}/usage.parquet"


def activity_path(day: date | str) -> str:
    """The file of one UTC day."""
    text = day if isinstance(day, str) else f"{day:%Y-%m-%d}"
    if not _DAY.fullmatch(text):
        raise InvalidOption(f"{text!r} is no day.", hint="Days are YYYY-MM-DD.")
    return f"activity/{_folders({'activity_date': text})}/activity.parquet"


def keys_of(name: str) -> dict[str, str]:
    """The path keys of a file's name, decoded, in their order."""
    pairs = (part.partition("=") for part in name.split("/")[:-1] if "=" in part)
    return {unquote(key): unquote(value) for key, _, value in pairs}


class LayoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Which path keys each table of a root has, in their order."""

    version: int
    tables: dict[str, tuple[str, ...]]


class Layout:
    """The record of a root's path keys, which its first load fixes for good.

    There is one record and it is created whole, so of two first loads with different keys one wins, and the other is
    refused before it has paid.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self) -> LayoutRecord | None:
        """The record, or None in a root where nothing has landed.

        Raises:
            StorageRefused: It cannot be read.
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
        """A table's path keys; where nothing has fixed them yet, those that it has by default."""
        record = self.read()
        return record.tables.get(table, ()) if record else FIXED_KEYS.get(table, DEFAULT_KEYS)

    def claim(self, table: str, keys: Sequence[str]) -> None:
        """Fixes a load table's path keys, or holds them against those that are fixed.

        Raises:
            StorageRefused: The table has other keys, or the same in another order. Nothing has been paid by then.
        """
        record = self.read() or self._first(_table(table), tuple(keys))
        fixed = record.tables.get(table, ())
        if fixed != tuple(keys):
            raise StorageRefused(
                f"The table {table} of {self._storage.url} is partitioned by {', '.join(fixed) or 'nothing'}, "
                f"not by {', '.join(keys)}.",
                hint="A table has one set of keys, fixed by its first load: give the same ones, or use another root.",
            )

    def _first(self, table: str, keys: tuple[str, ...]) -> LayoutRecord:
        # Nothing has landed here yet, so the index of slots is complete from the first load on.
        self._storage.create(SLOT_INDEX, EMPTY_SLOT_INDEX)
        tables = {**dict.fromkeys(LOAD_TABLES, keys), **FIXED_KEYS}
        record = LayoutRecord(version=_VERSION, tables=tables)
        # Equal bytes from another writer mean the same keys: this record needs no nonce.
        self._storage.create(LAYOUT, msgspec.json.encode(record))
        found = self.read()
        if found is None:
            raise self._unreadable("it vanished after it was written")
        return found

    def _unreadable(self, why: str) -> StorageRefused:
        return StorageRefused(
            f"The record {LAYOUT} of {self._storage.url} cannot be read: {why}.",
            hint="Restore it, upgrade weblake, or use another root; deleting it lets the next load fix the keys anew.",
        )


def _table(table: str) -> str:
    if table not in LOAD_TABLES:
        raise InvalidOption(f"{table!r} is no table of loads.", hint=f"Tables: {', '.join(LOAD_TABLES)}.")
    return table


def _folders(keys: Mapping[str, str]) -> str:
    return "/".join(_segment(key, value) for key, value in keys.items())


def _segment(key: str, value: str) -> str:
    return f"{key}={_ESCAPED.sub(lambda found: f'%{ord(found[0]):02X}', value)}"


def _unfit(key: str, value: object) -> str:
    if not isinstance(value, str):
        return "is no text"
    if not value or len(value) > MAX_VALUE:
        return f"has {len(value)} characters; 1 to {MAX_VALUE} are allowed"
    if _UNFIT.search(value):
        return "holds a control character or half a surrogate pair"
    if value == _NULL:
        return "is the word that stands for null in partitioned tables"
    if len(_segment(key, value).encode()) > MAX_SEGMENT:
        return f"is longer than {MAX_SEGMENT} bytes once it is encoded as a folder name"
    return ""
