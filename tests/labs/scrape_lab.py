"""A service with its real web, next to a site whose pages the test writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import loopback_site as loopback
import pytest

from weblake_service.config import ServiceConfig, ServiceKey
from weblake_service.server import LocalService

Site, site = loopback.Site, loopback.site

KEYS = [ServiceKey("test-key", "one", "red"), ServiceKey("test-key-2", "two", "blue")]


@dataclass
class Lab:
    """The service, and the calls that the tests of scraping make."""

    service: LocalService
    site: Any
    http: httpx.Client

    def post(self, url: str, key: str = "test-key", **options: object) -> httpx.Response:
        return self.http.post("/v2/scrape", json={"url": url, **options}, headers={"Authorization": f"Bearer {key}"})

    def scrape(self, url: str, key: str = "test-key", **options: object) -> dict[str, Any]:
        reply = self.post(url, key, **options)
        assert reply.status_code == 200, reply.text
        return dict(reply.json()["data"])

    def fetch_count(self, path: str) -> int:
        return sum(1 for asked, _ in self.site.requests if asked == path)

    def wait_until_ended(self, path: str) -> dict[str, Any]:
        deadline = time.monotonic() + 90
        while (status := self.http.get(path).json())["status"] == "scraping":
            assert time.monotonic() < deadline, "it did not end in time"
            time.sleep(0.01)
        return dict(status)

    def credits(self) -> int:
        periods = self.http.get("/v2/team/credit-usage/historical").json()["periods"]
        return int(sum(period["totalCredits"] for period in periods))


@pytest.fixture
def open_lab(site: Any) -> Iterator[Callable[..., Lab]]:
    """Yield a function that opens labs on one site; every field of ServiceConfig may be given."""
    labs: list[Lab] = []

    def make(db: str | Path = ":memory:", **limits: Any) -> Lab:
        service = LocalService(db, keys=KEYS, allow_private=True, config=ServiceConfig(testing=True, **limits)).start()
        http = httpx.Client(
            base_url=service.url,
            headers={"Authorization": "Bearer test-key"},
            timeout=120,
            trust_env=False,
            verify=False,
        )
        labs.append(Lab(service, site, http))
        return labs[-1]

    yield make
    for lab in labs:
        lab.http.close()
        lab.service.stop()


@pytest.fixture(scope="module")
def lab_service() -> Iterator[LocalService]:
    """Yield one service in memory for the tests of a module."""
    with LocalService(keys=KEYS, allow_private=True, config=ServiceConfig(testing=True)) as service:
        yield service


@pytest.fixture
def lab(lab_service: LocalService, site: Any) -> Iterator[Lab]:
    """Yield the module's service, reset to its initial state."""
    lab_service.reset()
    headers = {"Authorization": "Bearer test-key"}
    with httpx.Client(base_url=lab_service.url, headers=headers, timeout=120, trust_env=False, verify=False) as http:
        yield Lab(lab_service, site, http)
