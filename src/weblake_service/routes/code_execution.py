"""Runs code in a session and builds the session's URLs, for browser sessions and interact."""

from __future__ import annotations

from collections.abc import Mapping

from weblake_service.browser.chromium import require_browser
from weblake_service.components import ServiceComponents
from weblake_service.page.requested_formats import number
from weblake_service.responses import ErrorResponse
from weblake_service.sessions.code.runner import run_code
from weblake_service.sessions.sessions import LiveSession

#: Default timeout of code in seconds.
_DEFAULT_TIMEOUT_S = 30


def require_code(parts: ServiceComponents, what: str) -> None:
    """Check that code execution is allowed here, and that a browser is available.

    Raises:
        ErrorResponse: 503 with what is missing.
    """
    require_browser(what)
    if not parts.config.code_execution:
        raise ErrorResponse(
            503,
            f"{what} is off on this service: it would run on its machine, as its user, in no sandbox. "
            "`weblake serve --allow-code-execution` turns it on.",
            code="CODE_EXECUTION_DISABLED",
        )


async def run_in_session(
    parts: ServiceComponents, live: LiveSession, request_options: Mapping[str, object]
) -> tuple[dict[str, object], str | None]:
    """Run the code of a request (snake_case); return its result, and the value of its last expression if it has one.

    Raises:
        ErrorResponse: 410; the session ended while it ran.
    """
    folder = live.session.chromium.folder / "work"
    folder.mkdir(exist_ok=True)
    code = run_code(
        str(request_options["code"]),
        str(request_options.get("language") or "node"),
        cdp_url=parts.playwright.cdp_url(live),
        folder=folder,
        timeout_s=number(request_options.get("timeout"), _DEFAULT_TIMEOUT_S),
        page=live.session.active_page,
        unblock=live.session.watchdog.unblock,
    )
    found = await parts.sessions.use(live, code)
    shown: dict[str, object] = {
        "stdout": found.stdout,
        "stderr": found.stderr,
        "exitCode": found.exit_code,
        "killed": found.killed,
        "error": found.error,
    }
    return shown, found.value


def session_urls(session: LiveSession | str, base: str) -> dict[str, str]:
    """Return the URLs of a session for a client of `base`; those of an ended session (an id) are no longer valid."""

    def address(endpoint: str) -> str:
        path = f"/sessions/{session}/{endpoint}" if isinstance(session, str) else session.path(endpoint)
        return base.rstrip("/") + path

    return {
        "cdpUrl": address("cdp").replace("http", "ws", 1),
        "liveViewUrl": address("view"),
        "interactiveLiveViewUrl": address("control"),
    }
