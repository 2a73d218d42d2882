"""Checks of requests when definitions load: against the contract, without the environment, storage or the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

import dagster as dg

from dagster_weblake.requests import (
    BatchScrapeRequest,
    CrawlRequest,
    JobRequest,
    LandingRequest,
    ParseRequest,
    Request,
    ScrapeRequest,
    check_file,
    check_option_names,
    check_type,
)
from dagster_weblake.secret_config import ENV_VARS
from dagster_weblake.url_inputs import urls_of
from weblake import options as contract
from weblake import orchestration
from weblake.errors import InvalidOption

#: A replacement for a text that is only known when the step runs.
_ANY_TEXT, _ANY_URL = "x", "https://example.com/"


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
    return dg.DagsterInvalidDefinitionError(f"Asset {asset.to_user_string()!r}: {error}")


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
        check_type("partition", request.partition, Mapping, "a dict")
    if isinstance(request, CrawlRequest):
        _check_options(contract.CrawlRequest, request.options, url=_url(request.url))
    elif isinstance(request, ScrapeRequest):
        _check_options(contract.ScrapeRequest, request.options, url=_url(request.url))
    elif isinstance(request, BatchScrapeRequest):
        urls = [_ANY_URL]
        if isinstance(request.urls, list | tuple) and not isinstance(request.urls, dg.AssetKey):
            urls = urls_of([_ANY_URL if _is_unknown_yet(url) else url for url in request.urls])
        _check_options(contract.BatchScrapeRequest, request.options, urls=urls)
    elif isinstance(request, ParseRequest):
        check_file(request.file)
        _check_options(contract.ParseOptions, request.options)
    elif isinstance(request, JobRequest) and request.kind is not None and request.job_id is not None:
        check_type("kind", request.kind, str, "a text")
        check_type("job_id", request.job_id, str, "a text")
        orchestration.existing_job_request(request.kind, request.job_id.strip())


def _check_options(form: type, options: Mapping[str, object], **more: object) -> None:
    check_option_names(options)
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
