"""Operators for jobs: a batch of URLs, a crawl of a site, or a job that was started elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_weblake.operators.base import options_of, refuse_none
from airflow_provider_weblake.operators.landing import JobOperator
from airflow_provider_weblake.url_shards import read_urls_or_shard
from weblake import orchestration
from weblake.errors import InvalidOption
from weblake.options import BatchScrapeOptions, CrawlOptions

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

    from weblake.orchestration import LoadRequest


class WeblakeBatchScrapeOperator(JobOperator):
    """Scrapes many URLs as one job and lands them as one Parquet file, paid once.

    After a killed worker, a restarted triggerer or a retry, the task continues with the job that is on record in the
    dataset, and lands what has been paid for. Clearing a task that has succeeded buys again, as does clearing one whose
    job failed, was cancelled or has expired; clearing any other task lands the recorded job. Marking the task failed or
    successful, clearing it while it waits (unless it has taken the job up again by then), and a run timeout cancel the
    job.

    Returns the receipt: load_id, job_id, status, complete, requested, fresh, submitted, stored, failed, robots_blocked,
    rejected, missing, duplicates, credits_used and the files, under 2 KB and without a URL or a key.

    :param urls: The URLs as a list; or the path or storage URL of a text, CSV or Parquet file of them; or one shard of
        such a file, from `url_shards`, in a mapped task (templated).
    :param column: The column of a CSV or Parquet file; `url` by default (templated).
    :param options: Scrape options of the contract in snake_case, such as `{"formats": ["markdown", "links"]}`
        (templated).
    :param refresh_after: Sends only URLs that are due: those of which no page with a status below 400 is in the dataset
        whose load began within this time. A timedelta, or a text such as `7d`, `12h` or `never` (templated). Loads that
        this one will replace do not count: those of this run, and with a `partition` those with the same values. With
        nothing due nothing is started, and the task succeeds. Default: all URLs are sent.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "urls", "column", "options", "refresh_after")

    def __init__(
        self,
        *,
        urls: Sequence[str] | str | Mapping[str, object] | ObjectStoragePath,
        column: str | None = None,
        options: BatchScrapeOptions | None = None,
        refresh_after: timedelta | str | None = None,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        if refresh_after is not None and not self.wait_for_completion:
            raise InvalidOption(
                "refresh_after needs wait_for_completion=True: with nothing due there is no job to land.",
                hint="Leave wait_for_completion out; with deferrable=True the task holds no worker.",
            )
        self.urls = urls
        self.column = column
        self.options = options
        self.refresh_after = refresh_after
        self._read: list[str] | None = None

    def load_request(self) -> LoadRequest:
        """Return one load request for all URLs."""
        options = options_of(BatchScrapeOptions, self.options)
        refuse_none("`urls`", self.urls)
        self._read = read_urls_or_shard(self.urls, self.column)
        naming = replace(self.naming(), refresh_after=self.refresh_after)
        return orchestration.batch_request(self._read, naming, **options)

    def hosts(self) -> Sequence[str]:
        """Return the URLs."""
        return self._read or ()


class WeblakeCrawlOperator(JobOperator):
    """Crawls a site as one job and lands its pages as one Parquet file, paid once.

    A kill, a retry and a Clear have the same effects as for WeblakeBatchScrapeOperator, and the return value is the
    same.

    :param url: The start URL of the crawl (templated).
    :param options: Crawl options of the contract in snake_case, such as `{"limit": 500, "include_paths": ["/docs/.*"],
        "scrape_options": {"formats": ["markdown"]}}` (templated).
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "url", "options")

    def __init__(self, *, url: str, options: CrawlOptions | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.url = url
        self.options = options

    def load_request(self) -> LoadRequest:
        """Return the load request of the crawl; `max_credits` lowers its limit."""
        refuse_none("`url`", self.url)
        options = options_of(CrawlOptions, self.options)
        return orchestration.crawl_request(self.url, self.naming(), self.terms(), **options)


class WeblakeLandOperator(JobOperator):
    """Waits for a job that was started elsewhere and lands it as one Parquet file.

    It buys nothing: a retry and a Clear land the same job, and return the same receipt once it has landed. The task
    does not own the job, so nothing cancels it unless `cancel_on_kill=True`; `max_credits` has no effect. `deadline`
    limits the wait only: after it, a Clear lands a job that has ended.

    Without a `partition` each job adds a file, also if this task is cleared together with the one that starts the job.
    With one, the load takes the place of another job's that this task, with the same map index, has landed with the
    same values.

    :param kind: `batch` or `crawl` (templated).
    :param job_id: The job's UUID, such as the `job_id` of an operator with `wait_for_completion=False` (templated).
    :param max_credits: Has no effect: the job is not this task's (templated).
    :param deadline: How long the task waits for the job. Default 24 hours; `execution_timeout` shortens it.
    :param cancel_on_kill: Cancels the job when the task is marked failed, cleared or timed out. Default False.
    """

    template_fields: Sequence[str] = (*JobOperator.template_fields, "kind", "job_id")
    owns_job = False

    def __init__(self, *, kind: str, job_id: str, cancel_on_kill: bool = False, **kwargs: object) -> None:
        super().__init__(cancel_on_kill=cancel_on_kill, **kwargs)  # type: ignore[arg-type]
        self.kind = kind
        self.job_id = job_id

    def load_request(self) -> LoadRequest:
        """Return the load request of the existing job."""
        return orchestration.existing_job_request(str(self.kind), str(self.job_id).strip(), self.naming().partition)
