"""The base URL and the API key of the service, where they are set, and the removal of secrets from texts.

No vendor's address is built in. Without a base URL, `find` returns None and the client uses the embedded service.
Errors of storage and table libraries may show their settings, and services may return what they were sent.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from weblake.errors import AskPerson, InvalidOption, Remedy, WeblakeError, causes

BASE_URL, API_KEY, INSECURE = "WEBLAKE_BASE_URL", "WEBLAKE_API_KEY", "WEBLAKE_INSECURE"

#: Characters; the beginning of a secret with at least this length is removed from a text.
MIN_PREFIX = 8
_SECRET_NAME = re.compile(
    r"secret|passw|passphrase|credential|authorization|private|signature|token$|(access|account|api|sas)[-_.]?key$"
    r"|service[-_.]account[-_.]key|connection[-_.]string",
    re.IGNORECASE,
)
#: The beginning of a URL. Connection strings and key files contain URLs, too.
_URL = re.compile(r"[a-z][a-z0-9+.\-]*://", re.IGNORECASE)
#: Values that are no secrets, whatever their names say: masked, they would disappear from every line of a log.
_NO_SECRET = re.compile(r"(true|false|none|null|[\d.]*)", re.IGNORECASE)

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
        return redact(text, self._value)

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


@dataclass(frozen=True, slots=True)
class Settings:
    """The base URL of a service and its API key."""

    base_url: BaseUrl
    api_key: ApiKey


def find(
    base_url: str | None = None, api_key: ApiKey | None = None, *, insecure: bool | None = None
) -> Settings | None:
    """Return the settings, arguments before environment; None if no base URL is set: use the embedded service then.

    Raises:
        InvalidOption: The base URL or the key cannot be used.
        AskPerson: There is a base URL and no key.
    """
    url = base_url or os.environ.get(BASE_URL, "").strip()
    if not url:
        return None
    if insecure is None:
        insecure = os.environ.get(INSECURE, "").strip().lower() in ("1", "true", "yes", "on")
    base = BaseUrl.parse(url, insecure=insecure)
    key = ApiKey(os.environ.get(API_KEY, "")) if api_key is None else api_key
    if not key:
        raise AskPerson(
            f"There is a base URL ({base}) and no API key.",
            hint=Remedy(
                "Set {api_key} to the key that the service's dashboard shows, or that `weblake serve` printed."
            ),
        )
    key.check()
    return Settings(base, key)


def state_dir() -> Path:
    """Return the directory of the embedded service's database, in the user's XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME", "").strip()
    if base and Path(base).is_absolute():
        return Path(base) / "weblake"
    return home() / ".local" / "state" / "weblake"


def home(path: str | Path = "~") -> Path:
    """Return a path with `~` or `~user` replaced by the home directory; any other path is unchanged.

    Raises:
        InvalidOption: The directory is unknown, for example in a container whose user id is not in the user database.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InvalidOption(
            f"The home directory of {str(path)!r} is not known.",
            hint="Set HOME (or XDG_STATE_HOME, for the embedded service's database), or give a path without ~.",
        ) from None


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


def secrets_in(settings: Mapping[str, object]) -> Iterator[str]:
    """Yield the secrets among settings of storage and catalogs, each as a whole, and its parts if it has some."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from secrets_in(value)
            continue
        text = str(value)
        if _URL.match(text):
            with suppress(ValueError):
                if password := urlsplit(text).password:
                    yield from (password, unquote(password))
        elif _SECRET_NAME.search(name) and not _NO_SECRET.fullmatch(text):
            yield text.partition(":")[2] or text if name == "credential" else text  # a credential is id:secret
            yield from secrets_in(_parts(text))


def _parts(secret: str) -> Mapping[str, object]:
    """Return the fields of a secret that has some: the key file of a service account, or a connection string.

    An error may show one of them alone.
    """
    with suppress(ValueError):
        found = json.loads(secret)
        return found if isinstance(found, Mapping) else {}
    fields = (part.partition("=") for part in secret.split(";"))
    return {name: value for name, _, value in fields if value}


def redact(text: str, secret: str) -> str:
    """Return the text with each occurrence of a secret as `***`: plain, percent-encoded or truncated.

    Texts may end within a secret: a message has only the first 300 characters of an error of a library.
    """
    prefix = "".join(f"(?:{_forms_of(one)})" for one in secret[:MIN_PREFIX])
    shown, end = [], 0
    for found in re.finditer(prefix, text) if secret else ():
        if found.start() < end:
            continue
        shown.append(text[end : found.start()])
        end = found.end()
        for one in secret[MIN_PREFIX:]:  # "%" alone is where the text was truncated
            more = re.compile(f"{_forms_of(one)}|%").match(text, end)
            if more is None:
                break
            end = more.end()
    return "***".join([*shown, text[end:]])


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return the text with `redact` applied for each secret, except short ones, which could be words."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = redact(text, secret) if len(secret) > MIN_PREFIX else text
    return text


def _forms_of(character: str) -> str:
    """Return a pattern for a character, plain or percent-encoded."""
    encoded = "".join(f"%{byte:02x}" for byte in character.encode(errors="replace"))
    return f"{re.escape(character)}|(?i:{encoded})"
