"""A pytest plugin: the real service for your tests, in process, on a loopback port, with no account.

It is registered when weblake is installed; only the extra `weblake[local]` is needed.

    def test_my_pipeline(weblake_service):
        client = weblake_service.client()
        job = client.start_batch_scrape(["http://127.0.0.1:8000/"])
        ...
        weblake_service.advance(25 * 3600)                                                    # the job has expired
        weblake_service.faults({"match": {"path": "/v2/crawl"}, "effect": {"status": 503}})   # a start fails once

One server runs for the whole session. Every test finds it empty: no jobs, no usage, no faults, the clock on time.
Imports: nothing before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from weblake.client import Client
    from weblake.service.server import LocalService


class WeblakeService:
    """The service that the fixture `weblake_service` hands to a test."""

    def __init__(self, service: LocalService) -> None:
        self._service = service

    @property
    def url(self) -> str:
        """Its base URL, such as `http://127.0.0.1:40123`."""
        return self._service.url

    @property
    def key(self) -> str:
        """Its API key."""
        return self._service.key

    def client(self) -> Client:
        """A client of this service; the caller closes it."""
        from weblake.client import Client

        return Client(base_url=self.url, api_key=self.key)

    def environment(self) -> dict[str, str]:
        """WEBLAKE_BASE_URL and WEBLAKE_API_KEY, for `monkeypatch.setenv` or a child process."""
        return {"WEBLAKE_BASE_URL": self.url, "WEBLAKE_API_KEY": self.key}

    def faults(self, *rules: Mapping[str, object]) -> None:
        """Makes things go wrong from now on, in place of all earlier rules; without a rule, nothing does.

        A rule is `{"match": {"method", "path", "nth"}, "times": 1, "effect": {…}}`; the effects are latency_ms, status
        (with body, headers, retry_after), drop_before, drop_after, truncate, garbage and stall. See
        `weblake.service.faults`.

        Raises:
            ValueError: A rule is not of this form.
        """
        self._service.faults(*rules)

    def requests(self) -> list[dict[str, object]]:
        """The requests of this test: method, path, status, at, milliseconds, idempotencyKey; no bodies, no keys."""
        return self._service.requests()

    def counts(self) -> dict[str, int]:
        """What this test started and paid: `batch_scrape_started`, `crawl_started`, `pages_billed` and so on."""
        return self._service.counts()

    def advance(self, seconds: float) -> None:
        """Moves the service's clock forward: jobs and caches age, webhooks are tried again."""
        self._service.advance(seconds)

    def reset(self) -> None:
        """Empties the service in the middle of a test."""
        self._service.reset()


@pytest.fixture(scope="session")
def _weblake_server() -> Iterator[LocalService]:
    try:
        from weblake.service.server import LocalService
    except ModuleNotFoundError as error:
        pytest.fail(f"weblake_service needs a package that is not installed ({error.name}): pip install weblake[local]")
    with LocalService() as service:
        yield service


@pytest.fixture
def weblake_service(_weblake_server: LocalService) -> WeblakeService:
    """The embedded weblake service, empty: url, key, client(), faults(…), requests(), counts(), advance(seconds)."""
    _weblake_server.reset()
    return WeblakeService(_weblake_server)
