"""Builds the router: one route for each path, for all methods.

Starlette asks its routes in turn, so that of two routes with one path the first decides which methods a 405 names, and
`/v2/crawl/active` is a job id wherever it has no handler of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router


def make_router(routes: Iterable[BaseRoute], check: Callable[[Request, str], None]) -> Router:
    """Return the routes as one router; of two that answer one method of one path, the first is heard.

    Paths without a parameter come first, and a method that a path does not take is answered with 405 and all that it
    takes. What is no request (a websocket) keeps its route. `check` is called with each request and its route's path
    before the handler.
    """
    others: list[BaseRoute] = []
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        if not isinstance(route, Route):
            others.append(route)
            continue
        for method in route.methods or ():
            by_path.setdefault(route.path, {}).setdefault(method, route)
    ordered = sorted(by_path, key=lambda path: path.count("{"))
    return Router([*(_route_of_path(path, by_path[path], check) for path in ordered), *others], redirect_slashes=False)


def _route_of_path(path: str, handlers: dict[str, Route], check: Callable[[Request, str], None]) -> Route:
    allowed = {"Allow": ", ".join(sorted(handlers))}

    async def endpoint(request: Request) -> Response:
        handler = handlers.get(request.method)
        if handler is None:
            raise HTTPException(405, headers=allowed)
        check(request, path)
        response: Response = await handler.endpoint(request)
        return response

    route = Route(path, endpoint)
    # Whatever the method, so that no path with a parameter in it is tried after this one.
    route.methods = None
    return route
