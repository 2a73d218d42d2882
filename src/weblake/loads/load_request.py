"""What is to be landed, and on which terms.

An order is the logical identity of a load and the way to start its job; terms are what does not change the identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from typing_extensions import Unpack

from weblake.api import operations, options, response_json, responses
from weblake.api.job_kinds import job_kind
from weblake.api.operation import Operation
from weblake.api.options.values import uuid_problem
from weblake.dataset.identity import job_load_id, load_id_of, new_load_id, request_digest
from weblake.errors import CreditsExhausted, InvalidOption, MalformedReply
from weblake.loads.prices import per_page
from weblake.remedies import Remedy
from weblake.steps import Reply

Endpoint = Literal["batch_scrape", "crawl", "scrape"]
Kind = Endpoint | Literal["parse"]

#: Pages of a crawl whose limit is not given, as the contract has it.
CRAWL_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Started:
    """What a start's reply says."""

    job_id: str
    #: URLs that the service refused at once.
    rejected: tuple[str, ...] = ()
    #: The document itself, as raw JSON, where the start is the whole job (scrape, parse).
    document: bytes | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an orchestrator's loads replace each other (design: "Slots")."""

    name: str
    has_partition: bool
    generation: int = 0
    run: str | None = None
    #: What made the orchestrator ask: a retry has the same, another request by a person has another.
    occasion: str | None = None
    #: What the orchestrator calls the work, for people: its own name, then the names of graph, task and partition.
    task: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """One load."""

    kind: Kind
    load_id: str
    #: Builds the start with an idempotency key; None for a job that was started elsewhere.
    start: Callable[[str], Operation[object]] | None = None
    #: The job that was started elsewhere.
    job_id: str | None = None
    #: The URLs that are sent; None where only the service knows them.
    submitted: tuple[str, ...] | None = None
    #: What the activity list would show as the job's target.
    first_target: str | None = None
    request_sha: str = ""
    #: Path keys of the dataset, in order; None for load_date.
    partition: Mapping[str, str] | None = None
    slot: Slot | None = None
    #: The file that the URLs come from, with everything else that is asked for (list_sources.py).
    source: str | None = None
    #: Builds the same request for another list of URLs; None where the request has no list.
    with_urls: Callable[[Sequence[str]], Order] | None = None
    #: Pages that are surely bought when it starts, and the credits that one is known to cost.
    pages: int = 0
    price: float = 0.0
    #: Pages that a crawl may come to where it has neither a limit nor max_credits; 0 where something limits it.
    unlimited_pages: int = 0

    @property
    def endpoint(self) -> Endpoint | None:
        """The name under which the activity list has such jobs; it has none for parse."""
        return None if self.kind == "parse" else self.kind


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a load is landed; none of them changes its identity."""

    #: Stores what there is of a load that does not add up, with `complete: false`.
    allow_partial: bool = False
    #: The share of submitted URLs that may be missing.
    missing_ratio: float = 0.0
    #: The share of submitted URLs that may have failed; beyond it the load is refused.
    fail_ratio: float = 1.0
    #: Refuses to start what would cost more, and cancels a job that passes it.
    max_credits: float | None = None
    #: Seconds from now until the load has to be over.
    timeout_s: float = 24 * 3600.0
    #: Whether that limit is the job's own: it counts from the load's intent then, over all runs, and a job that has not
    #: ended by it is cancelled; what it had scraped is kept as a refused load.
    ends_job: bool = False
    #: Seconds between polls at most.
    poll_s: float = 10.0

    def __post_init__(self) -> None:
        for name in ("missing_ratio", "fail_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidOption(f"{name} is {getattr(self, name)}.", hint="It is a share, from 0 to 1.")
        if self.max_credits is not None and not 0 <= self.max_credits < math.inf:
            raise InvalidOption(f"max_credits is {self.max_credits}.", hint="Give a number of credits, 0 or more.")
        if not self.timeout_s > 0:
            raise InvalidOption(f"The time limit is {self.timeout_s} s.", hint="Give a number of seconds above 0.")


@dataclass(frozen=True, slots=True)
class Naming:
    """What tells two loads of the same request in one root apart."""

    #: A text of the user's: another text is another load.
    key: str | None = None
    #: Whether a fresh load is meant, whatever has landed before.
    new: bool = False
    #: Path keys of the dataset, in order; None for load_date.
    partition: Mapping[str, str] | None = None

    def load_id(self, kind: str, body: object) -> str:
        """The id of a load of this request."""
        if self.new:
            return new_load_id()
        partition = None if self.partition is None else list(self.partition.items())
        return load_id_of("request", kind, body, self.key, partition)


def check_cost(pages: int, price: float, limit: float | None) -> None:
    """Refuses what would cost more than a limit of credits; no limit allows all.

    Raises:
        CreditsExhausted: It would.
    """
    if limit is not None and pages * price > limit:
        raise CreditsExhausted(
            f"{pages} {'page' if pages == 1 else 'pages'} at {price:g} credits each would cost {pages * price:g} "
            f"credits, more than the limit of {limit:g}; nothing was started.",
            hint=Remedy("Raise {max_credits}, or ask for fewer pages."),
        )


def batch(urls: Sequence[str], naming: Naming, **given: Unpack[options.BatchScrapeOptions]) -> Order:
    """An order for a batch scrape of these URLs.

    Raises:
        InvalidOption: No URL, or an option outside the contract.
    """
    if isinstance(urls, str | bytes):  # its letters would be bought, one by one
        raise InvalidOption("`urls` is a text, not a list.", hint="Put it into a list: [url].")
    urls = list(urls)
    probe = operations.start_batch_scrape(urls, **given)
    body = response_json.loads(probe.request.body or b"{}")
    return Order(
        kind="batch_scrape",
        load_id=naming.load_id("batch_scrape", body),
        start=lambda key: operations.start_batch_scrape(urls, idempotency_key=key, **given),
        submitted=tuple(urls),
        with_urls=lambda others: batch(others, naming, **given),
        first_target=urls[0],
        request_sha=request_digest(body),
        partition=naming.partition,
        pages=len(urls),
        price=per_page(given),
    )


def crawl(url: str, naming: Naming, terms: Terms = Terms(), **given: Unpack[options.CrawlOptions]) -> Order:
    """An order for a crawl; `terms.max_credits` lowers its limit.

    Raises:
        InvalidOption: An option outside the contract.
    """
    body = response_json.loads(operations.start_crawl(url, **given).request.body or b"{}")
    load_id = naming.load_id("crawl", body)
    options_of_a_page: dict[str, object] = {**(given.get("scrape_options") or {})}
    if given.get("zero_data_retention"):  # an option of the crawl, and a price of each page
        options_of_a_page["zero_data_retention"] = True
    price = per_page(options_of_a_page)
    limited = "limit" in given or terms.max_credits is not None
    if terms.max_credits is not None:
        pages = max(1, int(terms.max_credits // price))  # where it pays for none, check_cost refuses the start
        if pages < given.get("limit", CRAWL_LIMIT):
            given["limit"] = pages
    return Order(
        kind="crawl",
        load_id=load_id,
        start=lambda key: operations.start_crawl(url, idempotency_key=key, **given),
        first_target=url,
        request_sha=request_digest(body),
        partition=naming.partition,
        pages=1,
        price=price,
        unlimited_pages=0 if limited else CRAWL_LIMIT,
    )


def scrape(url: str, naming: Naming, **given: Unpack[options.ScrapeOptions]) -> Order:
    """An order for one page; the start's own reply is the document."""
    operation = operations.scrape(url, **given)
    body = response_json.loads(operation.request.body or b"{}")
    return Order(
        kind="scrape",
        load_id=naming.load_id("scrape", body),
        start=lambda key: with_key(operation, key),
        submitted=(url,),
        first_target=url,
        request_sha=request_digest(body),
        partition=naming.partition,
        pages=1,
        price=per_page(given),
    )


def parse(file: Path, naming: Naming, **given: Unpack[options.ParseOptions]) -> Order:
    """An order for one file, known by its name and content."""
    operation = operations.parse_file(file, **given)
    given_fields = operation.request.upload.fields if operation.request.upload is not None else ()
    identity = [file.name, sha256(file.read_bytes()).hexdigest(), given_fields]
    return Order(
        kind="parse",
        load_id=naming.load_id("parse", identity),
        start=lambda key: with_key(operation, key),
        submitted=None,
        first_target=None,
        request_sha=request_digest(identity),
        partition=naming.partition,
    )


def elsewhere(kind: str, job_id: str, partition: Mapping[str, str] | None = None) -> Order:
    """An order for a job that was started elsewhere; its identity is its kind and id.

    Raises:
        InvalidOption: Another kind than batch and crawl, or an id that is no UUID.
    """
    name = job_kind(kind).name
    if uuid_problem(job_id):
        raise InvalidOption(f"{job_id[:60]!r} is no job id.", hint="A job id is a UUID, as the start printed it.")
    job_id = job_id.lower()
    return Order(kind=name, load_id=job_load_id(name, job_id), job_id=job_id, partition=partition)


def with_key(operation: Operation[object], key: str) -> Operation[object]:
    """A paid request under an idempotency key, on a connection of its own."""
    headers = (*operation.request.headers, ("x-idempotency-key", key))
    return replace(operation, request=replace(operation.request, headers=headers, fresh=True))


def read_started(reply: Reply, operation: Operation[object]) -> Started:
    """Reads the reply to any start.

    Raises:
        MalformedReply: It names no job, so that nothing can be followed.
    """
    value = responses.value_of(reply, operation.name)
    fields = value if isinstance(value, dict) else {}
    data = fields.get("data")
    if isinstance(data, dict):
        metadata = data.get("metadata")
        scrape_id = metadata.get("scrapeId") if isinstance(metadata, dict) else None
        job_id = scrape_id if isinstance(scrape_id, str) else fields.get("scrape_id")
        raw = bytes(response_json.split_object(bytes(reply.body))["data"])
        return Started(job_id.lower() if isinstance(job_id, str) and not uuid_problem(job_id) else "", document=raw)
    job_id, rejected = fields.get("id"), fields.get("invalidURLs")
    if not isinstance(job_id, str) or uuid_problem(job_id):
        raise MalformedReply(f"{operation.name}: the service answered without a job id.")
    urls = rejected if isinstance(rejected, list) else []
    return Started(job_id.lower(), tuple(url for url in urls if isinstance(url, str)))
