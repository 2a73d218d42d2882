"""Client of the control API, with which any program on this machine has the functions of the fixtures.

It exists only in a service for tests: that of the fixtures, `weblake serve --testing`, and `LocalService` with
`config=ServiceConfig(testing=True)`. Any key of such a service reads and deletes the data of all teams, so `--testing`
is refused with a keys file that has several teams. Other machines get 403, an invalid call gets 400 with the reason.

    WEBLAKE_API_KEY=test-key weblake serve --testing --port 8900 --data :memory: --allow-private
    curl -H 'Authorization: Bearer test-key' http://127.0.0.1:8900/_weblake/faults -d '{"match": {"path": "/v2/map$"}, \
        "effect": {"status": 503}}'

GET health            returns the service's time; the only call that needs no key
GET faults            lists the rules with `seen` and `hit`
PUT faults            replaces all rules: {"rules": []}
POST faults           adds a rule
DELETE faults         removes all rules; DELETE faults/ID removes one
GET requests          returns the last 10,000 requests: method, path, status, time, the rule that applied; no bodies
GET counts            returns the number of jobs started and pages billed since the last reset
GET deliveries        returns the last webhooks, the receivers' responses, and the time of the next attempt
GET clock             returns the service's time
POST clock/advance    moves it forward: {"seconds": 86400}
POST reset            empties the service; keys are kept
"""

from __future__ import annotations

from typing import Any

import httpx

#: Timeout of one call in seconds: a reset waits for running jobs to stop.
_TIMEOUT_S = 60.0


class Control:
    """Client of one service's control API. Each call opens a connection, so any thread or process may use it."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}

    def send(self, method: str, name: str, body: object = None) -> dict[str, Any]:
        """Return the response to a call.

        Raises:
            ValueError: The service refuses the call; the message says why.
            RuntimeError: The service does not respond.
        """
        # Hidden, because a refusal concerns the call in the test, which the traceback should show.
        __tracebackhide__ = True
        url = f"{self._url}/_weblake/{name}"
        try:
            with httpx.Client(trust_env=False, verify=False, timeout=_TIMEOUT_S) as client:  # noqa: S501 - plain http
                response = client.request(method, url, json=body, headers=self._headers)
                received = dict(response.json())
        except (httpx.HTTPError, ValueError) as error:
            raise RuntimeError(
                f"The weblake service at {self._url} does not respond ({error or type(error).__name__}). "
                "Was it killed? restart() starts it again."
            ) from error
        if response.is_error:
            raise ValueError(str(received.get("error")))
        return received
