"""Reading and checking of an Airflow connection to the service.

A connection can be written as fields of the form, as JSON, or as a URI, with the same meaning. A URI splits the base
URL into host, port and schema; this module joins them again.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

import weblake
from airflow_provider_weblake.observing import observer
from airflow_provider_weblake.remedies import in_airflow_terms
from weblake.errors import AskPerson, InvalidOption
from weblake.orchestration import RetryPolicy

if TYPE_CHECKING:
    from airflow.sdk import Connection

    C = TypeVar("C", weblake.Client, weblake.AsyncClient)
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off", "none", "null"})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A service, its API key and the settings of calls to it; connections with equal settings give equal endpoints."""

    base_url: str
    api_key: str = field(repr=False)
    insecure: bool = False
    #: Seconds for which one call is tried; None for the core's default of a minute.
    call_timeout_s: float | None = None
    #: The URL template of a job's page, with {kind} and {job_id}; empty if the service has no page for a job.
    job_url: str = ""
    #: Proxy and TLS settings; None if the extra has none, so that the environment's settings apply.
    http_options: weblake.HttpOptions | None = None

    @classmethod
    def of(cls, connection: Connection, extra: object) -> Endpoint:
        """Return the endpoint of a connection and its decoded extra.

        Raises:
            AskPerson: There is no host or no password: the message names the connection and the field.
            InvalidOption: A field cannot be used.
        """
        name = connection.conn_id
        if not isinstance(extra, Mapping):
            raise InvalidOption(
                f"Connection {name!r}: its extra is not a JSON object.",
                hint='Write it as {"call_timeout_s": 60}, or leave it empty.',
            )
        if not (connection.host or "").strip():
            raise AskPerson(
                f"Connection {name!r} has no host, so it is not known where the service is.",
                hint="Set its host (Base URL), such as https://api.example.com, "
                "or the address that `weblake serve` printed.",
            )
        if not (connection.password or "").strip():
            raise AskPerson(
                f"Connection {name!r} has no password, so there is no API key.",
                hint="Set its password (API key) to the key that the service's dashboard shows, "
                "or that `weblake serve` printed.",
            )
        return cls(
            base_url=_base_url(connection),
            api_key=str(connection.password).strip(),
            insecure=_flag(name, "insecure", extra.get("insecure")),
            call_timeout_s=_seconds(name, "call_timeout_s", extra.get("call_timeout_s")),
            job_url=_template(name, extra.get("job_url")),
            http_options=_http_options(name, extra),
        )

    def secrets(self) -> list[str]:
        """Return the values to mask in logs: the API key, and a proxy's password as text and as in its URL."""
        proxy = (self.http_options.proxy if self.http_options else None) or ""
        user_info = proxy.rpartition("@")[0].rpartition("/")[2]
        password = user_info.partition(":")[2]
        return [self.api_key, *dict.fromkeys(each for each in (password, unquote(password)) if each)]

    def client(self, conn_id: str, policy: RetryPolicy | None = None) -> weblake.Client:
        """Return a new client; raise InvalidOption, naming the connection, if the URL or key cannot be used."""
        return self._made(weblake.Client, conn_id, policy)

    def aclient(self, conn_id: str) -> weblake.AsyncClient:
        """Return a new client for an event loop; raise as `client` does."""
        return self._made(weblake.AsyncClient, conn_id)

    @in_airflow_terms()
    def _made(self, kind: type[C], conn_id: str, policy: RetryPolicy | None = None) -> C:
        if policy is None and self.call_timeout_s is not None:
            policy = RetryPolicy.lasting(self.call_timeout_s)
        try:
            return kind(
                self.base_url,
                self.api_key,
                insecure=self.insecure,
                retry_policy=policy,
                http_options=self.http_options,
                observer=observer(),
            )
        except InvalidOption as error:
            raise _of_connection(conn_id, error) from None


def _of_connection(conn_id: str, error: InvalidOption) -> InvalidOption:
    # A message about one of the HTTP options begins with the option's name in backticks.
    field = "extra field " if error.message.startswith("`") else ""
    return InvalidOption(f"Connection {conn_id!r}: {field}{error.message}", hint=error.remedy)


def _base_url(connection: Connection) -> str:
    host, schema = str(connection.host).strip(), (connection.schema or "").strip().strip("/")
    is_scheme = schema.lower() in ("http", "https")
    if "://" not in host:
        if host.count(":") > 1 and not host.startswith("["):
            host = f"[{host}]"
        host = f"{schema.lower() if is_scheme else _usual_scheme(host)}://{host}"
    try:
        parts = urlsplit(host)
        if connection.port and parts.port is None:
            parts = parts._replace(netloc=f"{parts.netloc}:{connection.port}")
    except ValueError:
        raise InvalidOption(
            f"Connection {connection.conn_id!r}: its host cannot be read as a URL.",
            hint="Give it as https://host, or https://host:port/path.",
        ) from None
    if parts.username is not None or parts.password is not None:
        raise InvalidOption(
            f"Connection {connection.conn_id!r}: its host holds a user name or password.",
            hint="Put the API key into the password field (API key) only.",
        )
    if schema and not is_scheme:
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/{schema}")
    return parts.geturl()


def _usual_scheme(host: str) -> str:
    """Return https, or http for a loopback host, on which only `weblake serve` is expected to listen."""
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return "http"
    try:
        return "http" if ipaddress.ip_address(name).is_loopback else "https"
    except ValueError:
        return "https"


def _flag(conn_id: str, name: str, value: object) -> bool:
    """Return a boolean field; in a URI it is a word."""
    word = "" if value is None else str(value).strip().lower()
    if word not in _TRUE | _FALSE:
        raise InvalidOption(
            f"Connection {conn_id!r}: extra {name!r} is neither true nor false.", hint="Write true or false."
        )
    return word in _TRUE


def _seconds(conn_id: str, name: str, value: object) -> float | None:
    if value in (None, ""):
        return None
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 86_400:
        raise InvalidOption(
            f"Connection {conn_id!r}: extra field {name!r} is not a number of seconds between 0 and 86400.",
            hint="Correct it, or leave it empty for the default of one minute.",
        )
    return seconds


def _http_options(conn_id: str, extra: Mapping[str, object]) -> weblake.HttpOptions | None:
    found: dict[str, str] = {}
    for name in ("proxy", "ca_bundle", "client_certificate", "client_key"):
        value = extra.get(name)
        if value is not None and not isinstance(value, str):
            # The message leaves out the value, which may hold a proxy's password.
            raise InvalidOption(
                f"Connection {conn_id!r}: extra field `{name}` is not a text.", hint="Write it as a JSON string."
            )
        if value is not None and value.strip():
            found[name] = value.strip()
    return weblake.HttpOptions(**found) if found else None


def _template(conn_id: str, value: object) -> str:
    text = "" if value is None else str(value).strip()
    if text and not text.startswith(("https://", "http://")):
        # The value becomes a link that users click, so it must not have a scheme that runs code.
        raise InvalidOption(
            f"Connection {conn_id!r}: extra 'job_url' does not begin with https:// or http://.",
            hint="Write such as https://app.example.com/jobs/{kind}/{job_id}, or leave it empty.",
        )
    return text
