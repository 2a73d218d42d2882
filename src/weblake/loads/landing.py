"""The functions `weblake.land`, `land_batch` and `land_crawl`: land a job in a dataset and return its receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Unpack

from weblake.api.options import BatchScrapeOptions, CrawlOptions
from weblake.client import Client
from weblake.dataset.root import open_dataset
from weblake.loads import generations, load, load_request
from weblake.loads.load_request import LoadRequest, Naming, Terms
from weblake.receipt import Receipt
from weblake.storage import RootPath


def land(
    kind: str,
    job_id: str,
    *,
    to: RootPath,
    client: Client | None = None,
    terms: Terms | None = None,
    partition: Mapping[str, str] | None = None,
) -> Receipt:
    """Wait for a job that was started elsewhere, land it as one Parquet file, and return its receipt.

    Landing the same job again returns the same receipt and sends no request.

    Args:
        kind: `batch` (or `batch_scrape`) or `crawl`.
        job_id: The job's UUID.
        to: The root of the dataset.
        client: The client; by default one of the service that WEBLAKE_BASE_URL names, or of the embedded service.
        terms: Tolerances, limits and deadlines.
        partition: Path keys of the dataset, in order, instead of `load_date`.

    Raises:
        LoadIncomplete: The load is not complete; no documents were published. If all pages failed, their errors were.
        JobEnded: The job failed or was cancelled.
        JobGone: The job is unknown or expired.
        DeadlineExceeded: `terms.timeout_s` passed; the job continues at the service.
        WeblakeError: Any other error; the same call resumes the load.
    """
    return _land(load_request.existing_job(kind, job_id, partition), to, client, terms)


def land_batch(
    urls: Sequence[str],
    *,
    to: RootPath,
    client: Client | None = None,
    terms: Terms | None = None,
    key: str | None = None,
    new: bool = False,
    partition: Mapping[str, str] | None = None,
    refresh_after: timedelta | str | None = None,
    **options: Unpack[BatchScrapeOptions],
) -> Receipt:
    """Scrape these URLs as one job, land it, and return its receipt; raises as `land` does.

    The same request to the same root is the same load and is paid once. With another `key`, or with `new`, it is a new
    load. With `partition`, it replaces the earlier load of the same `key`, or without a key of the same request, that
    has the same values; otherwise its rows are added.

    With `refresh_after`, a duration such as `timedelta(days=7)` or `"7d"`, only the URLs that are due are sent: those
    of which no page with a status below 400 is in `to` whose load began within that time (`"never"`: at any time). Each
    call is a new load then, after the one before has landed, and replaces none. The receipt counts `requested = fresh +
    submitted`. With nothing due nothing is started, and the receipt is complete without a job.
    """
    return _land(load_request.batch(urls, Naming(key, new, partition, refresh_after), **options), to, client, terms)


def land_crawl(
    url: str,
    *,
    to: RootPath,
    client: Client | None = None,
    terms: Terms | None = None,
    key: str | None = None,
    new: bool = False,
    partition: Mapping[str, str] | None = None,
    **options: Unpack[CrawlOptions],
) -> Receipt:
    """Crawl a site as one job, land it, and return its receipt; otherwise as `land_batch`."""
    terms = terms or Terms()
    return _land(load_request.crawl(url, Naming(key, new, partition), terms, **options), to, client, terms)


def _land(request: LoadRequest, to: RootPath, client: Client | None, terms: Terms | None) -> Receipt:
    dataset = open_dataset(to)
    with nullcontext(client) if client is not None else Client() as used:
        if request.family is not None:
            request = generations.place_refresh(used, dataset, request, terms or Terms())
        return load.land(used, dataset, request, terms).receipt
