"""The service that a fixture hands to a test, reached by its address and its control API.

The control API is the same for a service in this process and for one in another.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from weblake.compat import read_time
from weblake.testing.control import Control
from weblake.testing.faults import WeblakeFaults

if TYPE_CHECKING:
    from weblake.client import AsyncClient, Client

KEY = "test-key"
#: Requests that are shown with a failed test.
_SHOWN = 25


class Address(Protocol):
    """Where a service is: a `LocalService`, for one."""

    @property
    def url(self) -> str:
        """Its base URL."""

    @property
    def key(self) -> str:
        """An API key that it takes."""


class WeblakeService:
    """The service that the fixture `weblake_service` hands to a test.

    Args:
        at: Where it is; one that does not listen yet has no address.
    """

    def __init__(self, at: Address) -> None:
        self._url = at.url
        self._key = at.key
        self._control = Control(self._url, self._key)
        self._clients: list[Client] = []
        #: Makes things go wrong; `faults(rule, …)` replaces all rules by these.
        self.faults = WeblakeFaults(self._control)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"

    @property
    def url(self) -> str:
        """Its base URL, such as `http://127.0.0.1:40123`."""
        return self._url

    @property
    def key(self) -> str:
        """Its API key."""
        return self._key

    def client(self, **options: Any) -> Client:
        """A client of this service, closed at the end of the test at the latest; `options` are those of `Client`."""
        from weblake.client import Client

        client = Client(base_url=self.url, api_key=self.key, **options)
        self._clients.append(client)
        return client

    def async_client(self, **options: Any) -> AsyncClient:
        """An asynchronous client of this service, for `async with`."""
        from weblake.client import AsyncClient

        return AsyncClient(base_url=self.url, api_key=self.key, **options)

    def environment(self) -> dict[str, str]:
        """WEBLAKE_BASE_URL and WEBLAKE_API_KEY, for `monkeypatch.setenv` or a child process."""
        return {"WEBLAKE_BASE_URL": self.url, "WEBLAKE_API_KEY": self.key}

    def requests(self) -> list[dict[str, Any]]:
        """The requests of this test: method, path, status, at, milliseconds, idempotencyKey, fault; no bodies, no keys.

        `status` is None where no answer went out, and `fault` the id of the rule that struck, or None.
        """
        return list(self._control.get("requests")["requests"])

    def counts(self) -> dict[str, int]:
        """What this test started and paid: `batch_scrape_started`, `crawl_started`, `pages_billed` and so on."""
        return dict(self._control.get("counts")["counts"])

    def deliveries(self) -> list[dict[str, Any]]:
        """The webhooks of this test, the newest first: webhookId, jobId, type, url, state, tries, answer, nextTryAt."""
        return list(self._control.get("deliveries")["deliveries"])

    def now(self) -> datetime:
        """The service's time, in UTC."""
        return read_time(str(self._control.get("clock")["now"]))

    def advance(self, seconds: float) -> datetime:
        """Moves the service's clock forward and returns its time: jobs and caches age, webhooks are tried again.

        Raises:
            ValueError: `seconds` is negative or no number.
        """
        return read_time(str(self._control.send("POST", "clock/advance", {"seconds": seconds})["now"]))

    def reset(self) -> None:
        """Empties the service, as before each test: jobs, pages, usage, faults, logs, clock; the key stays."""
        self._control.send("POST", "reset")

    def begin(self) -> None:
        """Makes it ready for a test."""
        self.reset()

    def close_clients(self) -> None:
        """Closes what `client` opened."""
        while self._clients:
            self._clients.pop().close()

    def told(self) -> str:
        """What a failed test wants to know of its service: the last requests, and the faults."""
        try:
            requests, rules = self.requests(), self.faults.rules()
        except RuntimeError as error:
            return str(error)
        left = len(requests) - _SHOWN
        lines = [f"{self.url} was asked {len(requests)} times" + (f"; the last {_SHOWN}:" if left > 0 else "")]
        lines += [_line(one) for one in requests[-_SHOWN:]]
        lines += [f"rule {rule['id']} struck {rule['hit']} of {rule['seen']} times: {rule['effect']}" for rule in rules]
        return "\n".join(lines)


def _line(request: dict[str, Any]) -> str:
    status = "---" if request["status"] is None else request["status"]
    fault = f"  (rule {request['fault']} struck)" if request["fault"] is not None else ""
    return f"  {status} {request['method']} {request['path'][:200]}{fault}"
