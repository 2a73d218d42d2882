"""Settings of a browser context (device, languages, certificates), derived from the options of a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httpx

from weblake_service.web.location import accept_language, country_of

#: Default viewport width and height.
_DESKTOP, _PHONE = (1280, 800), (390, 844)
#: Headers that are set through other browser settings and not added to requests.
_SEPARATELY_SET_HEADERS = frozenset(["user-agent", "accept-language", "cookie"])


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The settings of a context."""

    mobile: bool
    verify: bool
    #: From the request's headers; empty for the browser's default.
    requested_user_agent: str
    accept_language: str
    #: A time zone of the tz database.
    timezone: str

    def context(self, version: str) -> dict[str, Any]:
        """Return the arguments of Playwright's `new_context`, without the proxy; `version` is Chromium's version."""
        return {
            "viewport": dict(zip(("width", "height"), self.size, strict=True)),
            "device_scale_factor": self.scale,
            "is_mobile": self.mobile,
            "has_touch": self.mobile,
            "user_agent": self.user_agent(version),
            "locale": self.languages[0] if self.languages else "en-US",
            "timezone_id": self.timezone,
            "ignore_https_errors": not self.verify,
            "accept_downloads": False,
            "service_workers": "block",
        }

    @property
    def size(self) -> tuple[int, int]:
        """Return the viewport width and height."""
        return _PHONE if self.mobile else _DESKTOP

    @property
    def scale(self) -> int:
        """Return the device scale factor."""
        return 2 if self.mobile else 1

    @property
    def languages(self) -> list[str]:
        """Return the languages without weights, in order of preference."""
        named = (one.partition(";")[0].strip() for one in self.accept_language.split(","))
        return [one for one in named if one and one != "*"]

    def user_agent(self, version: str) -> str:
        """Return the User-Agent of the browser."""
        return self.requested_user_agent or _user_agent(version.partition(".")[0], self.mobile)


@dataclass(frozen=True, slots=True)
class SiteCredentials:
    """Credentials of one request that are sent to its site only."""

    #: Headers for the requested site only.
    headers: dict[str, str]
    cookies: list[dict[str, Any]]
    login: dict[str, str] | None


def context_settings_of(options: Mapping[str, object]) -> ContextSettings:
    """Return the settings for the options (snake_case)."""
    given = _headers(options)
    languages = given.get("accept-language") or accept_language(options) or "en-US"
    return ContextSettings(
        mobile=options.get("mobile") is True,
        verify=options.get("skip_tls_verification") is False,
        requested_user_agent=given.get("user-agent", ""),
        accept_language=languages,
        timezone=country_of(options).timezone,
    )


def site_credentials_of(url: httpx.URL, options: Mapping[str, object]) -> SiteCredentials:
    """Return the credentials of the request: headers, cookies, and the name and password in the URL."""
    given = _headers(options)
    login = None
    if url.userinfo:
        name, _, password = unquote(url.userinfo.decode("ascii")).partition(":")
        origin = str(url.copy_with(userinfo=b"", path="", query=None, fragment=None)).rstrip("/")
        login = {"username": name, "password": password, "origin": origin}
    headers = {
        name: value
        for name, value in given.items()
        if name not in _SEPARATELY_SET_HEADERS and name != "accept-encoding"
    }
    return SiteCredentials(headers, _cookies(given.get("cookie", ""), url), login)


def _headers(options: Mapping[str, object]) -> dict[str, str]:
    given = options.get("headers")
    return {str(n).lower().strip(): str(v) for n, v in given.items()} if isinstance(given, Mapping) else {}


def _cookies(header: str, url: httpx.URL) -> list[dict[str, Any]]:
    """Return a Cookie header as cookies for this host only."""
    pairs = [part.strip().partition("=") for part in header.split(";") if "=" in part]
    place = str(url.copy_with(userinfo=b"", path="/", query=None, fragment=None))
    return [{"name": name.strip(), "value": value.strip(), "url": place} for name, _, value in pairs if name.strip()]


def _user_agent(major: str, mobile: bool) -> str:
    # The User-Agent identifies the service, as over HTTP.
    machine = "Linux; Android 14; Pixel 8" if mobile else "X11; Linux x86_64"
    kind = "Mobile Safari" if mobile else "Safari"
    return (
        f"Mozilla/5.0 ({machine}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{major}.0.0.0 {kind}/537.36 "
        "(compatible; weblake/0.1)"
    )


@dataclass(frozen=True, slots=True)
class BrowserIdentity:
    """The browser profile with which a page is rendered."""

    #: The profile's cookies and storage as JSON; empty for a new profile, None for no profile.
    profile: bytes | None = None
    #: Whether the profile is to be returned after the visit.
    saves_profile: bool = False
