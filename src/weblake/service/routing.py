"""Which handler a request goes to: one route a path, whatever its methods. Imports nothing of ours.

Starlette asks its routes in turn, so that of two routes with one path the first decides which methods a 405 names, and
`/v2/crawl/active` is a job id wherever it has no handler of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router


def make_router(routes: Iterable[Route]) -> Router:
    """The routes as one router; of two that answer one method of one path, the first is heard.

    Paths without a parameter come first, and a method that a path does not take is answered with 405 and all that it
    takes.
    """
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        for method in route.methods or ():
            by_path.setdefault(route.path, {}).setdefault(method, route)
    ordered = sorted(by_path, key=lambda path: path.count("{"))
    return Router([_one(path, by_path[path]) for path in ordered], redirect_slashes=False)


def _one(path: str, handlers: dict[str, Route]) -> Route:
    async def endpoint(request: Request) -> Response:
        response: Response = await handlers[request.method].endpoint(request)
        return response

    return Route(path, endpoint, methods=list(handlers))
