"""Functions that find landed loads. They change no file and send no request to the service."""

from __future__ import annotations

from dataclasses import dataclass, replace

from weblake.arrow import parquet
from weblake.dataset import layout
from weblake.dataset.ledger import files_gone
from weblake.dataset.records import Done, Intent, Job, StartAttempt
from weblake.dataset.root import DOCUMENTS, PAGE_ERRORS, Dataset, LandedLoad
from weblake.errors import StorageRefused
from weblake.receipt import LandedFile, Receipt


def find(dataset: Dataset, load_id: str, job: tuple[str, str] | None = None) -> LandedLoad | None:
    """Return a load that has landed, or the other load as which its job has landed, or None; arguments as `find_done`.

    Raises:
        StorageRefused: A record of the load, or its file, cannot be read.
    """
    found = find_done(dataset, load_id, job)
    return None if found is None else found[0]


def find_done(
    dataset: Dataset, load_id: str, job: tuple[str, str] | None = None
) -> tuple[LandedLoad, Done | None] | None:
    """Return the load that `find` returns, with its done record or None if it has none yet; nothing is changed.

    A file under its final name counts as landed even if the run that published it ended before it wrote the done
    record. `job` is the kind and the id of the load's job, if no record of the load may name it.

    Raises:
        StorageRefused: A record of the load, or its file, cannot be read.
    """
    ledger = dataset.ledger
    done = ledger.done(load_id)
    if done is not None:
        return LandedLoad(Receipt.from_dict(done.receipt), done.at), done
    intent = ledger.intent(load_id)
    published = None if intent is None else _find_published(dataset, intent)
    if published is not None:
        return published, None
    recorded = ledger.job(load_id)
    if recorded is not None:
        job = recorded.kind, recorded.job_id
    if job is None or (recorded is not None and _has_other_pages(dataset, recorded)):
        return None
    by = ledger.landing_load(*job)
    return None if by is None or by == load_id else find_done(dataset, by)


def _find_published(dataset: Dataset, intent: Intent) -> LandedLoad | None:
    """Return a load that was published and has no done record yet, or None if it was not published."""
    entry = dataset.slots.entry(intent)
    if entry is not None:
        return LandedLoad(Receipt.from_dict(entry.receipt), entry.at)
    name = dataset.path(DOCUMENTS, intent)
    # The file must be durable, not only visible: a done record must not survive a crash that loses the file.
    if not dataset.storage.ensure_durable(name):
        return None
    return LandedLoad(with_files(dataset, intent, receipt_of(dataset, name)), intent.created_at)


def _has_other_pages(dataset: Dataset, job: Job) -> bool:
    """Return whether a job that another load had claimed did not have the pages of the load that has adopted it."""
    if not job.adopted or not dataset.storage.exists(layout.refused_path(DOCUMENTS, job.load_id)):
        return False
    return dataset.ledger.owner(job.kind, job.job_id) != job.load_id


def require_files(dataset: Dataset, receipt: Receipt) -> None:
    """Raise StorageRefused if a file of a landed load does not exist, unless a later load has replaced the load."""
    gone = {file.path: receipt.load_id for file in receipt.files if not dataset.exists(file.path)}
    if gone and dataset.ledger.retired(receipt.load_id) is None:
        raise files_gone(dataset.ledger, gone)


def receipt_of(dataset: Dataset, name: str) -> Receipt:
    """Return the receipt in the footer of a published or refused file.

    Raises:
        StorageRefused: The file holds no receipt, so weblake did not write it.
    """
    with dataset.storage.open_input(name) as source:
        found = parquet.read_receipt(source)
    if found is None:
        raise StorageRefused(
            f"{name} is no file of weblake: its footer holds no receipt.",
            hint="Move it away; weblake overwrites nothing that it did not write.",
        )
    return Receipt.from_dict(found)


def with_files(dataset: Dataset, intent: Intent, receipt: Receipt) -> Receipt:
    """Return the receipt of a published load with the list of its files."""
    storage, files = dataset.storage, []
    for table, rows in ((DOCUMENTS, receipt.stored), (PAGE_ERRORS, None)):
        if table == PAGE_ERRORS and not receipt.has_page_errors:
            continue  # if there is a file, it is of another writer, which is about to remove it
        name = dataset.path(table, intent)
        size = storage.find_size(name)
        if size is not None:
            files.append(LandedFile(name, _rows(dataset, name) if rows is None else rows, size))
    return replace(receipt, files=tuple(files))


def _rows(dataset: Dataset, name: str) -> int:
    with dataset.storage.open_input(name) as source:
        return parquet.count_rows(source, name)


@dataclass(frozen=True, slots=True)
class LoadState:
    """What is on record of one load. Each attribute reads its own record, and raises StorageRefused if it cannot."""

    dataset: Dataset
    load_id: str

    @property
    def intent(self) -> Intent | None:
        """The intent; None if the load has not begun."""
        return self.dataset.ledger.intent(self.load_id)

    @property
    def last_start(self) -> StartAttempt | None:
        """The newest start request, or None; its `void` is set if there is evidence that it started no job."""
        return self.dataset.ledger.last_start(self.load_id)

    @property
    def job(self) -> Job | None:
        """The job, or None if none is on record."""
        return self.dataset.ledger.job(self.load_id)

    @property
    def landed(self) -> LandedLoad | None:
        """The receipt and the time of landing, or None; also of a published load that has no done record yet."""
        return find(self.dataset, self.load_id)

    @property
    def is_replaced(self) -> bool:
        """Whether a later load of its slot has replaced it."""
        return self.dataset.ledger.retired(self.load_id) is not None

    @property
    def current(self) -> LoadState:
        """The load that is current for this one: itself, or the last in its chain of replacements."""
        return LoadState(self.dataset, self.dataset.ledger.current_load(self.load_id))
