"""Records of the load that was last started with a file of URLs, kept until that load has landed.

    _weblake/lists/<id>.json    the id is a digest of the file's address and of all arguments except the URLs

The command line identifies a load by its request. So if the list changed between a killed run and the next one, the
next run would be another load and would pay for the first pages again. With this record it finds the load that was
started, even if the file no longer exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from weblake.credentials import home
from weblake.dataset import layout
from weblake.dataset.identity import load_id_of
from weblake.dataset.landed_loads import find
from weblake.dataset.records import Record
from weblake.dataset.root import DOCUMENTS, Dataset
from weblake.errors import StorageRefused
from weblake.loads import sent_lists
from weblake.loads.load_request import Naming
from weblake.storage import Storage

#: Addresses whose content differs in each run: standard input, pipes of a shell. /dev/shm has ordinary files.
_UNREPEATABLE = re.compile("/proc/|/dev/(?!shm/)")


def source_of(file: str, column: str | None, naming: Naming, options: Mapping[str, object]) -> str | None:
    """Return the id of a file of URLs together with all other arguments of a command, or None.

    None if a later run cannot be recognised as the same: for standard input and pipes.
    """
    address = file if "://" in file else str(home(file).absolute())
    if file == "-" or _UNREPEATABLE.match(address) or Path(address).is_fifo():
        return None
    partition = None if naming.partition is None else list(naming.partition.items())
    return load_id_of("list", address, column, dict(options), naming.new_key or naming.key, partition)


def pending_list(dataset: Dataset, source: str, *, allow_partial: bool = False) -> tuple[str, ...] | None:
    """Return the list that this file's last load was started with, or None if it has landed or was not started.

    Also None if the load was refused, unless `allow_partial` is to publish it: another list is another load.

    Raises:
        StorageRefused: A record of the load, or its stored list, cannot be read.
    """
    noted = _read(dataset, source)
    if noted is None:
        return None
    load_id, ledger = noted.load_id, dataset.ledger
    if find(dataset, load_id) is not None or (
        not allow_partial and dataset.storage.exists(layout.refused_path(DOCUMENTS, load_id))
    ):
        return None
    job, last = ledger.job(load_id), ledger.last_start(load_id)
    digest = job.urls if job is not None else last.urls if last is not None and not last.void else None
    return None if digest is None else sent_lists.read(dataset.storage, load_id, digest)


def note(storage: Storage, source: str, load_id: str) -> None:
    """Record that a load is about to be started with the list of a file."""
    name, data = layout.list_source_path(source), msgspec.json.encode(Record(load_id=load_id))
    if not storage.create(name, data):  # a record of a load that is over or was never started
        storage.delete(name)
        storage.create(name, data)


def forget(dataset: Dataset, source: str, load_id: str) -> None:
    """Remove the record of a load that has landed; a record of another load is kept."""
    noted = _read(dataset, source)
    if noted is not None and noted.load_id == load_id:
        dataset.storage.delete(layout.list_source_path(source))


def _read(dataset: Dataset, source: str) -> Record | None:
    name = layout.list_source_path(source)
    data = dataset.storage.read(name)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise StorageRefused(
            f"The record {name} of {dataset.storage.url} is damaged: it names the load that this file of URLs was "
            "started as.",
            hint="Restore it from a backup. Or land that load, if it is open, and delete the record.",
        ) from error
