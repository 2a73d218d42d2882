"""The story as functions: what to land in, where to put it, and a receipt back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import Unpack

from weblake.api import options
from weblake.client import Client
from weblake.dataset.root import open_dataset
from weblake.loads import load, load_request
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
    """Waits for a job that was started elsewhere, lands it as one Parquet file, and returns its receipt.

    Landing the same job again returns the same receipt and calls nobody.

    Args:
        kind: `batch` (or `batch_scrape`) or `crawl`.
        job_id: The job's UUID.
        to: The dataset's root.
        client: The service; by default the one that WEBLAKE_BASE_URL names, or the embedded one.
        terms: Tolerances, limits and deadlines.
        partition: Path keys of the dataset, in order, in place of `load_date`.

    Raises:
        LoadIncomplete: It does not add up; nothing was published.
        JobEnded: The job failed or was cancelled.
        JobGone: Unknown or expired.
        DeadlineExceeded: `terms.timeout_s` passed; the job goes on.
        WeblakeError: What else stood in the way; the same call resumes.
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
    **given: Unpack[options.BatchScrapeOptions],
) -> Receipt:
    """Scrapes these URLs as one job, lands it, and returns its receipt; raises as `land` does.

    The same request to the same root is the same load and is paid once; `key` and `new` make it another one.
    """
    return _land(load_request.batch(urls, Naming(key, new, partition), **given), to, client, terms)


def land_crawl(
    url: str,
    *,
    to: RootPath,
    client: Client | None = None,
    terms: Terms | None = None,
    key: str | None = None,
    new: bool = False,
    partition: Mapping[str, str] | None = None,
    **given: Unpack[options.CrawlOptions],
) -> Receipt:
    """Crawls a site as one job, lands it, and returns its receipt; otherwise as `land_batch`."""
    terms = terms or Terms()
    return _land(load_request.crawl(url, Naming(key, new, partition), terms, **given), to, client, terms)


def _land(request: LoadRequest, to: RootPath, client: Client | None, terms: Terms | None) -> Receipt:
    dataset = open_dataset(to)
    if client is not None:
        return load.land(client, dataset, request, terms).receipt
    with Client() as own:
        return load.land(own, dataset, request, terms).receipt
