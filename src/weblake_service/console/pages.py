"""The pages of the console and their paths.

Each page is rendered completely from the database, so that it works without JavaScript; the script only requests the
same page again and replaces its main part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from sqlite3 import Connection, Row
from typing import TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from weblake_service.clock import iso
from weblake_service.components import RouteGroup, ServiceComponents
from weblake_service.config import Access
from weblake_service.console import queries
from weblake_service.console.sign_in import SignIns
from weblake_service.jobs import webhook_queue
from weblake_service.responses import ErrorResponse, not_found, read_integer
from weblake_service.sessions import session_records
from weblake_service.store import accounts

T = TypeVar("T")

_STATIC_FILES = {"console.css": "text/css", "console.js": "text/javascript"}
#: Content-Security-Policy and related headers: no external resources, no scripts from scraped text, no embedding.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    # Not no-referrer, with which browsers send `Origin: null` with the console's own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}

_Page = Callable[[Request, Access], Awaitable[Response]]


class ConsolePages(RouteGroup):
    """The pages; all except the first require a sign-in."""

    def __init__(self, parts: ServiceComponents) -> None:
        super().__init__(parts)
        self._sign_in = SignIns(parts)
        self._templates = Environment(
            loader=PackageLoader("weblake_service.console"), autoescape=True, undefined=StrictUndefined
        )
        self._templates.filters |= {"when": _format_time, "size": _format_size}

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/", self._require_sign_in(self.overview), methods=["GET"]),
            Route("/console/jobs", self._require_sign_in(self.jobs), methods=["GET"]),
            Route("/console/jobs/{id}", self._require_sign_in(self.job), methods=["GET"]),
            Route("/console/jobs/{id}/documents/{position}", self._require_sign_in(self.document), methods=["GET"]),
            Route("/console/usage", self._require_sign_in(self.usage), methods=["GET"]),
            Route("/console/deliveries", self._require_sign_in(self.deliveries), methods=["GET"]),
            Route("/console/browsers", self._require_sign_in(self.sessions), methods=["GET"]),
            Route("/console/browsers/{id}", self._require_sign_in(self.session), methods=["GET"]),
            Route("/console/sign-in", self.enter, methods=["POST"]),
            Route("/console/sign-out", self.leave, methods=["POST"]),
            Route("/console/static/{name}", self.static, methods=["GET"]),
        ]

    async def overview(self, request: Request, access: Access) -> Response:
        """Return the overview: running jobs, latest jobs, and this month's usage."""
        team, now, plan = access.team, self._parts.clock.now(), self._parts.config.plan(access.team)

        def work(db: Connection) -> dict[str, object]:
            return {
                "running": queries.running(db, team, now),
                "latest": [job for job in queries.list_jobs(db, team, now)[0] if job["ended"] is not None][:10],
                "used": accounts.used(db, team, now),
                "calls": queries.activity(db, team, now),
            }

        found = await self._parts.store.read(work)
        return self._page("overview", access, plan=plan, active=self._parts.scraper.active[team], **found)

    async def jobs(self, request: Request, access: Access) -> Response:
        """Return all jobs of the last day, newest first."""
        before = read_integer(request, "before", minimum=1, maximum=None, default=None)
        work = partial(queries.list_jobs, team=access.team, at=self._parts.clock.now(), before=before)
        jobs, following = await self._parts.store.read(work)
        return self._page("jobs", access, jobs=jobs, following=following, before=before)

    async def job(self, request: Request, access: Access) -> Response:
        """Return one job: progress, outcomes of its pages, documents, and failures."""
        first = read_integer(request, "first", minimum=0, maximum=None, default=0)
        assert first is not None

        def work(db: Connection) -> dict[str, object]:
            job = self._job(db, request, access)
            return {
                "job": job,
                "outcomes": queries.outcomes(db, job),
                "documents": queries.documents(db, job, first),
                "failures": queries.failures(db, job),
                "deliveries": webhook_queue.recent(db, queries.MAX_ROWS, job=job["id"]),
            }

        found = await self._parts.store.read(work)
        return self._page("job", access, first=first, page=queries.MAX_ROWS, **found)

    async def document(self, request: Request, access: Access) -> Response:
        """Return one document as text."""
        position = str(request.path_params["position"])

        def work(db: Connection) -> dict[str, object]:
            job = self._job(db, request, access)
            at = int(position) if position.isascii() and position.isdigit() and len(position) < 10 else -1
            found = queries.preview(db, job, at)
            if found is None:
                not_found("The job has no such document.")
            return {"job": job, "position": at, "document": found}

        return self._page("document", access, **await self._parts.store.read(work))

    async def usage(self, request: Request, access: Access) -> Response:
        """Return the page of credits by month and key, and the calls of the last day."""
        team, now, plan = access.team, self._parts.clock.now(), self._parts.config.plan(access.team)

        def work(db: Connection) -> dict[str, object]:
            used, months = accounts.used(db, team, now), queries.months(db, team)
            return {"used": used, "months": months, "calls": queries.activity(db, team, now)}

        return self._page("usage", access, plan=plan, **await self._parts.store.read(work))

    async def deliveries(self, request: Request, access: Access) -> Response:
        """Return the queued webhooks, and the outcomes of the last ones."""
        work = partial(webhook_queue.recent, limit=200, team=access.team)
        return self._page("deliveries", access, deliveries=await self._parts.store.read(work))

    async def sessions(self, request: Request, access: Access) -> Response:
        """Return the browser sessions of the last day, newest first."""
        now = self._parts.clock.now()
        work = partial(session_records.list_recent, team=access.team, active=None, at=now, scrapes=True)
        return self._page(
            "sessions", access, sessions=[self._session(row) for row in await self._parts.store.read(work)]
        )

    async def session(self, request: Request, access: Access) -> Response:
        """Return one browser session, with its read-only live view."""
        work = partial(session_records.by_id, session_id=str(request.path_params["id"]).lower())
        row = await self._parts.store.read(work)
        if row is None or row["team"] != access.team:
            not_found("There is no such browser session, or it has been forgotten.")
        return self._page("session", access, session=self._session(row))

    def _session(self, row: Row) -> dict[str, object]:
        """Return the row of a session with its status, active or destroyed, and the path of its view if it has one."""
        live = self._parts.sessions.live(row["id"])
        if live is None:
            return {**dict(row), "status": "destroyed", "view": ""}
        return {
            **dict(row),
            "status": "active",
            "used": live.used,
            "view": live.path("view") if live.spec.streamed else "",
        }

    async def enter(self, request: Request) -> Response:
        """Sign in with the submitted key."""
        _check_origin(request)
        response = RedirectResponse("/", 303)
        if await self._sign_in.sign_in(request, response):
            return response
        return self._page("sign_in", None, 403, refused=True)

    async def leave(self, request: Request) -> Response:
        """Sign out."""
        _check_origin(request)
        response = RedirectResponse("/", 303)
        self._sign_in.sign_out(request, response)
        return response

    async def static(self, request: Request) -> Response:
        """Return the style sheet and the script."""
        name: str = request.path_params["name"]
        if name not in _STATIC_FILES:
            not_found("The console has no such file.")
        body = files("weblake_service.console").joinpath("static").joinpath(name).read_bytes()
        return Response(body, media_type=_STATIC_FILES[name], headers={"Cache-Control": "no-cache"})

    def _job(self, db: Connection, request: Request, access: Access) -> Row:
        job = queries.find_job(db, access.team, str(request.path_params["id"]).lower(), self._parts.clock.now())
        if job is None:
            not_found("There is no such job, or it has expired.")
        return job

    def _require_sign_in(self, page: _Page) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            access = self._sign_in.access_of(request)
            if access is None:
                return self._page("sign_in", None, 200 if request.url.path == "/" else 401, refused=False)
            try:
                return await page(request, access)
            except ErrorResponse as refusal:
                return self._page("error", access, refusal.status, error=refusal.error)

        return endpoint

    def _page(self, template: str, access: Access | None, status: int = 200, /, **given: object) -> Response:
        text = self._templates.get_template(f"{template}.html").render(
            access=access, here=template, now=self._parts.clock.now(), **given
        )
        return Response(text.encode("utf-8", "replace"), status, _HEADERS, "text/html")


def _check_origin(request: Request) -> None:
    """Refuse a form that a browser sends from a page of another site."""
    origin = request.headers.get("origin")
    if origin is not None and origin.lower().partition("://")[2] != request.headers.get("host", "").lower():
        raise ErrorResponse(403, "This form was sent from a page of another site.", code="ORIGIN_NOT_ALLOWED")


def _format_time(seconds: float) -> str:
    """Return a time in readable form."""
    return iso(seconds)[:19].replace("T", " ") + " UTC"


def _format_size(count: int) -> str:
    """Return a number of bytes in readable form."""
    return (
        f"{count:,} B" if count < 10_000 else f"{count / 1024:,.0f} KB" if count < 10 << 20 else f"{count >> 20:,} MB"
    )
