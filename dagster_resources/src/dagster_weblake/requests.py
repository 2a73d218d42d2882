"""The requests of an asset: a crawl, a batch, one page, one file, usage, activity, or a job that was started elsewhere.

A request is plain data. Text in it may name the partition that is being materialized:

    {partition_key}                       the key, such as 2026-11-21 or docs.example.com
    {partition_key[site]}                 one dimension of a multi-partition
    {partition_start} {partition_end}     start and end of the time window, as 2026-11-21

A `dg.EnvVar` in it is looked up when the step runs: for secrets such as a cookie in the headers, which must not be in
code. A request is checked when definitions load: against the contract, without the environment, storage or the service.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, get_args

import dagster as dg

from dagster_weblake.secret_config import ENV_VARS
from dagster_weblake.templates import Part, filled
from dagster_weblake.url_inputs import urls_of
from weblake import options as contract
from weblake import orchestration
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from weblake.options import BatchScrapeOptions, CrawlOptions, ParseOptions, ScrapeOptions
    from weblake.orchestration import LoadRequest, Terms

#: The version of the landed data; a new version makes assets stale.
_SCHEMA = 1
#: Options that are fields of the request, and not keys of `options`.
_NO_OPTIONS = frozenset({"url", "urls", "file", "naming", "terms", "idempotency_key"})

#: A replacement for a text that is only known when the step runs.
_ANY_TEXT, _ANY_URL = "x", "https://example.com/"

_Options = TypeVar("_Options", bound=Mapping[str, object])


@dataclass(frozen=True, kw_only=True, slots=True)
class LandingRequest:
    """Base of the requests that buy or land pages.

    Args:
        partition: Path keys and values in place of `load_date`, such as `{"day": "{partition_key}"}`. All assets of a
            root have the same keys. A later load of an asset's partition takes the earlier one's place in any case.
        allow_partial: Stores the available pages of a load whose counts do not add up, with `complete: false`.
        missing_ratio: The share of submitted URLs that may be missing, from 0 to 1; default 0.
        fail_ratio: The share that may have failed before the load is refused; default 1, so that failed pages are rows
            of `page_errors` and no failure.
        max_credits: Refuses to start what would cost more, lowers the limit of a crawl, and cancels a job that passes
            it. Default: no limit.
        deadline: How long the job may take from its start, retries included; then it is cancelled and what it had
            scraped is kept as a refused load. Default 24 hours.
        poll_interval: Seconds between status polls at most; they begin sooner. Default 10.
        report_changes: Adds to the metadata how many pages are new, changed and gone since the landing before. The
            small columns of all documents of the dataset are read. Default False.
    """

    partition: Mapping[str, str] | None = None
    allow_partial: bool = False
    missing_ratio: float = 0.0
    fail_ratio: float = 1.0
    max_credits: float | None = None
    deadline: timedelta = timedelta(hours=24)
    poll_interval: float = 10.0
    report_changes: bool = False

    #: The table that it lands in.
    table: ClassVar[str] = "documents"
    #: Whether the job is the asset's own, so that its deadline ends it.
    owns_job: ClassVar[bool] = True

    def terms(self) -> Terms:
        """Return the tolerances and limits, as the core has them.

        Raises:
            InvalidOption: One of them is of a wrong type or out of its range.
        """
        if not isinstance(self.deadline, timedelta):
            raise InvalidOption(
                f"deadline is of type {type(self.deadline).__name__}.",
                hint="Give a datetime.timedelta, such as timedelta(hours=6).",
            )
        for name in ("missing_ratio", "fail_ratio", "max_credits", "poll_interval"):
            value = getattr(self, name)
            if (value is not None or name != "max_credits") and (
                isinstance(value, bool) or not isinstance(value, int | float)
            ):
                raise InvalidOption(f"{name} is of type {type(value).__name__}.", hint="Give a number.")
        if not self.poll_interval > 0:
            raise InvalidOption(f"poll_interval is {self.poll_interval}.", hint="Give a number of seconds above 0.")
        return orchestration.Terms(
            allow_partial=self.allow_partial,
            missing_ratio=self.missing_ratio,
            fail_ratio=self.fail_ratio,
            max_credits=self.max_credits if self.owns_job else None,  # over it, the core would cancel the job
            timeout_s=self.deadline.total_seconds(),
            ends_job=self.owns_job,
            poll_s=self.poll_interval,
        )

    def load_request(self, part: Part) -> LoadRequest:
        """Return the load request of one partition; raise InvalidOption for options outside the contract."""
        raise NotImplementedError

    def naming(self, part: Part) -> orchestration.Naming:
        """Return the partition keys and values of the load."""
        _check_type("partition", self.partition, Mapping, "a dict")
        return orchestration.Naming(partition=filled(self.partition, part) if self.partition else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class CrawlRequest(LandingRequest):
    """A crawl of a site, as one job.

    Args:
        url: The start URL; may name the partition, such as `https://{partition_key}/`.
        options: Crawl options of the contract in snake_case, such as `{"limit": 500, "scrape_options": {"formats":
            ["markdown"]}}`.
    """

    url: str
    options: CrawlOptions = field(default_factory=lambda: cast("CrawlOptions", {}))

    def load_request(self, part: Part) -> LoadRequest:
        """Return the load request of one job; `max_credits` lowers its limit."""
        options = _options(self.options, part)
        return orchestration.crawl_request(filled(self.url, part), self.naming(part), self.terms(), **options)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchScrapeRequest(LandingRequest):
    """A scrape of many URLs, as one job.

    Args:
        urls: The URLs; or the path or storage URL of a text, CSV or Parquet file of them; or the `dg.AssetKey` of an
            upstream asset that returns them: a list, or an Arrow, pandas or Polars table, of which `column` is taken. A
            function under `@weblake_assets` passes the value that it got from upstream. If that is a mapping of several
            upstream partitions by their keys, each partition takes the values of those that belong to it. In any other
            mapping, each partition takes the value of its own key.
        column: The column of a table or of a CSV or Parquet file; `url` by default.
        options: Scrape options of the contract in snake_case, such as `{"formats": ["markdown", "links"]}`.
        refresh_after: Sends only URLs that are due: those of which no page with a status below 400 is in the dataset
            whose load began within this time: a timedelta, or a text such as `7d`, `12h` or `never`. Loads that this
            one will replace do not count: those of the same run and partition of the asset. With nothing due nothing
            is started, and the materialization has 0 rows. Default: all URLs are sent.
    """

    urls: object
    column: str | None = None
    refresh_after: timedelta | str | None = None
    options: BatchScrapeOptions = field(default_factory=lambda: cast("BatchScrapeOptions", {}))

    def __post_init__(self) -> None:
        # An iterator can be read only once, and a step may have several partitions, so it is read here.
        if hasattr(self.urls, "read_all"):
            object.__setattr__(self, "urls", self.urls.read_all())
        elif isinstance(self.urls, Iterator):
            object.__setattr__(self, "urls", list(self.urls))

    def load_request(self, part: Part) -> LoadRequest:
        """Return the load request of one job for all URLs, which are read now."""
        given = self.urls
        if isinstance(given, dg.AssetKey):
            raise InvalidOption(
                f"The URLs of {given.to_user_string()} were not loaded.",
                hint="Add the upstream asset as a parameter of the function, and pass its value as `urls`.",
            )
        if isinstance(given, Mapping) and part.key in given:  # a mapping of upstream values by partition
            given = given[part.key]
        if isinstance(given, str | list | tuple):
            given = filled(given, part)
        urls = urls_of(given, self.column)
        if not isinstance(given, list | tuple):
            urls = [filled(url, part) for url in urls]
        naming = replace(self.naming(part), refresh_after=self.refresh_after)
        return orchestration.batch_request(urls, naming, **_options(self.options, part))


@dataclass(frozen=True, kw_only=True, slots=True)
class ScrapeRequest(LandingRequest):
    """One page; the step waits for it, for a minute at most unless the options set another time.

    Args:
        url: The page.
        options: Scrape options of the contract in snake_case.
    """

    url: str
    options: ScrapeOptions = field(default_factory=lambda: cast("ScrapeOptions", {}))

    def load_request(self, part: Part) -> LoadRequest:
        """Return the load request of one page."""
        return orchestration.scrape_request(filled(self.url, part), self.naming(part), **_options(self.options, part))


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseRequest(LandingRequest):
    """One file that the step can read, parsed by the service.

    Args:
        file: A local path.
        options: Parse options of the contract in snake_case.
    """

    file: str
    options: ParseOptions = field(default_factory=lambda: cast("ParseOptions", {}))

    def load_request(self, part: Part) -> LoadRequest:
        """Return the load request of one file, identified by its name and content."""
        _check_file(self.file)
        path = Path(filled(self.file, part))
        if not path.is_file():
            raise InvalidOption(f"{path} is not a file here.", hint="Give a path that the step's process can read.")
        return orchestration.parse_request(path, self.naming(part), **_options(self.options, part))


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest(LandingRequest):
    """A job that was started elsewhere; landing it buys nothing, and nothing here cancels it, also not `max_credits`.

    Args:
        kind: `batch_scrape` (or `batch`) or `crawl`; by default from the run's config.
        job_id: The job's UUID; by default from the run's config.
    """

    kind: str | None = None
    job_id: str | None = None
    owns_job: ClassVar[bool] = False

    def load_request(self, part: Part) -> LoadRequest:
        """Return the load request of the existing job."""
        if not self.kind or not self.job_id:
            raise InvalidOption("It is not said which job to land.", hint="Give kind and job_id in the run's config.")
        _check_type("kind", self.kind, str, "a text")
        _check_type("job_id", self.job_id, str, "a text")
        return orchestration.existing_job_request(self.kind, self.job_id.strip(), self.naming(part).partition)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageRequest:
    """The team's usage by month; reading it costs nothing.

    Args:
        report: `credits` (default) or `tokens`.
        by_api_key: Splits the report by API key: a report of its own, `credits_by_key` or `tokens_by_key`.
        budget: Credits or tokens that a month may use; it is in the metadata, and checks compare the report with it.
    """

    report: Literal["credits", "tokens"] = "credits"
    by_api_key: bool = False
    budget: float | None = None

    table: ClassVar[str] = "usage_periods"

    def __post_init__(self) -> None:
        if self.report not in ("credits", "tokens"):
            raise InvalidOption(f"There is no report of {self.report!r}.", hint="Give credits or tokens.")

    @property
    def name(self) -> str:
        """Return the report's name in the layout."""
        return f"{self.report}_by_key" if self.by_api_key else self.report


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityRequest:
    """The calls of the last 24 hours, merged by call into one file for each day; reading them costs nothing."""

    table: ClassVar[str] = "activity"


Request = CrawlRequest | BatchScrapeRequest | ScrapeRequest | ParseRequest | JobRequest | UsageRequest | ActivityRequest
for _request in get_args(Request):
    orchestration.document(_request)


def _check_type(name: str, value: object, kind: type | UnionType, what: str) -> None:
    """Raise InvalidOption for a field of the request that is not None and of another type."""
    if value is not None and not isinstance(value, kind):
        raise InvalidOption(f"{name} is of type {type(value).__name__}.", hint=f"Give {what}.")


def _check_file(file: object) -> None:
    """Raise InvalidOption for a file that is no path."""
    if not file or not isinstance(file, str | PathLike):
        raise InvalidOption(f"file is {file!r}.", hint="Give the path of a file.")


def _check_option_names(options: Mapping[str, object]) -> None:
    """Raise InvalidOption for options that are no dict, one that is a field of the request, and one without a text."""
    if not isinstance(options, Mapping):
        raise InvalidOption(f"options is of type {type(options).__name__}.", hint='Give a dict: {"limit": 10}.')
    for name in options:
        if not isinstance(name, str) or name in _NO_OPTIONS:
            raise InvalidOption(
                f"{name!r} is not an option.", hint="If it is a parameter of the request, give it as that parameter."
            )


def _options(options: _Options, part: Part) -> _Options:
    _check_option_names(options)
    return filled(options, part)


def code_version_of(request: Request) -> str:
    """Return a digest of the request and of the schema: if either changes, landed data are outdated.

    Limits and tolerances do not count, and neither do URLs from an upstream asset, which are data. The digest reveals
    nothing of the request: headers may hold cookies.
    """
    terms = LandingRequest.__dataclass_fields__ if isinstance(request, LandingRequest) else {}
    body = {each.name: getattr(request, each.name) for each in fields(request) if each.name not in terms}
    body.pop("refresh_after", None)
    urls = body.get("urls")
    if isinstance(urls, dg.AssetKey) or not isinstance(urls, str | list | tuple):
        body.pop("urls", None)
    text = json.dumps([type(request).__name__, _SCHEMA, body], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def check_request(request: object, asset: dg.AssetKey) -> None:
    """Check the request of a definition, as `check`.

    Raises:
        DagsterInvalidDefinitionError: The contract or the integration refuses it; the message names the asset and the
            option.
    """
    try:
        check(request)
    except InvalidOption as error:
        raise invalid(asset, error) from None


def invalid(asset: dg.AssetKey, error: InvalidOption) -> dg.DagsterInvalidDefinitionError:
    """Return the error of a definition for the error of an option."""
    return dg.DagsterInvalidDefinitionError(f"Asset {asset.to_user_string()!r}: {error!s}")


def check(request: object) -> None:
    """Check a request as far as its values are known before the step runs.

    Values that are only known when the step runs are left to the step: an EnvVar, a text with `{partition_…}`, the
    content of a file, and what an upstream asset returns.

    Raises:
        InvalidOption: The contract or the integration refuses it; the message names the option.
    """
    if not isinstance(request, get_args(Request)):
        names = ", ".join(each.__name__ for each in get_args(Request))
        raise InvalidOption(f"The request is of type {type(request).__name__}.", hint=f"Give one of {names}.")
    if isinstance(request, LandingRequest):
        request.terms()
        _check_type("partition", request.partition, Mapping, "a dict")
    if isinstance(request, CrawlRequest):
        _check_options(contract.CrawlRequest, request.options, url=_url(request.url))
    elif isinstance(request, ScrapeRequest):
        _check_options(contract.ScrapeRequest, request.options, url=_url(request.url))
    elif isinstance(request, BatchScrapeRequest):
        orchestration.refresh_window(request.refresh_after)
        urls = [_ANY_URL]
        if isinstance(request.urls, list | tuple) and not isinstance(request.urls, dg.AssetKey):
            urls = urls_of([_ANY_URL if _is_unknown_yet(url) else url for url in request.urls])
        _check_options(contract.BatchScrapeRequest, request.options, urls=urls)
    elif isinstance(request, ParseRequest):
        _check_file(request.file)
        _check_options(contract.ParseOptions, request.options)
    elif isinstance(request, JobRequest) and request.kind is not None and request.job_id is not None:
        _check_type("kind", request.kind, str, "a text")
        _check_type("job_id", request.job_id, str, "a text")
        orchestration.existing_job_request(request.kind, request.job_id.strip())


def _check_options(form: type, options: Mapping[str, object], **more: object) -> None:
    _check_option_names(options)
    try:
        contract.to_wire(form, {**_replaced(options), **more})
    except InvalidOption as error:
        # The final value may be valid: the step checks it again.
        if not any(f"`{path}`" in error.message for path in _unknown_yet(options)):
            raise


def _url(value: object) -> str:
    """Return an address in place of one that is only known when the step runs; no message shows the value."""
    if _is_unknown_yet(value):
        return _ANY_URL
    if not isinstance(value, str):
        raise InvalidOption(f"url is of type {type(value).__name__}.", hint="Give a text, such as https://…")
    problem = contract.url_problem(value)
    if problem is not None:
        raise InvalidOption(f"url {problem}.", hint="Correct the address.")
    return value


def _replaced(value: Any) -> Any:
    """Return a value with a text or a number in place of each EnvVar."""
    if isinstance(value, ENV_VARS):
        return _ANY_TEXT if isinstance(value, dg.EnvVar) else 1
    if isinstance(value, Mapping):
        return {name: _replaced(each) for name, each in value.items()}
    return [_replaced(each) for each in value] if isinstance(value, list | tuple) else value


def _is_unknown_yet(value: object) -> bool:
    return isinstance(value, ENV_VARS) or (isinstance(value, str) and "{partition_" in value)


def _unknown_yet(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of values that are only known when the step runs, in the form of messages: `a.b[0]`."""
    if _is_unknown_yet(value):
        yield path
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _unknown_yet(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _unknown_yet(each, f"{path}[{index}]")
