"""How requests reach the service: proxy, certificate authorities, client certificate."""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from weblake.credentials import BaseUrl, is_loopback
from weblake.errors import InvalidOption
from weblake.http.library import httpx


class TrustStoreUnreadable(OSError):
    """The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Proxy and TLS settings for the HTTP client that weblake sets up itself.

    For everything else (HTTP/2, SOCKS, event hooks) give an httpx client to `Client(http_client=...)` instead.
    """

    #: Proxy URL such as `http://user:password@proxy.example:3128`; None takes HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and
    #: NO_PROXY from the environment. Requests to a loopback address never use a proxy from the environment.
    proxy: str | None = field(default=None, repr=False)
    #: PEM file of certificate authorities to trust instead of the default ones (SSL_CERT_FILE, SSL_CERT_DIR, certifi).
    ca_bundle: str | Path | None = None
    #: PEM file with the client certificate for mutual TLS, and with its key where `client_key` is None.
    client_certificate: str | Path | None = None
    #: PEM file with the unencrypted key of the client certificate.
    client_key: str | Path | None = None

    def ssl_context(self) -> ssl.SSLContext:
        """Return a TLS context with these settings.

        Raises:
            InvalidOption: A file of these options cannot be read or does not hold what it should.
            TrustStoreUnreadable: The environment names certificates that cannot be read.
        """
        if self.ca_bundle is None:
            context = _default_context()
        else:
            try:
                context = ssl.create_default_context(cafile=str(self.ca_bundle))
            except OSError as error:
                raise _unusable("ca_bundle", self.ca_bundle, error) from None
        if self.client_certificate is not None:
            key = None if self.client_key is None else str(self.client_key)
            try:
                # An encrypted key would make OpenSSL ask for its password on the terminal.
                context.load_cert_chain(str(self.client_certificate), key, password=lambda: "")
            except OSError as error:
                raise _unusable("client_certificate", self.client_certificate, error) from None
        return context

    def proxy_for(self, base: BaseUrl) -> httpx.Proxy | None:
        """Return the proxy for requests to an origin, or None.

        Raises:
            InvalidOption: The proxy's URL cannot be used.
        """
        if self.proxy is not None:
            return _proxy(self.proxy, "The option `proxy` names", "Give an http:// or https:// URL.")
        if is_loopback(base.host) or urllib.request.proxy_bypass(base.netloc):
            return None
        proxies = urllib.request.getproxies()
        found = proxies.get(base.scheme) or proxies.get("all")
        hint = "Set HTTPS_PROXY to an http:// proxy, or NO_PROXY for the service's host."
        return _proxy(found, "The environment names", hint) if found else None


def _proxy(text: str, who: str, hint: str) -> httpx.Proxy:
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
        _ = urlsplit(str(url)).port  # httpx accepts any number as a port
    except (httpx.InvalidURL, ValueError):
        url = httpx.URL("")  # the text may hold a password, so it is not shown
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidOption(
            f"{who} a proxy that weblake cannot use ({url.scheme or 'its address cannot be read'}).", hint=hint
        )
    auth = (url.username, url.password) if url.username else None
    return httpx.Proxy(url.copy_with(username=None, password=None), auth=auth)


def _default_context() -> ssl.SSLContext:
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise TrustStoreUnreadable(
            f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: {error.strerror or error}"
        ) from error


def _unusable(name: str, path: str | Path, error: OSError) -> InvalidOption:
    # An SSLError's text names OpenSSL's source lines; what helps is that the file was read and has another content.
    reason = "it is not a PEM file of this kind" if isinstance(error, ssl.SSLError) else error.strerror or str(error)
    return InvalidOption(f"`{name}` cannot be used: {path}: {reason}.", hint="Give the path of a PEM file.")
