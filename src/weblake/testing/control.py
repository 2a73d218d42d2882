"""Calls of the service's control API under /_weblake/."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

#: Seconds that one call may take: a reset waits for running jobs to stop.
_TIMEOUT_S = 60.0


class Control:
    """The control API of one service. Each call has a connection of its own: it may come from any thread or process."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def get(self, name: str) -> dict[str, Any]:
        """What `GET /_weblake/name` answers; raises as `send` does."""
        return self.send("GET", name)

    def send(self, method: str, name: str, body: object = None) -> dict[str, Any]:
        """What a call answers.

        Raises:
            ValueError: The service refuses the call; the text says what is wrong with it.
            RuntimeError: It does not answer.
        """
        # A refusal is about the call in the test, and that is what its traceback is to show.
        __tracebackhide__ = True
        parts = urlsplit(self._url)
        assert parts.hostname is not None
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        connection = HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request(method, f"/_weblake/{name}", None if body is None else json.dumps(body), headers)
            reply = connection.getresponse()
            status, said = reply.status, json.loads(reply.read())
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
