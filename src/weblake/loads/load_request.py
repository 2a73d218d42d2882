"""Requests for loads, and the terms on which loads are landed.

A load request is the identity of a load and the function that starts its job; terms do not change the identity.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal, Unpack

from msgspec.structs import replace

from weblake.api import operations, response_json, responses
from weblake.api.job_kinds import JOB_KINDS, job_kind
from weblake.api.operation import Operation
from weblake.api.options import BatchScrapeOptions, CrawlOptions, ParseOptions, ScrapeOptions
from weblake.api.options.values import uuid_problem
from weblake.api.steps import Response
from weblake.dataset.identity import job_load_id, load_id_of, new_load_key, request_digest
from weblake.errors import CreditsExhausted, InvalidOption, MalformedReply, Remedy

Endpoint = Literal["batch_scrape", "crawl", "scrape"]
Kind = Endpoint | Literal["parse"]

#: `refresh_after` of a page that is never bought again.
NEVER = timedelta.max
_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?=.)(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")

#: Default page limit of a crawl in the service's contract.
CRAWL_LIMIT = 10_000

#: Prices in credits, from the service's published table of credit costs and, for json and zero data retention, from
#: other public text: of a page, what an option adds to it, and what an option raises it to. They estimate the cost
#: before a start; only the service knows the billed cost.
PAGE = 1.0
JSON_EXTRACTION = 4.0
ZERO_DATA_RETENTION = 1.0
PROXY_ENHANCED = 5.0
LOCKDOWN_HIT = 5.0


@dataclass(frozen=True, slots=True)
class StartReply:
    """The parsed response to a start request."""

    job_id: str
    #: URLs that the service rejected in the start response.
    rejected: tuple[str, ...] = ()
    #: The document as raw JSON, if the start response is the result of the job (scrape, parse).
    document: bytes | None = None
    #: Whether the service repeated its response to an earlier request with the same key.
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in which a later load of an orchestrator replaces the earlier ones (docs/decisions/040-slot-index.md)."""

    name: str
    has_partition: bool
    generation: int = 0
    run: str | None = None
    #: Why the orchestrator runs the task: a retry has the same occasion, a new request by a person has another one.
    occasion: str | None = None
    #: Names of the task, for messages: of the orchestrator, the graph, the task and the partition.
    task: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task of one run of an orchestrator's graph."""

    #: Names of the task that stay the same in all runs, outermost first: orchestrator, graph, task, map index.
    names: tuple[str | int, ...]
    #: Id of the run.
    run: str
    #: Why the orchestrator runs the task: a retry has the same occasion, a new request by a person has another one.
    occasion: str
    #: The partition of the graph that the task lands; None if the graph has no partitions.
    partition: str | None = None
    #: Whether the ledger knows which loads the task has returned to the orchestrator (Ledger.record_returned).
    records_return: bool = False

    def load_id(self, generation: int) -> str:
        """Return the load id of one generation."""
        return load_id_of("task", *self._whole(), self.run, generation)

    def slot(self, generation: int, path_keys: Mapping[str, str] | None) -> Slot:
        """Return the slot of this task's loads: one for each partition of the graph, or else of the path."""
        values = None if path_keys is None or self.partition is not None else list(path_keys.items())
        name = load_id_of("slot", *self._whole(), values)
        whole = self.names if self.partition is None else (*self.names, self.partition)
        task = tuple(map(str, whole))  # a partition key may be of a subclass of str
        return Slot(name, self.partition is not None or bool(path_keys), generation, self.run, self.occasion, task)

    def _whole(self) -> tuple[str | int, ...]:
        return self.names if self.partition is None else (*self.names, "partition", self.partition)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """A request for one load: its identity, and the function that starts its job."""

    kind: Kind
    load_id: str
    #: Builds the start operation with an idempotency key; None for a job that was started elsewhere.
    start: Callable[[str], Operation[object]] | None = None
    #: Id of a job that was started elsewhere.
    job_id: str | None = None
    #: The URLs that are sent; None if only the service knows them.
    submitted: tuple[str, ...] | None = None
    #: The target that the service's activity list would show for the job.
    first_target: str | None = None
    request_sha: str = ""
    #: Path keys of the dataset, in order; None for `load_date`.
    partition: Mapping[str, str] | None = None
    slot: Slot | None = None
    #: Id of the file of URLs together with the other arguments (list_sources.py); None if there is no such file.
    source: str | None = None
    #: The random key of a load that was requested with `new`: the same request with this key is the same load.
    new_key: str | None = None
    #: Builds the same request for another list of URLs; None if the request has no list.
    with_urls: Callable[[Sequence[str]], LoadRequest] | None = None
    #: Only URLs of which no page landed within this time are sent (due_urls.py); None: all.
    refresh_after: timedelta | None = None
    #: Names the loads of a request with `refresh_after`, which are numbered as those of a task; None for a task's load.
    family: Task | None = None
    #: How many URLs of the list are not sent because they are fresh; None if that was not asked.
    fresh: int | None = None
    #: Pages that the start certainly pays for, and the known price of one page in credits.
    pages: int = 0
    price: float = 0.0
    #: Maximum number of pages of a crawl; None if it is not known.
    page_limit: int | None = None
    #: Maximum number of pages of a crawl that has neither a limit nor max_credits; 0 if it has one of them.
    unlimited_pages: int = 0

    @property
    def endpoint(self) -> Endpoint | None:
        """The name of this kind of job in the activity list; None for `parse`, which is not listed."""
        return None if self.kind == "parse" else self.kind

    @property
    def nothing_due(self) -> bool:
        """Whether all URLs of the list are fresh, so that no job is started."""
        return bool(self.fresh) and not self.submitted

    def sending(self, urls: Sequence[str]) -> LoadRequest:
        """Return the request of the same load for another list of URLs."""
        assert self.with_urls is not None
        same = ("load_id", "slot", "source", "family", "fresh")
        return dataclasses.replace(self.with_urls(urls), **{name: getattr(self, name) for name in same})


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms on which a load is landed: tolerances and limits. They do not change its identity.

    Args:
        allow_partial: Publishes an incomplete load, with `complete: false`.
        missing_ratio: Share of submitted URLs that may be missing, from 0 to 1.
        fail_ratio: Share of submitted URLs that may have failed, from 0 to 1; above it the load is refused.
        max_credits: Limit in credits: a job that would cost more is not started, and a running job that exceeds it is
            cancelled.
        timeout_s: Time limit in seconds, counted from the call.
        ends_job: Whether `timeout_s` is a limit of the job: it then counts from the start of the job, over all runs,
            and a job that has not ended by then is cancelled; the pages that it had scraped are kept as a refused load.
        reads_late: Whether `timeout_s` limits only the wait for a job's end; results that are ready then are read
            anyway. Always so with `ends_job`.
        poll_s: Maximum seconds between polls.
    """

    allow_partial: bool = False
    missing_ratio: float = 0.0
    fail_ratio: float = 1.0
    max_credits: float | None = None
    timeout_s: float = 24 * 3600.0
    ends_job: bool = False
    reads_late: bool = False
    poll_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("missing_ratio", "fail_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidOption(f"{name} is {getattr(self, name)}.", hint="It is a share, from 0 to 1.")
        if self.max_credits is not None and not 0 <= self.max_credits < math.inf:
            raise InvalidOption(f"max_credits is {self.max_credits}.", hint="Give a number of credits, 0 or more.")
        if not self.timeout_s > 0:
            raise InvalidOption(f"The time limit is {self.timeout_s} s.", hint="Give a number of seconds above 0.")
        if not self.poll_s > 0:  # without a pause between polls the wait would be a busy loop
            raise InvalidOption(f"The interval of polls is {self.poll_s} s.", hint="Give a number of seconds above 0.")


@dataclass(frozen=True, slots=True)
class Naming:
    """What distinguishes loads of the same request in one root."""

    #: A text that the user chooses: another text is another load. With path keys, a later load of the key replaces the
    #: earlier one with the same values.
    key: str | None = None
    #: Whether to make a new load even if the same request has landed before.
    new: bool = False
    #: Path keys of the dataset, in order; None for `load_date`.
    partition: Mapping[str, str] | None = None
    #: For a list of URLs: as `refresh_window` takes it. Each call with URLs that are due is a new load then.
    refresh_after: timedelta | str | None = None
    #: The random key of a new load, in place of `key`. A later run that is given it as `key` continues the load.
    new_key: str | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        refresh_window(self.refresh_after)
        if self.new:
            object.__setattr__(self, "new_key", new_load_key())

    def request(self, kind: Kind, body: object) -> LoadRequest:
        """Return the request for a load of this kind and body: its identity, without the function that starts it."""
        partition = None if self.partition is None else list(self.partition.items())
        return LoadRequest(
            kind=kind,
            load_id=load_id_of("request", kind, body, self.new_key or self.key, partition),
            slot=self.slot(kind, body),
            request_sha=request_digest(body),
            partition=self.partition,
            new_key=self.new_key,
        )

    def slot(self, kind: str, body: object) -> Slot | None:
        """Return the slot of a load with path keys; None without.

        A later load of the same key, or without a key of the same request, replaces the earlier one. The pages and
        files of one command may share a key, so their requests count, too.
        """
        if not self.partition:
            return None
        whole = (self.key,) if self.key is not None and kind in JOB_KINDS else (self.key, kind, body)
        return Slot(load_id_of("slot", "request", *whole, list(self.partition.items())), has_partition=True)


def refresh_window(given: timedelta | str | None) -> timedelta | None:
    """Return how old a page may be that is not bought again; NEVER for any age, None if all pages are bought.

    Args:
        given: A duration above zero, or its text as `duration` takes it; or `never`.

    Raises:
        InvalidOption: It is anything else.
    """
    if given is None:
        return None
    if given == "never":
        return NEVER
    window = duration(given)
    if window is None:
        raise InvalidOption(
            f"refresh_after is {given!r}.", hint="Give a duration above zero, such as 7d, 12h or 90m, or `never`."
        )
    return window


def duration(given: object) -> timedelta | None:
    """Return a duration above zero, or that of a text such as `7d`, `12h`, `1h30m` or `30s`; None for anything else."""
    if isinstance(given, str) and (parts := _DURATION.fullmatch(given.strip())):
        days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
        with suppress(OverflowError):
            given = timedelta(days, seconds, hours=hours, minutes=minutes)
    return given if isinstance(given, timedelta) and given > timedelta(0) else None


def refresh_family(name: str) -> Task:
    """Return what names the loads of one request with `refresh_after`: after one that has landed comes the next."""
    return Task(("refresh", name), run="", occasion="")


def per_page(options: Mapping[str, object]) -> float:
    """Return the known maximum price in credits of one page with these scrape options (snake_case)."""
    price = PAGE
    formats = options.get("formats")
    for entry in formats if isinstance(formats, list | tuple) else ():
        kind = entry.get("type") if isinstance(entry, Mapping) else entry
        if kind == "json":
            price += JSON_EXTRACTION
    if options.get("zero_data_retention") is True:
        price += ZERO_DATA_RETENTION
    if options.get("proxy") == "enhanced":
        price = max(price, PROXY_ENHANCED)
    if options.get("lockdown") is True:
        price = max(price, LOCKDOWN_HIT)
    return price


def check_cost(pages: int, price: float, limit: float | None) -> None:
    """Check that pages at a price in credits do not cost more than a limit; None is no limit.

    Raises:
        CreditsExhausted: They would cost more.
    """
    if limit is not None and pages * price > limit:
        raise CreditsExhausted(
            f"{pages} {'page' if pages == 1 else 'pages'} at {price:g} credits each would cost {pages * price:g} "
            f"credits, more than the limit of {limit:g}; nothing was started.",
            hint=Remedy("Raise {max_credits}, or ask for fewer pages."),
        )


def batch(urls: Sequence[str], naming: Naming, **options: Unpack[BatchScrapeOptions]) -> LoadRequest:
    """Return the load request for a batch scrape of these URLs; one that stands twice in the list is sent once.

    Raises:
        InvalidOption: There is no URL, or an option is not in the contract.
    """
    if isinstance(urls, str | bytes):  # each character would be scraped as a URL
        raise InvalidOption("`urls` is a text, not a list.", hint="Put it into a list: [url].")
    urls = tuple(urls)
    sent = list(dict.fromkeys(urls)) if all(isinstance(url, str) for url in urls) else list(urls)
    window = refresh_window(naming.refresh_after)
    if window is not None and not {"min_age", "lockdown"} & options.keys():
        options.setdefault("max_age", 0)  # a page that is due is fetched: the service's cache may have the one we have
    probe = operations.start_batch_scrape(sent, **options)
    body = response_json.loads(probe.request.body or b"{}")
    named = naming.request("batch_scrape", body)
    if window is not None:  # loads of what is due complement each other, and replace none
        family = refresh_family(named.load_id)
        named = dataclasses.replace(named, slot=None, refresh_after=window, family=family)
    return dataclasses.replace(
        named,
        start=lambda key: operations.start_batch_scrape(sent, idempotency_key=key, **options),
        submitted=urls,
        with_urls=lambda others: batch(others, naming, **options),
        first_target=urls[0],
        pages=len(sent),
        price=per_page(options),
    )


def crawl(url: str, naming: Naming, terms: Terms = Terms(), **options: Unpack[CrawlOptions]) -> LoadRequest:
    """Return the load request for a crawl; `terms.max_credits` lowers its limit.

    Raises:
        InvalidOption: An option is not in the contract.
    """
    body = response_json.loads(operations.start_crawl(url, **options).request.body or b"{}")
    page_options: dict[str, object] = {**(options.get("scrape_options") or {})}
    if options.get("zero_data_retention"):  # an option of the crawl that changes the price of each page
        page_options["zero_data_retention"] = True
    price = per_page(page_options)
    limited = "limit" in options or terms.max_credits is not None
    if terms.max_credits is not None:
        pages = max(1, int(terms.max_credits // price))  # if it pays for no page, check_cost refuses the start
        if pages < options.get("limit", CRAWL_LIMIT):
            options["limit"] = pages
    # Of what is sent: with another limit it is another request, which must not be sent with the key of the first one.
    sent = response_json.loads(operations.start_crawl(url, **options).request.body or b"{}")
    return dataclasses.replace(
        naming.request("crawl", body),
        start=lambda key: operations.start_crawl(url, idempotency_key=key, **options),
        first_target=url,
        request_sha=request_digest(sent),
        pages=1,
        price=price,
        page_limit=options.get("limit", CRAWL_LIMIT),
        unlimited_pages=0 if limited else CRAWL_LIMIT,
    )


def scrape(url: str, naming: Naming, **options: Unpack[ScrapeOptions]) -> LoadRequest:
    """Return the load request for one page; the start response contains the document."""
    operation = operations.scrape(url, **options)
    body = response_json.loads(operation.request.body or b"{}")
    return dataclasses.replace(
        naming.request("scrape", body),
        start=lambda key: with_key(operation, key),
        submitted=(url,),
        first_target=url,
        pages=1,
        price=per_page(options),
    )


def parse(file: Path, naming: Naming, **options: Unpack[ParseOptions]) -> LoadRequest:
    """Return the load request for parsing one file; the file's name, its content and the options identify the load."""
    operation = operations.parse_file(file, **options)
    upload_fields = operation.request.upload.fields if operation.request.upload is not None else ()
    identity = [file.name, sha256(file.read_bytes()).hexdigest(), upload_fields]
    return dataclasses.replace(naming.request("parse", identity), start=lambda key: with_key(operation, key))


def existing_job(kind: str, job_id: str, partition: Mapping[str, str] | None = None) -> LoadRequest:
    """Return the load request for a job that was started elsewhere; the job's kind and id identify the load.

    Raises:
        InvalidOption: The kind is neither batch nor crawl, or the id is not a UUID.
    """
    name = job_kind(kind).name
    if uuid_problem(job_id):
        raise InvalidOption(f"{job_id[:60]!r} is not a job id.", hint="A job id is a UUID, as the start printed it.")
    job_id = job_id.lower()
    return LoadRequest(kind=name, load_id=job_load_id(name, job_id), job_id=job_id, partition=partition)


def with_key(operation: Operation[object], key: str) -> Operation[object]:
    """Return a paid operation with an idempotency key."""
    headers = (*operation.request.headers, ("x-idempotency-key", key))
    return replace(operation, request=replace(operation.request, headers=headers, paid=True))


def read_started(reply: Response, operation: Operation[object]) -> StartReply:
    """Parse the response to any start request.

    Raises:
        MalformedReply: The response has no job id, so the job cannot be polled.
    """
    value = responses.value_of(reply, operation.name)
    fields = value if isinstance(value, dict) else {}
    data = fields.get("data")
    if isinstance(data, dict):
        metadata = data.get("metadata")
        scrape_id = metadata.get("scrapeId") if isinstance(metadata, dict) else None
        job_id = scrape_id if isinstance(scrape_id, str) else fields.get("scrape_id")
        raw = bytes(response_json.split_object(bytes(reply.body))["data"])
        return StartReply(job_id.lower() if isinstance(job_id, str) and not uuid_problem(job_id) else "", document=raw)
    job_id, rejected = fields.get("id"), fields.get("invalidURLs")
    if not isinstance(job_id, str) or uuid_problem(job_id):
        raise MalformedReply(f"{operation.name}: the service answered without a job id.")
    urls = rejected if isinstance(rejected, list) else []
    replayed = reply.headers.get("idempotent-replayed", "").strip().lower() == "true"
    return StartReply(job_id.lower(), tuple(url for url in urls if isinstance(url, str)), replayed=replayed)
