"""A service on a real socket with a fake web."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fake_web
import httpx
import pytest
from polling import until

from weblake_service.config import ServiceConfig, ServiceKey
from weblake_service.server import LocalService

KEY = "test-key"


@dataclass
class Bench:
    """A service, its fake web, and the calls that most tests make."""

    service: LocalService
    web: Any
    http: httpx.Client

    def batch(self, *urls: str, **options: object) -> str:
        reply = self.http.post("/v2/batch/scrape", json={"urls": list(urls), **options})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["id"])

    def crawl(self, url: str, **options: object) -> str:
        reply = self.http.post("/v2/crawl", json={"url": url, **options})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["id"])

    def status(self, job: str, kind: str = "batch/scrape", query: str = "") -> dict[str, Any]:
        reply = self.http.get(f"/v2/{kind}/{job}{query}")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def wait_until_ended(self, job: str, kind: str = "batch/scrape") -> dict[str, Any]:
        return self.until(lambda: self._ended(job, kind))

    def until(self, look: Callable[[], Any], seconds: float = 90.0) -> Any:
        return until(look, seconds)

    def reset(self) -> None:
        """Return the service and its web to their initial state."""
        self.web.held.clear()
        self.service.reset()
        vars(self.web).clear()
        self.web.__init__()

    def close(self) -> None:
        self.http.close()
        self.service.stop()

    def _ended(self, job: str, kind: str) -> dict[str, Any] | None:
        status = self.status(job, kind)
        return status if status["status"] != "scraping" else None


def open_bench(
    db: str | Path = ":memory:",
    *,
    keys: str | dict[str, str] | list[ServiceKey] = KEY,
    allow_private: bool = True,
    web: Any = None,
    **limits: Any,
) -> Bench:
    """Start a service with a fake web."""
    web = web or fake_web.FakeWeb()
    config = ServiceConfig(**{"testing": True, **limits})
    service = LocalService(db, keys=keys, allow_private=allow_private, config=config, web=lambda _: web).start()
    # verify=False: the URL is plain http, and loading the CA certificates takes 30 ms of CPU.
    http = httpx.Client(
        base_url=service.url,
        headers={"Authorization": f"Bearer {service.key}"},
        timeout=120,
        trust_env=False,
        verify=False,
    )
    return Bench(service, web, http)


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    """Yield a function that starts services (see `open_bench`); keyword arguments are fields of ServiceConfig."""
    open_ones: list[Bench] = []

    def make(*args: Any, **options: Any) -> Bench:
        open_ones.append(open_bench(*args, **options))
        return open_ones[-1]

    yield make
    for bench in open_ones:
        bench.close()


@pytest.fixture(scope="module")
def module_bench() -> Iterator[Bench]:
    """Yield one service for the tests of a module, because the stop of a service takes 0.2 s."""
    bench = open_bench()
    yield bench
    bench.close()


@pytest.fixture
def bench(module_bench: Bench) -> Iterator[Bench]:
    """Yield the module's service, in memory and with one key, in its initial state."""
    yield module_bench
    module_bench.reset()
