"""A receiver of webhooks on a loopback port, which records all deliveries and can respond with failures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from weblake.api import webhooks
from weblake.testing.loopback import LoopbackRequest, LoopbackResponse, LoopbackServer

#: The secret with which weblake_service signs.
SECRET = "test-webhook-secret"  # noqa: S105
_ACCEPTED_STATUS = 204


@dataclass(frozen=True, slots=True)
class Delivery:
    """One received webhook."""

    #: The event type, such as `crawl.completed`.
    type: str
    #: The job's id.
    id: str
    #: The delivery's id, equal for all attempts.
    webhook_id: str | None
    success: bool | None
    error: str | None
    #: The document of a `page` event.
    data: list[Any]
    #: The metadata given when the job was started.
    metadata: dict[str, Any]
    #: The headers by lower-case name.
    headers: Mapping[str, str]
    #: The raw body.
    body: bytes
    #: Whether the signature matches the receiver's secret.
    verified: bool
    #: The status of the response, or None if the connection was closed without a response.
    answered: int | None


@dataclass(slots=True)
class _Plan:
    """The response to the next deliveries."""

    response: LoopbackResponse
    seconds: float
    #: Number of remaining deliveries; None for all.
    left: int | None


class WeblakeWebhooks:
    """The receiver; it accepts deliveries at any path below `url`.

    Args:
        secret: The secret with which the service signs; None if it does not sign.
    """

    def __init__(self, secret: str | None = SECRET) -> None:
        self._secret = secret
        self._server = LoopbackServer(self._receive, "weblake-test-receiver")
        self._changed = threading.Condition()
        self._deliveries: list[Delivery] = []
        self._plans: list[_Plan] = []

    def __repr__(self) -> str:
        return f"<WeblakeWebhooks {self.url}>"

    @property
    def url(self) -> str:
        """The URL of the receiver; pass it to a job as `webhook`."""
        return f"{self._server.url}/hook"

    @property
    def secret(self) -> str | None:
        """The secret for the verification of signatures."""
        return self._secret

    @property
    def deliveries(self) -> list[Delivery]:
        """All deliveries so far, in order, whatever the response was."""
        with self._changed:
            return list(self._deliveries)

    def wait(
        self, event: str | None = None, *, job: str | None = None, count: int = 1, timeout: float = 30.0
    ) -> Delivery:
        """Wait until `count` matching deliveries have arrived and return the last of the first `count`.

        Args:
            event: The event, such as `completed`, or in full `crawl.completed`; None for any.
            job: The id of the job; None for any.
            count: The number of deliveries, including those that arrived before the call.
            timeout: Seconds, in real time.

        Raises:
            AssertionError: They have not arrived; the message lists the deliveries so far.
        """

        __tracebackhide__ = True

        def found() -> list[Delivery]:
            return [one for one in self._deliveries if _matches(one, event, job)]

        with self._changed:
            if self._wait_until(lambda: len(found()) >= count, timeout):
                return found()[count - 1]
            arrived = (
                ", ".join(f"{one.type} ({one.answered or 'no response'})" for one in self._deliveries) or "nothing"
            )
        wanted = f"{count} deliveries of {event or 'any kind'}" + (f" of job {job}" if job else "")
        raise AssertionError(f"Waited {timeout:g} s for {wanted}. What came: {arrived}.")

    def answer(self, status: int, *, times: int | None = None) -> None:
        """Respond to the next deliveries with this status; to all of them if `times` is None."""
        self._plan(_Plan(LoopbackResponse(status), 0.0, times))

    def delay(self, seconds: float, *, times: int | None = None) -> None:
        """Delay the responses to the next deliveries by `seconds`."""
        self._plan(_Plan(LoopbackResponse(_ACCEPTED_STATUS), seconds, times))

    def refuse(self, *, times: int | None = None) -> None:
        """Close the connection of the next deliveries without a response."""
        self._plan(_Plan(LoopbackResponse(drop=True), 0.0, times))

    def accept(self) -> None:
        """Accept all deliveries again and discard planned responses."""
        with self._changed:
            self._plans.clear()

    def clear(self) -> None:
        """Discard the recorded deliveries."""
        with self._changed:
            self._deliveries.clear()

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def _plan(self, plan: _Plan) -> None:
        """Append a plan. Plans apply in order; an unlimited plan is replaced by the next one."""
        with self._changed:
            self._plans = [one for one in self._plans if one.left is not None]
            self._plans.append(plan)

    def _wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not is_so():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._changed.wait(left)
        return True

    def _receive(self, request: LoopbackRequest) -> LoopbackResponse:
        with self._changed:
            plan = next((one for one in self._plans if one.left != 0), None)
            if plan is not None and plan.left is not None:
                plan.left -= 1
        if plan is not None and plan.seconds:
            self._server.stopping.wait(plan.seconds)
        response = plan.response if plan is not None else LoopbackResponse(_ACCEPTED_STATUS)
        with self._changed:
            self._deliveries.append(_read(request, self._secret, None if response.drop else response.status))
            self._changed.notify_all()
        return response


def _matches(delivery: Delivery, event: str | None, job: str | None) -> bool:
    named = event is None or event in (delivery.type, delivery.type.rpartition(".")[2])
    return named and (job is None or job == delivery.id)


def _read(request: LoopbackRequest, secret: str | None, answered: int | None) -> Delivery:
    try:
        event = json.loads(request.body)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        event = {}
    return Delivery(
        type=str(event.get("type", "")),
        id=str(event.get("id", "")),
        webhook_id=event.get("webhookId"),
        success=event.get("success"),
        error=event.get("error"),
        data=event.get("data") or [],
        metadata=event.get("metadata") or {},
        headers=request.headers,
        body=request.body,
        verified=_is_verified(request, secret),
        answered=answered,
    )


def _is_verified(request: LoopbackRequest, secret: str | None) -> bool:
    if secret is None:
        return False
    try:
        webhooks.verify(request.body, request.headers.get(webhooks.SIGNATURE_HEADER.lower()), secret)
    except webhooks.SignatureMismatch:
        return False
    return True
