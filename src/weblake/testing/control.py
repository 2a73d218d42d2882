"""Client of the service's control API under /_weblake/."""

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
