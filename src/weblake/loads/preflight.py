"""The request before a load's intent: whether the service accepts the API key, and what it declares.

The preflight of the storage is `Dataset.preflight`.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from weblake.api import models, responses
from weblake.api.operation import Operation
from weblake.api.operations import list_activity
from weblake.errors import JobGone, RequestRejected, ServiceUnavailable
from weblake.jobs.retry import Retry
from weblake.steps import Flow, Response

#: HTTP status: the server does not have this operation.
NOT_IMPLEMENTED = 501


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the request before a load's intent shows about the service."""

    #: Whether it declares true replay.
    replays: bool = False
    #: Seconds by which its clock is ahead of this machine's; None if unknown.
    clock_ahead_s: float | None = None


def check_service(retry: Retry, until: float | None = None) -> Flow[Preflight]:
    """Read one entry of the activity list.

    This detects an API key that is not accepted, a service that is down, and an address that is not the service's (a
    redirect, a login page) before anything is paid. `until` is the deadline in monotonic seconds.
    """
    operation = list_activity(limit=1)
    try:
        policy = replace(retry.policy, until=until)
        return (yield from retry.exchange(operation, lambda reply: _read_preflight(reply, operation), policy))
    except ServiceUnavailable as error:
        if error.status != NOT_IMPLEMENTED:
            raise
        return Preflight()
    except (JobGone, RequestRejected):
        return Preflight()  # a service without an activity list: after a lost start, a person has to decide


def _read_preflight(reply: Response, operation: Operation[models.ActivityPage]) -> Preflight:
    responses.value_of(reply, operation.name)
    replays = reply.headers.get("weblake-idempotency", "").strip().lower() == "replay"
    return Preflight(replays, responses.clock_ahead_s(reply))
