"""Ledger of the root that a compaction makes. Its size depends on the number of live and open loads only.

Records of live and open loads are copied. Records of retired loads, and the records that are filed under their jobs,
move to the archive (ledger_archive.py), so that a retry of such a load still finds them. Done records and index
entries are changed to name the files of the new root; a load whose records cannot be read is copied unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain

import msgspec

from weblake.dataset import layout, ledger_archive, parallel
from weblake.dataset.compaction_record import changed_error
from weblake.dataset.identity import job_load_id
from weblake.dataset.ledger import Ledger
from weblake.dataset.ledger_listing import INTENT, LATER_START, VOID, LoadRecords, id_of, names_of, read_each
from weblake.dataset.merging import differs_error
from weblake.storage import Storage

#: Start records that a load can have.
_MAX_STARTS = 20


class LedgerCopy:
    """One run of the copy of a ledger."""

    def __init__(self, source: Storage, target: Storage, known: Mapping[int, int]) -> None:
        self._ledger, self._source, self._target = Ledger(source), source, target
        #: The records that exist of each load and each job.
        self._known = known
        self._archived: set[int] = set()

    def retires(self, load: LoadRecords) -> None:
        """Mark a retired load for the archive, with the id under which its job is filed."""
        assert load.done is not None
        ids = {int(load.load_id, 16)}
        kind, job_id = load.done.receipt.get("kind"), load.done.receipt.get("job_id")
        if isinstance(kind, str) and isinstance(job_id, str):
            filed = int(job_load_id(kind, job_id), 16)
            if not self._known.get(filed, 0) & INTENT:  # with an intent it is a load of its own
                ids.add(filed)
        self._archived |= {each for each in ids if each in self._known}

    def archive(self) -> int:
        """Write the archive and return the number of its shards."""
        old = self._ledger.archive.count()
        held: Counter[int] = Counter()
        for number in range(old):
            held[number] = len({name[:16] for name in self._ledger.archive.shard(number)})
        count = ledger_archive.shards_for(held.total() + len(self._archived), at_least=old)
        own = sorted(self._archived, key=lambda each: (each % count if count else 0, each))
        at = 0
        for number in range(count):
            records = dict[str, bytes]()
            if old:  # both counts are powers of two, so a new shard is a subset of one old shard
                kept = self._ledger.archive.shard(number % old).items()
                records |= {name: data for name, data in kept if int(name[:16], 16) % count == number}
            until = at
            while until < len(own) and own[until] % count == number:
                until += 1
            for each, found in zip(own[at:until], read_each(self._ledger, own[at:until], self._records), strict=True):
                if found is None:
                    self._archived.discard(each)
                else:
                    records |= found
            at = until
            self._publish(layout.retired_path(number), ledger_archive.encode_shard(records))
        return count

    def _records(self, number: int) -> dict[str, bytes] | None:
        """Return all records of an id by their names below the ledger, or None if one of them is damaged."""
        found: dict[str, bytes] = {}
        has = self._known[number]
        later = range(2, _MAX_STARTS + 1) if has & LATER_START else ()
        voids = range(1, _MAX_STARTS + 1) if has & VOID else ()
        maybe = [*(f".start-{n}" for n in later), *(f".start-{n}.void" for n in voids)]
        for step in chain(names_of(has), maybe):
            name = f"{id_of(number)}{step}.json"
            data = self._source.read(f"{layout.LEDGER}/{name}")
            if data is None and step in maybe:
                continue
            if data is None:
                raise changed_error(self._source, self._target, [name])
            try:
                msgspec.json.decode(data)
            except (msgspec.DecodeError, ValueError, RecursionError):
                return None
            found[name] = data
        return found

    def copy(self, moved: Mapping[str, tuple[str, int]]) -> None:
        """Copy all records that are not archived; intents last, so that a process that finds one finds all records.

        Args:
            moved: The name and size in bytes of the new file that holds the rows of each old file, by its name.
        """
        for folder, intents in ((layout.LEDGER, False), (layout.SLOTS, None), (layout.LEDGER, True)):
            names = (name for page in self._source.pages(folder) for name in page)
            wanted = (name for name in names if intents in (None, name.count(".") == 1) and not self._is_gone(name))
            for _ in parallel.in_order(wanted, lambda name: self._copy_one(name, moved)):
                pass

    def _is_gone(self, name: str) -> bool:
        own = name.rpartition("/")[2][:16]
        return len(own) == 16 and own.strip("0123456789abcdef") == "" and int(own, 16) in self._archived

    def _copy_one(self, name: str, moved: Mapping[str, tuple[str, int]]) -> None:
        data = self._source.read(name)
        if data is None:
            raise changed_error(self._source, self._target, [name])
        if name.endswith(".done.json") or (name.startswith(layout.SLOTS) and name != layout.SLOT_INDEX):
            data = _renamed(data, moved)
        if not self._target.create(name, data) and self._target.read(name) != data:
            raise differs_error(self._target, name)

    def _publish(self, name: str, data: bytes) -> None:
        with self._target.scratch() as scratch:
            file = scratch / "shard"
            file.write_bytes(data)
            if not self._target.publish(file, name) and self._target.read(name) != data:
                raise differs_error(self._target, name)


def _renamed(data: bytes, moved: Mapping[str, tuple[str, int]]) -> bytes:
    """Return a record with the new file names in its receipt; a record that cannot be read is returned unchanged."""
    try:
        record = msgspec.json.decode(data)
        files = record["receipt"].get("files") or []
        if not any(file["path"] in moved for file in files):
            return data  # a retired load: its files exist in neither root
        for file in files:
            file["path"], file["bytes"] = moved.get(file["path"], (file["path"], file["bytes"]))
    except (msgspec.DecodeError, ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return data
    return msgspec.json.encode(record)
