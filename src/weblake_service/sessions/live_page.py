"""The HTML, script and style of the live view, and their security headers."""

from __future__ import annotations

from html import escape
from importlib.resources import files

#: The files beside the HTML, by name, with their content types; the HTML refers to them below its `static` path.
STATIC = {"live.js": "text/javascript", "live.css": "text/css"}

_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


def headers(*, framed: bool) -> dict[str, str]:
    """Return the headers of the HTML: no external resources, and no leak of the URL, which contains the access token.

    Args:
        framed: Whether pages of this service may embed the view in a frame. Only for read-only views, because an
            embedded interactive view allows clickjacking.
    """
    frames = "'self'" if framed else "'none'"
    policy = (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors {frames}"
    )
    return {"Content-Security-Policy": policy, **_HEADERS}


def page(socket: str, static: str) -> str:
    """Return the HTML of a view.

    Args:
        socket: The path of the view's WebSocket, on the host of the page.
        static: The path below which `STATIC` is served, without a trailing slash.
    """
    return _file("live.html").decode().replace("{socket}", escape(socket)).replace("{static}", escape(static))


def static(name: str) -> bytes:
    """Return one of the files of `STATIC`."""
    if name not in STATIC:
        raise KeyError(name)
    return _file(name)


def _file(name: str) -> bytes:
    return files("weblake_service.sessions").joinpath("view").joinpath(name).read_bytes()
