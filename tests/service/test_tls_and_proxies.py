"""Untrusted certificates, and the proxies of the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import loopback_site as loopback
import pytest
from converted_pages import scrape
from https_site import secure

from weblake_service.page_failure import PageFailure

Site, Handler, site = loopback.Site, loopback.Handler, loopback.site
fetching, get, failure = loopback.fetching, loopback.get, loopback.failure


@pytest.fixture
def https_site(tmp_path: Path) -> Iterator[Site]:
    with secure(tmp_path) as site:
        yield site


def test_an_untrusted_certificate_is_accepted_unless_verification_is_required(https_site: Site) -> None:
    https_site.page("/a", b"secret")
    url = https_site.url("/a", "localhost").replace("http:", "https:")
    assert get(url).body == b"secret"
    assert https_site.names == ["localhost"]  # type: ignore[attr-defined]
    problem = failure(url, verify=True)
    assert (problem.code, problem.status) == ("SCRAPE_SSL_ERROR", 500)
    with pytest.raises(PageFailure) as caught:
        fetching(lambda fetcher: scrape(url, {"skip_tls_verification": False}, fetcher=fetcher))
    assert caught.value.code == "SCRAPE_SSL_ERROR"


def test_the_proxy_of_the_environment_is_used_except_for_loopback(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:word@127.0.0.1:{site.server_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    site.pages["http://far.invalid/a"] = lambda handler: handler.reply(200, b"by proxy", {})
    site.page("/near", b"direct")
    assert get("http://far.invalid/a").body == b"by proxy"
    assert site.requests[0][1]["proxy-authorization"].startswith("Basic ")
    assert get(site.url("/near")).body == b"direct"
    monkeypatch.setenv("no_proxy", "far.invalid")
    assert failure("http://far.invalid/a").code == "SCRAPE_DNS_RESOLUTION_ERROR"


def test_a_proxy_gives_no_access_to_private_addresses(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", site.url())
    problem = failure("http://10.1.2.3/", fetcher_options={"allow_private": False})
    assert problem.code == "unsafe_domain_blocked"
    assert site.requests == []


def test_an_invalid_proxy_url_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    assert failure("http://far.invalid/").code == "SCRAPE_PROXY_SELECTION_ERROR"
