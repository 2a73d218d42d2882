"""What changed in the pages of a dataset between two moments, for programs that pass changes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq

from weblake.arrow import schemas
from weblake.arrow.parquet import ParquetFile
from weblake.dataset import arrow_files, layout, ledger_listing
from weblake.dataset.ledger import Ledger
from weblake.dataset.newest import AFTER_IDS, Landings, Moment, Versions, When, collect, version_batches
from weblake.dataset.reading import Reading
from weblake.dataset.root import Dataset
from weblake.errors import FeatureMissing, InvalidOption, StorageRefused
from weblake.storage import RootPath, Storage, open_storage

_LOG = logging.getLogger("weblake.landing")

#: What happened to a page.
KINDS = ("new", "changed", "gone")
#: Statuses of an answer that a page is gone.
GONE = (404, 410)
#: While a load is being published, loads that landed less than this time ago wait: its record may state an earlier time
#: than theirs.
SETTLED = timedelta(seconds=60)
_START: Moment = (datetime.min.replace(tzinfo=timezone.utc), "")
#: What is compared, and what a change says.
_COLUMNS = ("content_sha256", "status_code", "source_url", "url", "loaded_at")


@dataclass(frozen=True, slots=True)
class Change:
    """A page that changed, and the loads of its version before and after."""

    #: `new`, `changed` or `gone`.
    kind: str
    #: The URL as it was requested.
    url: str
    page_key: str
    #: The load of the version after, and when it began. None for a page that is gone because the load that had it was
    #: replaced by one without it.
    load_id: str | None
    loaded_at: datetime | None
    #: The load of the version before, and when it began; None for a page that had none.
    before_load_id: str | None
    before_loaded_at: datetime | None

    def to_dict(self) -> dict[str, object]:
        """Return the change as a JSON-ready dict; times are ISO 8601."""
        return {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """The pages that changed between two moments, each once, sorted by `page_key`; iterate over it for `Change`s."""

    table: pa.Table
    #: The last load that was looked at: the `since` of the next call. None if nothing has landed so far.
    cursor: str | None

    def __iter__(self) -> Iterator[Change]:
        return (Change(**row) for batch in self.table.to_batches(1024) for row in batch.to_pylist())

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def counts(self) -> dict[str, int]:
        """Return the number of pages of each kind."""
        found = {each["values"]: each["counts"] for each in self.table["kind"].value_counts().to_pylist()}
        return {kind: found.get(kind, 0) for kind in KINDS}

    def to_table(self) -> pa.Table:
        """Return the changes as an Arrow table with the fields of `Change` as columns."""
        return self.table


def changes(
    root: RootPath,
    since: When | None = None,
    until: When | None = None,
    *,
    storage_options: Mapping[str, object] | None = None,
) -> Changes:
    """Return the pages whose newest version differs between two moments.

    A page is `new` if it has a version (a status below 400) and had none or was gone, `changed` if its `content_sha256`
    is another one, and `gone` if its newest answer is 404 or 410, or if the load that had it was replaced by one
    without it. Other answers change nothing: a page that fails today keeps the version of yesterday.

    The moment of a load is its landing. A program that keeps the `cursor` of each call as the `since` of the next one
    gets every change once: loads that began earlier and land later, loads that were replaced meanwhile (also the load
    of the cursor), and those in their place are accounted for. If a load is being published at the moment of the call,
    loads of the last 60 seconds are left to the next call.

    The first call notes in the root that cursors are kept: from then on, a load that is replaced leaves the page keys
    and hashes of its rows (`_weblake/replaced`). The small columns of all files are read. Memory holds about 1,300
    bytes for each page of the loads between the two moments.

    Args:
        root: The dataset's root.
        since: A load id or a time (without a zone: UTC). Default: before the first load.
        until: A load id or a time. Default: now.
        storage_options: Options for the file system of a URL, as fsspec takes them.

    Raises:
        InvalidOption: A moment is neither a landed load nor a time, or `until` is before `since`.
        StorageRefused: A file or a record cannot be read.
    """
    storage = open_storage(root, storage_options=storage_options)
    if storage.exists(layout.LAYOUT) and not storage.exists(layout.CURSORS):
        try:
            storage.create(layout.CURSORS, b"{}")
        except (StorageRefused, FeatureMissing) as error:
            _LOG.warning("Loads that are replaced from now on will be compared as if they had never been: %s", error)
    return _changes(storage, since, until)


def counts_of_load(dataset: Dataset, load_id: str) -> dict[str, int]:
    """Return how many pages a landed load has changed, by kind; the small columns of all files are read.

    The moments that are compared are just before its landing and its landing.

    Raises:
        InvalidOption: The load has not landed.
        StorageRefused: A file or a record cannot be read.
    """
    return _changes(dataset.storage, load_id, load_id, of_load=True).counts()


def _changes(storage: Storage, since: When | None, until: When | None, *, of_load: bool = False) -> Changes:
    ledger = Ledger(storage)
    landings = Landings.of(ledger, ledger_listing.steps(ledger))
    files = {layout.load_id_in(name): name for name in Reading(storage, "documents").files()}  # after the ledger
    start = _START if since is None else landings.moment(since)
    if of_load:
        start = max((at for at in landings.landed.values() if at < start), default=_START)
    end = _settled(landings, files) if until is None else landings.moment(until)
    if until is not None and end < start:
        raise InvalidOption("until is before since.", hint="Give a later load or time, or leave it out.")
    end = max(start, end)
    before, after = landings.at(start), landings.at(end)
    files |= {layout.load_id_in(name): name for name in storage.list(layout.REPLACED)}
    last = max((at for at in landings.landed.values() if at <= end), default=None)
    return Changes(_compare(storage, files, before, after), last[1] if last else None)


def _settled(landings: Landings, files: Mapping[str, str]) -> Moment:
    """Return the moment of the last load; earlier while a load is being published, which may come before that load."""
    now = datetime.now(timezone.utc)
    limit = now if files.keys() <= landings.landed.keys() else now - SETTLED
    return max((at for at in landings.landed.values() if at <= (limit, AFTER_IDS)), default=_START)


def _compare(storage: Storage, files: Mapping[str, str], before: set[str], after: set[str]) -> pa.Table:
    """Return the changes between the newest versions of two sets of loads, as a table.

    Only the pages of the loads in one of the sets can differ, so of the other loads only these pages are kept.
    """
    import pyarrow.compute as pc

    def versions(loads: set[str], among: pa.Array | None = None) -> Versions:
        found = Versions(_COLUMNS, among)
        names = {files[load_id]: load_id for load_id in sorted(loads & files.keys())}
        counted = pa.array(GONE, pa.int32())
        for rows, began in collect(
            storage, names, _COLUMNS, lambda status: pc.or_(pc.less(status, 400), pc.is_in(status, value_set=counted))
        ):
            found.add(rows, began)
        return found

    own = versions(before - after), versions(after - before)
    keys = pa.chunked_array([one.newest()["page_key"] for one in own], pa.string()).unique()
    common = versions(before & after, keys) if len(keys) else versions(set())
    old, new = (_state(one.merged(common).newest()) for one in own)
    both = old.join(new, "page_key", join_type="full outer", left_suffix="_before")
    was, there = (pc.fill_null(both[name], fill_value=False) for name in ("present_before", "present"))
    hashes = (pc.fill_null(both[name], "") for name in ("content_sha256_before", "content_sha256"))
    changed = pc.and_(pc.and_(was, there), pc.not_equal(*hashes))
    kind = pc.if_else(changed, "changed", pc.if_else(there, "new", "gone"))
    columns = {
        "kind": kind,
        "url": pc.coalesce(both["url"], both["url_before"]),
        "page_key": both["page_key"],
        "load_id": both["load_id"],
        "loaded_at": both["loaded_at"],
        "before_load_id": both["load_id_before"],
        "before_loaded_at": both["loaded_at_before"],
    }
    return pa.table(columns).filter(pc.or_(changed, pc.xor(was, there))).sort_by("page_key")


def _state(newest: pa.Table) -> pa.Table:
    """Return the newest version of each page: whether it is present, and what a change says of it."""
    import pyarrow.compute as pc

    urls = pc.coalesce(newest["source_url"], newest["url"])
    state = newest.select(["page_key", "load_id", "loaded_at", "content_sha256"]).append_column("url", urls)
    return state.append_column("present", pc.less(newest["status_code"], 400))


def keep_versions(storage: Storage, load_id: str, name: str) -> None:
    """Keep which version of which page a load has whose file is about to be deleted, because another one replaces it.

    Otherwise a program whose cursor is before the replacement would not learn what has changed since. Nothing is kept
    in a root without such a program, or of a file that is gone.

    Raises:
        StorageRefused: The file cannot be read, or nothing can be written.
        pyarrow.ArrowException: The file is damaged.
    """
    if not storage.exists(layout.CURSORS) or not storage.exists(name):
        return
    schema = pa.schema([schemas.DOCUMENTS.field(each) for each in ("page_key", *_COLUMNS)])
    with storage.scratch() as scratch, ParquetFile(scratch / "versions.parquet", schema) as kept:
        with arrow_files.opened(storage, name) as source:
            for batch in version_batches(pq.ParquetFile(source), name, schema):
                kept.write(batch)
        storage.publish(kept.close().path, f"{layout.REPLACED}/{load_id}.parquet")
