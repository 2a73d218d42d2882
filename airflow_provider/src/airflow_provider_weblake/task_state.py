"""The state that Airflow has on record for a task, for code that Airflow is about to stop.

Airflow stops a worker's process and a trigger in the same way for many reasons, and only some of them mean that the
task's job is not wanted any more.
"""

from __future__ import annotations

from typing import Protocol

#: States of a task that still uses its job, or will take it up again.
ACTIVE_STATES = frozenset({"running", "deferred", "up_for_retry", "up_for_reschedule"})


class TaskInstance(Protocol):
    """The fields that identify a task instance, in a worker and in a triggerer."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int | None


def state_of(ti: TaskInstance) -> str | None:
    """Return the state, None for a cleared task; waits for Airflow's answer, so do not call it on an event loop."""
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = ti.map_index if ti.map_index is not None and ti.map_index >= 0 else None
    states = RuntimeTaskInstance.get_task_states(
        dag_id=ti.dag_id, map_index=index, task_ids=[ti.task_id], run_ids=[ti.run_id]
    )
    of_run = states.get(ti.run_id) or {}
    return next(iter(of_run.values()), None)


async def astate_of(ti: TaskInstance) -> str | None:
    """Return the state as `state_of` does, on the event loop of a triggerer."""
    from asgiref.sync import sync_to_async

    # asyncio.to_thread would not do: before Airflow 3.3, its supervisor is asked on this event loop or not at all.
    return await sync_to_async(state_of)(ti)
