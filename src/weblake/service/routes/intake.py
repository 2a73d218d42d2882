"""How request bodies become checked options. Imports: answers, config, features, limits, scraping, targets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weblake import options
from weblake.errors import InvalidOption
from weblake.service.answers import Refusal, bad_request
from weblake.service.config import ServiceConfig
from weblake.service.failures import PageFailure
from weblake.service.jobs.scraping import LOCKDOWN_HIT
from weblake.service.limits import too_many
from weblake.service.routes.targets import refusal, target

#: Names in a batch's options that are not about its pages.
_PAGE_NAMES = frozenset(options.PageOptions.__annotations__)
#: Seconds after which a full queue is worth another try.
_QUEUE_WAIT = 30


def read_options(cls: type, body: Mapping[str, object]) -> dict[str, object]:
    """The options of a request body by snake_case name.

    Raises:
        Refusal: 400 with what is wrong.
    """
    try:
        return options.from_wire(cls, body)
    except InvalidOption as error:
        details = [{"message": error.message, "hint": error.hint} if error.hint else {"message": error.message}]
        raise Refusal(400, error.message, code="BAD_REQUEST", details=details) from None


def read_target(url: object, config: ServiceConfig) -> str:
    """The URL that a request is about, as it will be fetched.

    Raises:
        Refusal: 400 where it is malformed, 403 where it is private.
    """
    try:
        return target(str(url), allow_private=config.allow_private)
    except PageFailure as problem:
        raise refusal(problem) from None


def page_options(asked: Mapping[str, object]) -> dict[str, object]:
    """The options of a request that say how a page is scraped."""
    return {name: value for name, value in asked.items() if name in _PAGE_NAMES}


def page_price(asked: Mapping[str, object]) -> int:
    """Credits that one page costs at most."""
    return LOCKDOWN_HIT if asked.get("lockdown") else 1


def read_webhook(asked: Mapping[str, object], config: ServiceConfig) -> dict[str, object] | None:
    """The webhook of a request as an object.

    Raises:
        Refusal: 400; its URL is malformed, or private where that is not allowed.
    """
    given = asked.get("webhook")
    if given is None:
        return None
    webhook: dict[str, object] = {"url": given} if isinstance(given, str) else dict(given)  # type: ignore[call-overload]
    try:
        webhook["url"] = target(str(webhook["url"]), allow_private=config.allow_private)
    except PageFailure as problem:
        bad_request(f"webhook.url cannot be used: {problem.message}")
    return webhook


def check_patterns(plan: Mapping[str, object]) -> None:
    """Makes sure that the paths of a crawl are regular expressions.

    Raises:
        Refusal: 400 with the one that is not.
    """
    for name, wire in (("include_paths", "includePaths"), ("exclude_paths", "excludePaths")):
        given = plan.get(name)
        for pattern in given if isinstance(given, list) else ():
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                bad_request(f"{wire} holds {pattern!r}, which is no regular expression: {error}")


def check_queue(waiting: int, more: int, config: ServiceConfig, now: float) -> None:
    """Makes sure that the queue has room for more pages.

    Raises:
        Refusal: 429 with the seconds to wait.
    """
    if waiting + more > config.max_queued_pages:
        raise too_many(
            f"The queue is full: {waiting} of {config.max_queued_pages} pages wait, and {more} more are asked for",
            _QUEUE_WAIT,
            now,
        )
