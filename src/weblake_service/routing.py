"""Builds the router: one route for each path, for all methods.

Starlette tries its routes in order: of two routes with one path the first would determine the methods in a 405, and
`/v2/crawl/active` would be a job id for every method without a handler of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router


def make_router(routes: Iterable[BaseRoute], check: Callable[[Request, str], None]) -> Router:
    """Return the routes as one router; of two routes with the same path and method, the first is used.

    Paths without a parameter come first, and a method without a handler is answered with 405 and the allowed methods.
    Other routes (websockets) are kept unchanged. `check` is called with each request and its route's path before the
    handler.
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
    # For any method, so that no path with a parameter is tried after this one.
    route.methods = None
    return route


_PREFIXES = ("/console/", "/sessions/")


def is_outside_api(path: str) -> bool:
    """Return whether a path uses a sign-in or a token instead of an API key."""
    return path == "/" or path.startswith(_PREFIXES)
