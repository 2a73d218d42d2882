"""Operators for one page or one file; the response to the start already holds the document."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_weblake.operators.base import options_of, refuse_none
from airflow_provider_weblake.operators.landing import LandingOperator
from weblake import errors, orchestration
from weblake.options import ParseOptions, ScrapeOptions

if TYPE_CHECKING:
    from weblake.orchestration import LoadRequest


class WeblakeScrapeOperator(LandingOperator):
    """Scrapes one page and lands it as a Parquet file, paid once.

    A retry after a crash reads the page that was paid for. Clearing a task that has succeeded buys again. For more than
    a few pages use WeblakeBatchScrapeOperator, which makes one job, one file and one task of them. Returns the receipt;
    its `job_id` is the scrape's id, which WeblakeInteractOperator takes.

    :param url: The page (templated).
    :param options: Scrape options of the contract in snake_case (templated).
    """

    template_fields: Sequence[str] = (*LandingOperator.template_fields, "url", "options")

    def __init__(self, *, url: str, options: ScrapeOptions | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.url = url
        self.options = options

    def load_request(self) -> LoadRequest:
        """Return the load request of one page."""
        refuse_none("`url`", self.url)
        return orchestration.scrape_request(self.url, self.naming(), **options_of(ScrapeOptions, self.options))


class WeblakeParseOperator(LandingOperator):
    """Parses one file that the worker can read and lands its text as a Parquet file, paid once.

    A retry after a crash repeats nothing that the service can replay. Clearing a task that has succeeded buys again.
    Returns the receipt.

    :param file: A local path (templated).
    :param options: Parse options of the contract in snake_case (templated).
    """

    template_fields: Sequence[str] = (*LandingOperator.template_fields, "file", "options")

    def __init__(self, *, file: str, options: ParseOptions | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.file = file
        self.options = options

    def load_request(self) -> LoadRequest:
        """Return the load request of one file."""
        refuse_none("`file`", self.file)
        path = Path(self.file)
        if not path.is_file():
            raise errors.InvalidOption(
                f"{path} is not a file on this worker.", hint="Give a path that the worker can read."
            )
        return orchestration.parse_request(path, self.naming(), **options_of(ParseOptions, self.options))
