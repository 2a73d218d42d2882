"""Validates the parameter names of query strings against the contract."""

from __future__ import annotations

from starlette.requests import Request

from weblake.api import options
from weblake_service.responses import bad_request
from weblake_service.routes.request_options import option_errors

#: The query parameters of each GET route that has some, by path.
_QUERIES = {
    "/v2/batch/scrape/{id}": options.ChunkQuery,
    "/v2/browser": options.BrowserFilter,
    "/v2/crawl/{id}": options.ChunkQuery,
    "/v2/team/activity": options.ActivityOptions,
    "/v2/team/credit-usage/historical": options.UsageOptions,
    "/v2/team/token-usage/historical": options.UsageOptions,
}


def check_query(request: Request, path: str) -> None:
    """Check the parameter names of a query string against the contract; paths outside of the API are not checked.

    Args:
        request: The request.
        path: The path of its route, such as `/v2/crawl/{id}`.

    Raises:
        ErrorResponse: 400 with the unknown name and the closest known one, or with a name that is given twice.
    """
    if not path.startswith("/v2/") or not request.query_params:
        return
    cls = _QUERIES.get(path) if request.method in ("GET", "HEAD") else None
    if cls is None:
        name = next(iter(request.query_params))
        bad_request(f"{name[:60]!r} is not an option here: this address takes no query.")
    with option_errors():
        options.check_query_names(cls, request.query_params)
    for name in request.query_params:
        if len(request.query_params.getlist(name)) > 1:
            bad_request(f"{name} is given more than once: give one value.")
