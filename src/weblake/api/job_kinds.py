"""The kinds of jobs that are polled until they end and whose results are paged: batch scrapes and crawls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from weblake.api import models
from weblake.api.operation import Operation
from weblake.api.operations import (
    cancel_batch_scrape,
    cancel_crawl,
    get_batch_scrape,
    get_batch_scrape_errors,
    get_crawl,
    get_crawl_errors,
)
from weblake.errors import InvalidOption

JobKindName = Literal["batch_scrape", "crawl"]


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind of job and its operations."""

    #: The name in receipts, records and integrations.
    name: JobKindName
    #: The name on the command line.
    command: Literal["batch", "crawl"]
    #: The path of the status, relative to the base URL and without the job id.
    path: str
    #: The operation that reads the status and a page of results.
    read: Callable[[str], Operation[models.JobStatus]]
    #: The operation that lists the pages that failed.
    errors: Callable[[str], Operation[models.JobErrors]]
    cancel: Callable[[str], Operation[models.Cancelled]]


#: The kinds by name. Jobs of these kinds can be landed by job id.
JOB_KINDS: Mapping[str, JobKind] = {
    kind.name: kind
    for kind in (
        JobKind(
            "batch_scrape", "batch", "/v2/batch/scrape", get_batch_scrape, get_batch_scrape_errors, cancel_batch_scrape
        ),
        JobKind("crawl", "crawl", "/v2/crawl", get_crawl, get_crawl_errors, cancel_crawl),
    )
}


def job_kind(name: str) -> JobKind:
    """Return the kind with this name: `batch_scrape`, `batch` or `crawl`.

    Raises:
        InvalidOption: The name is any other.
    """
    for kind in JOB_KINDS.values():
        if name in (kind.name, kind.command):
            return kind
    raise InvalidOption(f"{name[:40]!r} is not a kind of job.", hint="Give batch or crawl.")
