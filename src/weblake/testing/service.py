"""The service that a fixture returns to a test, accessed by its address and its control API.

The control API is the same for a service in this process and in a separate process.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from weblake.testing.control import Control
from weblake.testing.faults import WeblakeFaults

if TYPE_CHECKING:
    from weblake.client import AsyncClient, Client

KEY = "test-key"
#: Number of requests in the report of a failed test.
_MAX_REPORTED = 25


class Address(Protocol):
    """The address of a service, such as a `LocalService`."""

    @property
    def url(self) -> str:
        """The base URL of the service."""

    @property
    def key(self) -> str:
        """An API key that the service accepts."""


class WeblakeService:
    """The service that the fixture `weblake_service` returns.

    Args:
        at: The address of the service, which must be listening.
    """

    def __init__(self, at: Address) -> None:
        self._url = at.url
        self._key = at.key
        self._control = Control(self._url, self._key)
        self._clients: list[Client] = []
        #: The fault rules; `faults(rule, …)` replaces all rules.
        self.faults = WeblakeFaults(self._control)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"

    @property
    def url(self) -> str:
        """The base URL, such as `http://127.0.0.1:40123`."""
        return self._url

    @property
    def key(self) -> str:
        """The API key."""
        return self._key

    def client(self, **options: Any) -> Client:
        """Return a client with these options of `Client`, closed at the end of the test at the latest."""
        from weblake.client import Client

        client = Client(base_url=self.url, api_key=self.key, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> AsyncClient:
        """Return an asynchronous client of this service, for `async with`."""
        from weblake.client import AsyncClient

        return AsyncClient(base_url=self.url, api_key=self.key, **options)

    def environment(self) -> dict[str, str]:
        """Return WEBLAKE_BASE_URL and WEBLAKE_API_KEY, for `monkeypatch.setenv` or a child process."""
        return {"WEBLAKE_BASE_URL": self.url, "WEBLAKE_API_KEY": self.key}

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests of this test: method, path, status, at, milliseconds, idempotencyKey, fault.

        Bodies and API keys are not recorded. `status` is None if no response was sent, and `fault` is the id of the
        rule that was applied, or None.
        """
        return list(self._control.send("GET", "requests")["requests"])

    def counts(self) -> dict[str, int]:
        """Return counters of this test: `batch_scrape_started`, `crawl_started`, `pages_billed` and others."""
        return dict(self._control.send("GET", "counts")["counts"])

    def deliveries(self) -> list[dict[str, Any]]:
        """Return this test's webhooks, newest first: webhookId, jobId, type, url, state, tries, answer, nextTryAt."""
        return list(self._control.send("GET", "deliveries")["deliveries"])

    def now(self) -> datetime:
        """Return the time of the service's clock, in UTC."""
        return datetime.fromisoformat(str(self._control.send("GET", "clock")["now"]))

    def advance(self, seconds: float) -> datetime:
        """Advance the service's clock and return its time: jobs and caches age, webhooks are retried.

        Raises:
            ValueError: `seconds` is negative or not a number.
        """
        return datetime.fromisoformat(str(self._control.send("POST", "clock/advance", {"seconds": seconds})["now"]))

    def reset(self) -> None:
        """Reset the service, as before each test: jobs, pages, usage, faults, logs, clock; the API key is kept."""
        self._control.send("POST", "reset")

    def close_clients(self) -> None:
        """Close all clients that `client` has returned."""
        while self._clients:
            self._clients.pop().close()

    def report(self) -> str:
        """Return the report for a failed test: the last requests and the faults."""
        try:
            requests, rules = self.requests(), self.faults.rules()
        except RuntimeError as error:
            return str(error)
        left = len(requests) - _MAX_REPORTED
        lines = [f"{self.url} received {len(requests)} requests" + (f"; the last {_MAX_REPORTED}:" if left > 0 else "")]
        lines += [_line(one) for one in requests[-_MAX_REPORTED:]]
        lines += [
            f"rule {rule['id']} applied {rule['hit']} of {rule['seen']} times: {rule['effect']}" for rule in rules
        ]
        return "\n".join(lines)


def _line(request: dict[str, Any]) -> str:
    status = "---" if request["status"] is None else request["status"]
    fault = f"  (rule {request['fault']} applied)" if request["fault"] is not None else ""
    return f"  {status} {request['method']} {request['path'][:200]}{fault}"
