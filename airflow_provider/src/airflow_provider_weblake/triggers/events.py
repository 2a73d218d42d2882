"""Event triggers for `AssetWatcher`: a usage period has closed, jobs have completed.

    Asset("scraped", watchers=[AssetWatcher(name="batches", trigger=WeblakeJobsCompletedTrigger())])

They are for jobs that were started elsewhere; a DAG that starts a job waits for it with the operators. The arguments
hold ids, numbers and the connection's name; Airflow runs one trigger for equal arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow_provider_weblake.triggers.stored import error_text, event_of
from airflow_provider_weblake.triggers.watching import Memory, Question, Watcher
from weblake import orchestration
from weblake.errors import InvalidOption

if TYPE_CHECKING:
    from weblake import AsyncClient

_REPORTS = ("credits", "tokens")
#: Characters of a target that an event carries.
_TARGET_CHARS = 500


@dataclass(eq=False, repr=False)
class WeblakeUsagePeriodTrigger(Watcher[orchestration.Report]):
    """Fires once for each usage period that has closed.

    A period has closed when its end is past, or when the service reports a later one. The event is `report`, `period`
    (`2026-10`), `period_start`, `period_end` (ISO 8601, UTC) and `total`: credits or tokens. The last period that was
    fired is kept in the asset's state, so that a restart repeats none and loses none, also if several closed in the
    meantime. A period for which the service reports nothing never fires. Reading usage costs no credits.

    :param weblake_conn_id: The connection.
    :param report: `credits` or `tokens`.
    :param poll_interval: Seconds between polls, at least 1.
    :param fire_latest: Whether a new watcher fires the newest period that had closed before it began; else it only
        records that period.
    """

    weblake_conn_id: str = "weblake_default"
    report: str = "credits"
    poll_interval: float = 3600.0
    fire_latest: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("report", self.report, _REPORTS)

    def subject(self) -> str:
        """Return the name of the report."""
        return self.report

    def question(self) -> Question[orchestration.Report]:
        """Return a function that reads the report."""

        async def ask(client: AsyncClient) -> orchestration.Report:
            return await client.run(orchestration.report(self.report, client.retry))

        return ask

    def follow(self, memory: Memory | None, seen: orchestration.Report) -> tuple[Memory | None, list[Memory]]:
        """Return the events of the periods that closed after the one in memory, oldest first, with the new memory."""
        periods = orchestration.closed_periods(seen, datetime.now(timezone.utc))
        closed = [_period_event(seen.name, period) for period in periods]
        known = None if memory is None else memory.get("last_period_start")
        last = str(closed[-1]["period_start"]) if closed else ""
        if not isinstance(known, str):  # a new watcher, or a damaged state
            return {"last_period_start": last}, closed[-1:] if self.fire_latest else []
        return {"last_period_start": max(last, known)}, [e for e in closed if str(e["period_start"]) > known]


@dataclass(eq=False, repr=False)
class WeblakeJobsCompletedTrigger(Watcher[orchestration.PollRound]):
    """Fires once for each job of a kind that completes after the watcher has begun, by whichever client it was started.

    The ids come from the activity list, which goes back 24 hours, and each is polled until its end; the polls cost no
    credits. The event is `kind`, `job_id`, `status`, `completed`, `total`, `credits_used` (None if the service does not
    say), `created_at` and `target`: the URL that the activity list shows, without user, query and fragment, which may
    hold secrets. Pass `job_id` to WeblakeLandOperator to land the job.

    What was fired is kept in the asset's state: a restart loses no job and repeats none, unless the triggerer is killed
    within the second or two between an event and the write of the state; landing a job twice changes nothing. A watcher
    follows 600 running jobs at a time (the oldest; others when there is room) and remembers the last 400 ended ones by
    id, older ones by time. No job is lost in an outage of the triggerer of up to 24 hours. A new watcher begins when it
    knows the status of every job; up to four jobs whose status cannot be read in three polls in a row count as running.

    :param weblake_conn_id: The connection.
    :param kind: `batch_scrape` or `crawl`.
    :param poll_interval: Seconds between polls, at least 1.
    :param target: Only jobs with this URL in the activity list; `*` matches any characters. None for all jobs.
    :param statuses: The final statuses to fire on: `completed`, `failed`, `cancelled`.
    """

    weblake_conn_id: str = "weblake_default"
    kind: str = "batch_scrape"
    poll_interval: float = 60.0
    target: str | None = None
    statuses: Sequence[str] = ("completed",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check("kind", self.kind, tuple(orchestration.JOB_KINDS))
        self.statuses = [self.statuses] if isinstance(self.statuses, str) else list(dict.fromkeys(self.statuses))
        for status in self.statuses:
            _check("statuses", status, orchestration.JOB_ENDS)

    def subject(self) -> str:
        """Return the kind of the jobs."""
        return self.kind

    def choice(self) -> Sequence[object]:
        """Return the target and the statuses."""
        return self.target, sorted(self.statuses)

    def question(self) -> Question[orchestration.PollRound]:
        """Return a function that asks for the jobs that have ended."""
        poll = orchestration.EndedJobs(self.kind)

        async def ask(client: AsyncClient) -> orchestration.PollRound:
            found = await poll(client)
            for job_id, error in found.unreadable.items():
                self.log.warning("The status of %s %s cannot be read: %s", self.kind, job_id, error_text(error))
            return found

        return ask

    def follow(self, memory: Memory | None, seen: orchestration.PollRound) -> tuple[Memory | None, list[Memory]]:
        """Return the events of the jobs that ended since; a new watcher only records which jobs have ended."""
        if memory is None and not seen.complete:
            return None, []  # jobs that ended before and after the start cannot be told apart
        state = orchestration.WatcherState() if memory is None else orchestration.WatcherState.read(memory)
        listed = [job for job in seen.jobs if job.fits(self.target)]
        newly_ended = state.record_round(listed, seen.ended)
        seen.also(state.pending.keys() - {job.job_id for job in listed})
        fired = [] if memory is None else [self._event(job, seen.ended[job.job_id]) for job in newly_ended]
        return state.write(), [event for event in fired if event["status"] in self.statuses]

    def _event(self, job: orchestration.ListedJob, head: Mapping[str, object]) -> Memory:
        return {
            **event_of(orchestration.JobRef(self.kind, job.job_id), str(head.get("status")), head),
            "created_at": _iso(datetime.fromtimestamp(job.created / 1000, timezone.utc)),
            "target": _target_text(job.target),
        }


def _period_event(report: str, period: orchestration.ClosedPeriod) -> Memory:
    return {
        "report": report,
        "period": period.month,
        "period_start": _iso(period.start),
        "period_end": _iso(period.end),
        "total": period.total,
    }


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidOption(f"{name} is {value!r}.", hint=f"Give one of {', '.join(allowed)}.")


def _target_text(target: str | None) -> str | None:
    """Return the target without parts that may be secret: events are logged and stored as they are."""
    if target is None:
        return None
    try:
        parts = urlsplit(target)
        place = parts.netloc.rpartition("@")[2]
    except ValueError:
        return None
    # PostgreSQL stores no JSON that holds a NUL.
    return parts._replace(netloc=place, query="", fragment="").geturl().replace("\0", "")[:_TARGET_CHARS]
