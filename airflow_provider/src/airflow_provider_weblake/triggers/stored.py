"""What Airflow stores of a trigger: its arguments, which are checked, its events, and the texts of its errors."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING

from airflow.triggers.base import BaseTrigger

from airflow_provider_weblake.features import AirflowException
from weblake.errors import InvalidOption, WeblakeError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from weblake.orchestration import JobRef

#: The largest number that is accepted as a count.
MAX_COUNT = 1 << 53


def check_interval(name: str, seconds: float, least: float = 0.001) -> None:
    """Raise InvalidOption for an interval of polls below the least one: without a pause the wait is a busy loop."""
    if not seconds >= least:
        raise InvalidOption(f"{name} is {seconds}.", hint=f"Give {least:g} seconds or more.")


def serialized(trigger: BaseTrigger) -> tuple[str, dict[str, object]]:
    """Return the path of a trigger's class, and its arguments: each is an attribute of the same name."""
    kind = type(trigger)
    arguments = {name: getattr(trigger, name) for name in signature(kind).parameters}
    return f"{kind.__module__}.{kind.__qualname__}", arguments


def error_text(error: BaseException) -> str:
    """Return the log text of an error: only messages of weblake and Airflow are sure to hold no key."""
    is_redacted = isinstance(error, WeblakeError | AirflowException)
    return f"{type(error).__name__}: {error}" if is_redacted else type(error).__name__


def event_of(job: JobRef, status: str, head: Mapping[str, object]) -> dict[str, JsonValue]:
    """Return the event of a job: its status and its counts, no text. Airflow logs and stores every event as it is."""
    return {
        "status": status,
        "kind": job.kind,
        "job_id": job.job_id,
        "completed": _number(head.get("completed")),
        "total": _number(head.get("total")),
        "credits_used": _number(head.get("creditsUsed")),
    }


def _number(value: object) -> float | int | None:
    """Return a count that a database accepts: JSON has no infinity, and a service may send any digits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_COUNT:
        return None
    return value
