"""Whether Dagster retries a run that it has terminated for being over its time limit.

Dagster decides this when it reports the run as failed, and writes the decision into a tag of the run. Its default
launcher sends the signal shortly before that, and Docker's launcher waits for the end of the container first. Until the
tag is there, the same rule is applied here (decision 070).
"""

from __future__ import annotations

import dagster as dg

#: Part of the message with which Dagster's daemon terminates a run that is over its time limit.
_TIME_LIMIT = "exceeding maximum runtime"
#: Tag of a failed run: whether Dagster retries it.
_WILL_RETRY = "dagster/will_retry"
#: Tag of a run: how often Dagster retries it, in place of the instance's setting.
_MAX_RETRIES = "dagster/max_retries"


def terminations(instance: dg.DagsterInstance, run: dg.DagsterRun) -> list[str]:
    """Return the messages of the requests to terminate a run: of users, of the time limit and of the launcher."""
    found = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.RUN_CANCELING)
    return [record.event_log_entry.message for record in found.records]


def will_retry(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether Dagster retries a terminated run; one that a user has terminated is not retried."""
    decision = run.tags.get(_WILL_RETRY)
    if decision is not None:
        return decision == "true"
    return any(_TIME_LIMIT in message for message in terminations(instance, run)) and _has_retries_left(instance, run)


def _has_retries_left(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    settings = instance.get_settings("run_retries")
    if not settings.get("enabled", False):
        return False
    try:
        retries = int(run.tags.get(_MAX_RETRIES, settings.get("max_retries", 0)))
        group = instance.get_run_group(run.run_id)
    except (ValueError, dg.DagsterRunNotFoundError):  # Dagster retries no run with such a tag or without its first run
        return False
    return group is not None and len(group[1]) <= retries
