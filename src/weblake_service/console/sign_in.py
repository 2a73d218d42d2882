"""Sign-in to the console: a key is exchanged for a cookie, which is valid until the service ends.

The cookie contains a random token and no part of the key; the key is not stored.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from weblake_service.components import ServiceComponents
from weblake_service.config import Access
from weblake_service.responses import read_body

_COOKIE = "weblake_console"
#: Lifetime of a sign-in in seconds; and the maximum number of sign-ins, beyond which the oldest is removed.
_LIFETIME_S, _MAX_SIGN_INS = 12 * 3600, 1000
#: Maximum bytes of the sign-in form, and seconds within which it must arrive: it is sent without a key.
_MAX_FORM_BYTES, _FORM_TIMEOUT_S = 10_000, 10.0


class SignIns:
    """The active sign-ins of this service."""

    def __init__(self, parts: ServiceComponents) -> None:
        self._parts = parts
        self._known: OrderedDict[str, tuple[Access, float]] = OrderedDict()

    def access_of(self, request: Request) -> Access | None:
        """Return the access of a request's cookie; None without a valid sign-in."""
        found = self._known.get(request.cookies.get(_COOKIE, ""))
        return found[0] if found is not None and found[1] > self._parts.clock.now() else None

    async def sign_in(self, request: Request, response: Response) -> bool:
        """Sign in with the key in the submitted form; return whether the key is valid."""
        form = parse_qs((await read_body(request, _MAX_FORM_BYTES, _FORM_TIMEOUT_S)).decode("utf-8", "replace"))
        access = self._parts.authenticate(f"Bearer {form.get('key', [''])[0].strip()}")
        if access is None:
            return False
        word = secrets.token_urlsafe(32)
        self._known[word] = (access, self._parts.clock.now() + _LIFETIME_S)
        while len(self._known) > _MAX_SIGN_INS:
            self._known.popitem(last=False)
        response.set_cookie(
            _COOKIE, word, max_age=_LIFETIME_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
        )
        return True

    def sign_out(self, request: Request, response: Response) -> None:
        """Sign out."""
        self._known.pop(request.cookies.get(_COOKIE, ""), None)
        response.delete_cookie(_COOKIE, httponly=True, samesite="strict")
