"""The HTML, script and style of the live view, and their security headers."""

from __future__ import annotations

from html import escape
from importlib.resources import files

#: The files beside the HTML, by name, and what they are; the HTML names them below the `static` that it is given.
STATIC = {"live.js": "text/javascript", "live.css": "text/css"}

_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


def headers(*, framed: bool) -> dict[str, str]:
    """Headers of the HTML: nothing from elsewhere, and the address, which is all that it takes to get in, stays here.

    Args:
        framed: Whether pages of this service may show it in a frame; for those who only watch, as whoever sees the
            other one can be made to act in it.
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
        socket: The path of the view's WebSocket, on the host that the page comes from.
        static: The path below which `STATIC` is served, without a slash at its end.
    """
    return _file("live.html").decode().replace("{socket}", escape(socket)).replace("{static}", escape(static))


def static(name: str) -> bytes:
    """One of the files of `STATIC`."""
    if name not in STATIC:
        raise KeyError(name)
    return _file(name)


def _file(name: str) -> bytes:
    return files("weblake_service.sessions").joinpath("view").joinpath(name).read_bytes()
