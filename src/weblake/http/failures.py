"""Classify the exceptions of HTTP libraries: whether a request was sent, and whether it can be repeated.

httpx, httpx2 and httpcore use the same exception names, so classes are compared by name. httpx-aiohttp reports a
connection that the server closed as a ConnectTimeout, so for aiohttp the original exception is used.
"""

from __future__ import annotations

import asyncio
import ssl
from traceback import clear_frames

from weblake.credentials import one_line
from weblake.errors import causes
from weblake.http.bodies import BodyRefused

#: Raised before the first byte of the request is sent.
_NOT_SENT_NAMES = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol"})
#: Base classes of the exceptions of httpx and httpx2, and of aiohttp.
_FAILURE_BASES = frozenset({"TransportError", "InvalidURL", "ClientError"})
_LIBRARIES = frozenset({"httpx", "httpx2", "aiohttp"})
#: The names in httpx of aiohttp's exceptions; the first match counts.
_NAMES_OF_AIOHTTP = (
    ("ConnectionTimeoutError", frozenset({"ConnectTimeout", "TimeoutException"})),
    ("ServerTimeoutError", frozenset({"ReadTimeout", "TimeoutException"})),
    ("ClientHttpProxyError", frozenset({"ProxyError"})),
    ("ClientConnectorError", frozenset({"ConnectError"})),
    ("InvalidURL", frozenset({"UnsupportedProtocol"})),
    ("ClientError", frozenset({"NetworkError"})),
)


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is a failure of the network or the server, and not a defect of weblake."""
    if isinstance(error, OSError | BodyRefused | asyncio.TimeoutError):
        return True
    return any(_library_of(base) in _LIBRARIES and base.__name__ in _FAILURE_BASES for base in type(error).__mro__)


def was_sent(error: BaseException) -> bool:
    """Return False if no byte of the request was sent."""
    return not class_names(error) & _NOT_SENT_NAMES


def class_names(error: BaseException) -> frozenset[str]:
    """Return the names of an exception's classes, as httpx names them."""
    for each in causes(error):
        if _library_of(type(each)) == "aiohttp":
            names = {base.__name__ for base in type(each).__mro__}
            return next((found for name, found in _NAMES_OF_AIOHTTP if name in names), frozenset())
    return frozenset(base.__name__ for base in type(error).__mro__)


def certificate_problem(error: BaseException) -> str | None:
    """Return why a server certificate was refused, or None if the failure has another reason."""
    for each in causes(error):
        # aiohttp's subclass has no `verify_message`; the original error follows in the chain.
        if isinstance(each, ssl.SSLCertVerificationError) and hasattr(each, "verify_message"):
            return one_line(each.verify_message or str(each))
    return None


def client_certificate_alert(error: BaseException) -> str | None:
    """Return the TLS alert with which a server refused the client certificate or asked for one, or None.

    Under TLS 1.3 it arrives after the handshake, but a server reads no request before the certificate is accepted.
    """
    for each in causes(error):
        reason = getattr(each, "reason", None)
        if isinstance(each, ssl.SSLError) and isinstance(reason, str) and "_ALERT_" in reason:
            alert = reason.partition("_ALERT_")[2].replace("_", " ").lower()
            if "certificate" in alert or alert in ("unknown ca", "access denied"):
                return alert
    return None


def clear_locals(error: BaseException) -> None:
    """Clear the local variables of the functions that an error has left: those of HTTP libraries may hold the key."""
    clear_frames(error.__traceback__)


def text_of(error: BaseException) -> str:
    """Return the text of an exception or of the first cause that has one, or the name of its class."""
    return next((text for each in causes(error) if (text := str(each))), type(error).__name__)


def _library_of(kind: type) -> str:
    return kind.__module__.partition(".")[0]
