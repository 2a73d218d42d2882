"""One redirect chain: the requests, headers and cookies of each hop."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from itertools import islice
from urllib.parse import unquote

import httpcore
import httpx

from weblake_service.page_failure import PageFailure
from weblake_service.web.addresses import clean_url

#: Maximum redirects, and maximum cookies that are taken from one response.
MAX_REDIRECTS, _MAX_COOKIES = 10, 200
_REDIRECT_STATUSES = frozenset([301, 302, 303, 307, 308])
#: Headers that the connection sets; also Accept-Encoding, because only one encoding is supported.
_CONNECTION_HEADER_LIST = (
    "host connection content-length transfer-encoding te trailer upgrade keep-alive accept-encoding expect"
)
_CONNECTION_HEADERS = frozenset(_CONNECTION_HEADER_LIST.split())
#: Accept-Encoding of a caller is replaced by the supported encoding instead of being refused.
_REPLACED_HEADERS = frozenset(["accept-encoding"])
#: Headers without user data, which are also sent to another site.
_SHARED_HEADERS = frozenset(["user-agent", "accept", "accept-language"])


def header_problem(headers: Mapping[object, object]) -> str | None:
    """Return which of these headers cannot be sent to a target, as a sentence; None if all can be sent."""
    for name in headers:
        lower = str(name).lower().strip()
        if (lower in _CONNECTION_HEADERS and lower not in _REPLACED_HEADERS) or lower.startswith("proxy-"):
            return f"headers has {str(name)[:40]!r}, which is the connection's business: leave it out."
    return None


class RedirectChain:
    """One redirect chain: the current URL, the request headers, and the cookies received."""

    def __init__(self, url: str, headers: Mapping[str, str], user_agent: str) -> None:
        self.url = httpx.URL(url)
        self.visited: list[str] = []
        self._start = self.url
        self._cookies = httpx.Cookies()
        self._headers = {
            "user-agent": user_agent,
            "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "accept-language": "en-US,en;q=0.9",
            **{name.lower().strip(): str(value) for name, value in headers.items()},
        }

    @property
    def public_url(self) -> httpx.URL:
        """Return the current URL, without credentials."""
        return self.url.copy_with(userinfo=b"") if self.url.userinfo else self.url

    @property
    def cookies(self) -> list[dict[str, str]]:
        """Return the cookies received so far: name, value, domain, path."""
        # The standard library appends ".local" to a host name without a dot.
        added = f"{self.url.host}.local"
        return [
            {
                "name": one.name,
                "value": one.value or "",
                "domain": self.url.host if one.domain == added else one.domain,
                "path": one.path,
            }
            for one in self._cookies.jar
        ]

    def request(self, method: str = "GET", body: bytes | None = None) -> httpcore.Request:
        """Return the request for the current URL."""
        at_home = same_site(self._start, self.url)
        sent = {
            n: value
            for n, value in self._headers.items()
            if n not in _CONNECTION_HEADERS and not n.startswith("proxy-")
        }
        if not at_home:
            sent = {name: value for name, value in sent.items() if name in _SHARED_HEADERS}
        if self.url.userinfo and "authorization" not in sent:
            pair = unquote(self.url.userinfo.decode("ascii")).partition(":")
            sent["authorization"] = f"Basic {base64.b64encode(f'{pair[0]}:{pair[2]}'.encode()).decode()}"
        probe = self._cookie_request()
        self._cookies.set_cookie_header(probe)
        sent["cookie"] = "; ".join(filter(None, [sent.get("cookie", ""), probe.headers.get("cookie", "")]))
        if not sent["cookie"]:
            del sent["cookie"]
        raw = [(b"Host", self.url.netloc), (b"Accept-Encoding", b"gzip")]
        raw += [(_encode(name), _encode(value)) for name, value in sent.items()]
        target = httpcore.URL(
            scheme=self.url.raw_scheme, host=self.url.raw_host, port=self.url.port, target=self.url.raw_path
        )
        if body is not None:
            raw.append((b"Content-Length", str(len(body)).encode()))
        return httpcore.Request(method, target, headers=raw, content=body)

    def follow(self, status: int, headers: httpx.Headers, allow_private: bool) -> bool:
        """Move to the redirect target; return False if the response is not a redirect."""
        given = islice((item for item in headers.multi_items() if item[0] == "set-cookie"), _MAX_COOKIES)
        response = httpx.Response(status, headers=list(given), request=self._cookie_request())
        self._cookies.extract_cookies(response)
        location = headers.get("location", "")
        if status not in _REDIRECT_STATUSES or not location:
            return False
        if len(self.visited) >= MAX_REDIRECTS:
            message = f"{self._start} redirects more than {MAX_REDIRECTS} times. Check the URL in a browser."
            raise PageFailure("SCRAPE_SITE_ERROR", message)
        self.visited.append(str(self.public_url))
        try:
            joined = self.url.join(location)
            if not joined.fragment and self.url.fragment:
                joined = joined.copy_with(fragment=self.url.fragment)
            self.url = httpx.URL(clean_url(str(joined), allow_private=allow_private))
        except (PageFailure, httpx.InvalidURL, ValueError) as error:
            message = f"{self.visited[-1]} redirects to {location[:200]!r}, which cannot be scraped ({error})."
            raise PageFailure("SCRAPE_SITE_ERROR", message) from error
        return True

    def refresh(self, target: str, allow_private: bool) -> bool:
        """Move to the target of a page that redirects; return False if it cannot be fetched or was visited before."""
        try:
            url = httpx.URL(clean_url(target, allow_private=allow_private))
        except (PageFailure, httpx.InvalidURL, ValueError):
            return False
        visited = [one.partition("#")[0] for one in (*self.visited, str(self.public_url))]
        if len(self.visited) >= MAX_REDIRECTS or str(url).partition("#")[0] in visited:
            return False
        self.visited.append(str(self.public_url))
        self.url = url
        return True

    def _cookie_request(self) -> httpx.Request:
        """Return a request for the current URL for httpx's cookies.

        Without a Host header httpx would decode the host, which fails for names such as emoji domains.
        """
        return httpx.Request("GET", self.url, headers=[(b"Host", self.url.netloc)])


def options_for(url: str, options: Mapping[str, object], homes: Iterable[str]) -> Mapping[str, object]:
    """Return the scrape options for a URL: headers with user data are left out unless it is on the site of a home."""
    headers = options.get("headers")
    if not isinstance(headers, Mapping) or any(is_same_site(home, url) for home in homes):
        return options
    shared = {name: value for name, value in headers.items() if str(name).lower().strip() in _SHARED_HEADERS}
    return {**options, "headers": shared}


def is_same_site(home: str, url: str) -> bool:
    """Return whether a URL belongs to the site of `home`; False if one of them is not a URL."""
    try:
        return same_site(httpx.URL(home), httpx.URL(url))
    except (httpx.InvalidURL, ValueError):
        return False


def same_site(one: httpx.URL, other: httpx.URL) -> bool:
    """Return whether two URLs have the same origin, or the same host after an upgrade from http to https."""
    if one.raw_host != other.raw_host:
        return False
    upgrade = (one.scheme, other.scheme) == ("http", "https") and one.port is None and other.port is None
    return upgrade or (one.scheme, one.port) == (other.scheme, other.port)


def _encode(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")
