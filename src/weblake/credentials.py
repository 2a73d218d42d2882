"""The API key, the only origin that it may be sent to, and the removal of the key from texts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from weblake import redaction
from weblake.errors import InvalidOption, WeblakeError, causes
from weblake.remedies import Remedy

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class RedactedBytes(bytes):
    """Bytes whose repr and str are `***`: HTTP libraries keep the header in locals, which some tracebacks show."""

    def __repr__(self) -> str:
        return "b'***'"

    __str__ = __repr__

    def __bytes__(self) -> bytes:
        return self  # h11 calls bytes() on headers; plain bytes would be shown

    def __getitem__(self, at: Any) -> Any:
        part = super().__getitem__(at)
        # A slice is the rest that is still to be written.
        return RedactedBytes(part) if isinstance(part, bytes) else part

    def __reduce__(self) -> str:
        raise TypeError("A header with the API key in it is not pickled.")


class ApiKey:
    """A bearer key whose repr, str and format are `***`, and which cannot be pickled.

    The constructor accepts any text, so that callers can wrap a key at once and no frame keeps the text: a later error
    may be shown with the locals of its frames. `check` refuses a text that cannot be a key.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value.strip()

    def check(self) -> None:
        """Raise InvalidOption if the key cannot be sent in a header."""
        if not self or not self._value.isascii() or not self._value.isprintable() or " " in self._value:
            raise InvalidOption(
                "The API key is empty or holds characters that no HTTP header can carry.",
                hint=Remedy("Set {api_key} to the key exactly as the service shows it."),
            )

    def header(self) -> bytes:
        """Return the value of the Authorization header; only the transport calls this."""
        return RedactedBytes(b"Bearer " + self._value.encode("ascii"))

    def __bool__(self) -> bool:
        return bool(self._value)

    def redact(self, text: str) -> str:
        """Return the text with each occurrence of the key replaced: plain, percent-encoded or truncated."""
        return redaction.redact(text, self._value)

    def __repr__(self) -> str:
        return "ApiKey(***)"

    __str__ = __repr__

    def __reduce__(self) -> str:
        raise TypeError("An API key is not pickled: pass the connection's name and read the key where it is used.")


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """The service's base URL: origin and path prefix, without a trailing slash, user info, query or fragment."""

    scheme: str
    netloc: str
    prefix: str

    @classmethod
    def parse(cls, text: str, *, insecure: bool = False) -> BaseUrl:
        """Parse and check a base URL.

        Args:
            text: Such as `https://api.example.com` or `http://127.0.0.1:8900/team/a/`.
            insecure: Whether to allow plain http to hosts other than loopback; the key is then sent unencrypted.

        Raises:
            InvalidOption: The URL is not http(s), has no ASCII host, has user info, a query or a fragment, or uses
                plain http to a host other than loopback without `insecure`.
        """
        try:
            parts = urlsplit(text.strip())
            port = parts.port
            (parts.hostname or "").encode("idna")  # fails for an empty or overlong label, which no lookup accepts
        except ValueError:
            raise _base_url_error("it cannot be read as a URL") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _base_url_error("it must begin with https:// or http:// and name a host")
        if not parts.hostname.isascii():
            raise _base_url_error("its host is not in ASCII, and is written as xn--… in the network")
        if parts.username is not None or parts.password is not None:
            raise _base_url_error(
                "it holds a user name or password", Remedy("Leave them out: the key goes into {api_key} only.")
            )
        if parts.query or parts.fragment or _CONTROL_CHARACTERS.search(text):
            raise _base_url_error("it holds a query, a fragment or a control character")
        if parts.scheme == "http" and not insecure and not is_loopback(parts.hostname):
            raise InvalidOption(
                f"Plain http to {parts.hostname} would send the API key in the clear.",
                hint=Remedy("Use https, or allow it with {insecure}."),
            )
        return cls(parts.scheme, _netloc(parts, port), parts.path.rstrip("/"))

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def host(self) -> str:
        """The host without port and brackets."""
        return urlsplit(self.origin).hostname or ""

    @property
    def label(self) -> str:
        """Name of the service in the ledger; without the port on loopback, because a restart changes the port."""
        return "loopback" if is_loopback(self.host) else str(self)

    def join(self, path: str) -> str:
        """Return the URL of a path below the base URL, including its path prefix.

        Raises:
            InvalidOption: The path does not begin with a slash, so its beginning would become part of the host name.
        """
        if not path.startswith("/"):
            raise InvalidOption(
                f"A request to {one_line(path, 60)!r} would not stay at {self.origin}.", hint="Begin it with a slash."
            )
        return f"{self.origin}{self.prefix}{path}"

    def __str__(self) -> str:
        return f"{self.origin}{self.prefix}"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def redact_error(error: BaseException, redact: Callable[[str], str]) -> None:
    """Remove the key from an error and its causes, because a service may repeat the key in a message."""
    for each in causes(error):
        if isinstance(each, WeblakeError):
            each.message, each.remedy = redact(each.message), each.remedy.with_values(redact)
            each.code = None if each.code is None else redact(each.code)
            each.args = (each.message,)


def one_line(text: str, limit: int = 200) -> str:
    """Return a service's text for use in a message: one line, no control characters, at most `limit` characters."""
    text = _CONTROL_CHARACTERS.sub(" ", text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _netloc(parts: SplitResult, port: int | None) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}[parts.scheme]
    return host if port is None or port == default else f"{host}:{port}"


def _base_url_error(why: str, remedy: Remedy | None = None) -> InvalidOption:
    remedy = remedy or Remedy("Set {base_url} to an address such as https://api.example.com.")
    return InvalidOption(f"The base URL is not usable: {why}.", hint=remedy)
