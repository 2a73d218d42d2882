"""HTTP settings: proxy, certificate authorities, client certificate."""

from __future__ import annotations

import ssl
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from weblake.credentials import BaseUrl, is_loopback
from weblake.errors import InvalidOption

_FILE_HINT = "Give the path of a PEM file."


class TrustStoreUnreadable(OSError):
    """The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Proxy and TLS settings for the HTTP client that weblake creates.

    For other settings (HTTP/2, SOCKS, event hooks) pass an httpx client to `Client(http_client=...)` instead.

    Args:
        proxy: Proxy URL such as `http://user:password@proxy.example:3128`; None uses HTTPS_PROXY, HTTP_PROXY, ALL_PROXY
            and NO_PROXY of the environment. Requests to a loopback address never use a proxy of the environment; over
            plain http they also use no proxy on another machine.
        ca_bundle: PEM file of certificate authorities to trust instead of the default ones (SSL_CERT_FILE,
            SSL_CERT_DIR, certifi).
        client_certificate: PEM file with the client certificate for mutual TLS, and with its key where `client_key` is
            None.
        client_key: PEM file with the unencrypted key of the client certificate.
    """

    proxy: str | None = field(default=None, repr=False)
    ca_bundle: str | Path | None = None
    client_certificate: str | Path | None = None
    client_key: str | Path | None = None

    def check(self) -> None:
        """Check the settings, so that an invalid one is reported before the first request.

        Raises:
            InvalidOption: A setting cannot be used; the message begins with its name.
        """
        self._configured_proxy()
        if self.client_key is not None and self.client_certificate is None:
            raise InvalidOption(
                "`client_key` is given without `client_certificate`.", hint="Give the certificate of the key, too."
            )
        if self.ca_bundle is not None:
            self._load_authorities()
        if self.client_certificate is not None:
            self._load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def ssl_context(self) -> ssl.SSLContext:
        """Return a TLS context with these settings.

        Raises:
            InvalidOption: A file of these options cannot be read or has the wrong content.
            TrustStoreUnreadable: The environment names certificates that cannot be read.
        """
        context = _default_context() if self.ca_bundle is None else self._load_authorities()
        if self.client_certificate is not None:
            self._load_client_certificate(context)
        return context

    def proxy_for(self, base: BaseUrl) -> httpx.Proxy | None:
        """Return the proxy for requests to a base URL, or None.

        Raises:
            InvalidOption: The proxy's URL cannot be used.
        """
        own = self._configured_proxy()
        if own is not None:
            # A proxy sees the key in a request over plain http, and a loopback address there is not this machine.
            is_local = base.scheme == "http" and is_loopback(base.host) and not is_loopback(own.url.host)
            return None if is_local else own
        if is_loopback(base.host) or urllib.request.proxy_bypass(base.netloc):
            return None
        proxies = urllib.request.getproxies()
        found = proxies.get(base.scheme) or proxies.get("all")
        hint = "Set HTTPS_PROXY to an http:// proxy, or NO_PROXY for the service's host."
        return _parse_proxy(found, "The environment names", hint) if found else None

    def _configured_proxy(self) -> httpx.Proxy | None:
        if self.proxy is None:
            return None
        try:
            return _parse_proxy(self.proxy, "`proxy` names", "Give an http:// or https:// URL.")
        except InvalidOption as error:
            raise error.with_traceback(None) from None  # frames of the traceback have locals with the proxy's password

    def _load_authorities(self) -> ssl.SSLContext:
        assert self.ca_bundle is not None
        try:
            context = ssl.create_default_context(cafile=str(self.ca_bundle))
        except OSError as error:
            raise _unusable_file_error("ca_bundle", self.ca_bundle, error) from None
        if not context.cert_store_stats()["x509"]:  # OpenSSL accepts a file that holds a revocation list only
            raise InvalidOption(
                f"`ca_bundle` cannot be used: {self.ca_bundle}: it holds no certificate.", hint=_FILE_HINT
            )
        return context

    def _load_client_certificate(self, context: ssl.SSLContext) -> None:
        assert self.client_certificate is not None
        key = self.client_key
        for name, path in (("client_certificate", self.client_certificate), ("client_key", key)):
            try:
                if path is not None:  # OpenSSL's own error does not say which of the two files is missing
                    Path(path).read_bytes()
            except OSError as error:
                raise _unusable_file_error(name, path, error) from None
        try:
            # An encrypted key would make OpenSSL ask for its password on the terminal.
            context.load_cert_chain(str(self.client_certificate), None if key is None else str(key), lambda: "")
        except OSError as error:
            raise _unusable_file_error("client_certificate", self.client_certificate, error) from None


def _parse_proxy(text: str, who: str, hint: str) -> httpx.Proxy:
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


def _unusable_file_error(name: str, path: str | Path | None, error: OSError) -> InvalidOption:
    reason = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):  # its text names lines of OpenSSL's source
        reason = "it does not hold what it should, or the key is encrypted or another certificate's"
        if name == "ca_bundle":
            reason = "it is not a PEM file of certificates"
    return InvalidOption(f"`{name}` cannot be used: {path}: {reason}.", hint=_FILE_HINT)
