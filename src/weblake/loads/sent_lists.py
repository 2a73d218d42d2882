"""Stored copies of the URL lists that were sent, kept until their loads have landed.

    _weblake/submitted/<load_id>-<digest>.json.gz    one list; the digest is of its content

The account of a job uses the list that the job was started with, even if the caller's list has changed. The list is
stored before the start is recorded, and the records of the start and of the job contain its digest, so it cannot be
confused with another list (docs/decisions/047-submitted-url-list.md). The file contains URLs and no other part of the
request.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from hashlib import blake2b

import msgspec

from weblake.dataset import layout
from weblake.dataset.identity import job_load_id
from weblake.dataset.records import Intent, Job
from weblake.dataset.root import Dataset
from weblake.errors import Remedy, StorageRefused
from weblake.events import LoadMessage, Observer
from weblake.loads.load_request import LoadRequest
from weblake.storage import Storage

#: Low gzip level, so that a million URLs are compressed within a second.
_LEVEL = 3
#: Message if the caller's request differs from the request that the job was started with.
CHANGED = "has changed since the job was started; landing what was sent"


def digest_of(urls: Sequence[str]) -> str:
    """Return the digest of a list, as 32 hexadecimal digits."""
    return blake2b(msgspec.json.encode(urls), digest_size=16).hexdigest()


def keep(storage: Storage, load_id: str, urls: Sequence[str]) -> str:
    """Store a list that is about to be sent, and return its digest.

    Raises:
        StorageRefused: The list could not be written; nothing was sent.
    """
    digest = digest_of(urls)
    data = gzip.compress(msgspec.json.encode(urls), _LEVEL, mtime=0)
    storage.create(layout.submitted_path(load_id, digest), data)  # False if the same list exists already
    return digest


def read(storage: Storage, load_id: str, digest: str) -> tuple[str, ...]:
    """Return the stored list with this digest.

    Raises:
        StorageRefused: The list is missing or damaged.
    """
    name, why = layout.submitted_path(load_id, digest), "gone"
    data = storage.read(name)
    if data is not None:
        why = "damaged"
        with suppress(OSError, EOFError, zlib.error, msgspec.DecodeError, ValueError):
            urls = msgspec.json.decode(gzip.decompress(data), type=tuple[str, ...])
            if digest_of(urls) == digest:
                return urls
    raise StorageRefused(
        f"The list of URLs that load {load_id} submitted is {why} ({name} of {storage.url}).",
        hint=Remedy("Restore it, or land what the service has of the job by its id, with {land}."),
    )


def drop(storage: Storage, load_id: str, digests: Collection[str | None]) -> None:
    """Remove the lists of a landed load with these digests; None stands for no list."""
    for digest in set(digests) - {None}:
        storage.delete(layout.submitted_path(load_id, str(digest)))


def digest_of_request(request: LoadRequest) -> str | None:
    """Return the digest of the URL list of a batch, or None."""
    return digest_of(request.submitted) if request.with_urls is not None and request.submitted else None


def list_of_job(
    dataset: Dataset, request: LoadRequest, intent: Intent, job: Job, observe: Observer
) -> tuple[str, ...] | None:
    """Return the list of URLs that the job was started with, or None if only the service knows it.

    `observe` gets a LoadMessage if the request is another one than that of the job.

    Raises:
        StorageRefused: The stored list is missing or damaged.
    """
    if request.kind != "batch_scrape":
        if request.start is not None and job.request_sha256 not in (None, request.request_sha):
            observe(LoadMessage(text=f"Load {request.load_id}: the request {CHANGED}."))
        return request.submitted
    urls = request.submitted
    if job.urls is None:
        return None
    if urls is not None and digest_of(urls) == job.urls:
        if job.request_sha256 != request.request_sha:
            observe(LoadMessage(text=f"Load {request.load_id}: the request {CHANGED}."))
        return urls
    if urls is not None and intent.fresh is None:
        observe(LoadMessage(text=f"Load {request.load_id}: the list {CHANGED}."))
    try:
        return read(dataset.storage, job.load_id, job.urls)
    except StorageRefused as error:
        if request.load_id != job_load_id(request.kind, job.job_id):
            raise
        observe(LoadMessage(text=f"{error.message} The job is accounted for by what the service attempted."))
        return None  # the remedy of this error is to land the job by its id
