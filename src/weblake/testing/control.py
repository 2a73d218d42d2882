"""Client of the service's control API under /_weblake/."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

#: Timeout of one call in seconds: a reset waits for running jobs to stop.
_TIMEOUT_S = 60.0


class Control:
    """Client of one service's control API. Each call opens a connection, so any thread or process may use it."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def get(self, name: str) -> dict[str, Any]:
        """Return the response to `GET /_weblake/<name>`; raises as `send` does."""
        return self.send("GET", name)

    def send(self, method: str, name: str, body: object = None) -> dict[str, Any]:
        """Return the response to a call.

        Raises:
            ValueError: The service refuses the call; the message says why.
            RuntimeError: The service does not respond.
        """
        # Hidden, because a refusal concerns the call in the test, which the traceback should show.
        __tracebackhide__ = True
        parts = urlsplit(self._url)
        assert parts.hostname is not None
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        connection = HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, f"/_weblake/{name}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            status, said = response.status, json.loads(response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise RuntimeError(
                f"The weblake service at {self._url} does not answer ({error or type(error).__name__}). "
                "Was it killed? restart() starts it again."
            ) from error
        finally:
            connection.close()
        if status >= 400:
            raise ValueError(str(said.get("error")))
        return dict(said)
