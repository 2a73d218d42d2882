"""Classify the exceptions of httpx: whether a request was sent, and why TLS failed."""

from __future__ import annotations

import ssl

import httpx

from weblake.credentials import one_line
from weblake.errors import causes
from weblake.http.bodies import BodyRefused

#: The exceptions that are failures of the network or the server, and not defects of weblake.
FAILURES = (httpx.TransportError, httpx.InvalidURL, OSError, BodyRefused)
#: Raised before the first byte of the request is sent.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)


def was_sent(error: BaseException) -> bool:
    """Return False if no byte of the request was sent."""
    return not isinstance(error, _NOT_SENT)


def certificate_problem(error: BaseException) -> str | None:
    """Return why a server certificate was refused, or None if the failure has another reason."""
    for each in causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
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


def text_of(error: BaseException) -> str:
    """Return the text of the first cause of an exception that has one, or the name of its class.

    The first cause is an error of the system, which says more than httpx: "All connection attempts failed".
    """
    return next((text for each in reversed(list(causes(error))) if (text := str(each))), type(error).__name__)
