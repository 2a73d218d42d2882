"""Imported by each Python process of the lab; changes Dagster's daemon where Dagster has no setting.

- It looks at backfills every 2 s instead of every 30 s.
- It retries each run. Dagster stores the failure of a run before the state of the run, and a daemon that looks
  in between never retries the run (dagster-io/dagster#33741).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

#: How long the state of a run may follow its last event, in seconds.
STATE_TIMEOUT = 30.0


def _change_the_daemon() -> None:
    from dagster._daemon import controller
    from dagster._daemon.auto_run_reexecution import auto_run_reexecution

    assert controller.DEFAULT_DAEMON_INTERVAL_SECONDS == 30
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = 2
    to_retry = auto_run_reexecution.filter_runs_to_should_retry

    def ended_runs_to_retry(runs: Sequence[DagsterRun], instance: DagsterInstance) -> Iterator[DagsterRun]:
        return to_retry([_ended(run, instance) for run in runs], instance)

    auto_run_reexecution.filter_runs_to_should_retry = ended_runs_to_retry


def _ended(run: DagsterRun, instance: DagsterInstance) -> DagsterRun:
    """The run with the state that its last event gives it."""
    deadline = time.monotonic() + STATE_TIMEOUT
    while not run.is_finished and time.monotonic() < deadline:
        time.sleep(0.05)
        run = instance.get_run_by_id(run.run_id) or run
    return run


if "dagster._daemon" in sys.orig_argv:
    _change_the_daemon()
