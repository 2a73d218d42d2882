"""What an integration with an orchestrator uses of weblake.

Besides this module an integration imports `weblake`, `errors`, `events`, `otel`, `options`, `aio` and `compat` only
(.importlinter), and it does not reach through a `Dataset` to the storage and the ledger behind it
(tests/core/test_orchestration.py).

    place -> find_landed -> start_load -> get_status or wait -> land           one task lands a load
    place -> start_load          LoadState, poll_all -> collect                one task starts it, another one lands it
    start_load of each -> wait_for_any -> land                                 one task lands several loads
    cancel                                                                     the job is not needed any more
    EndedJobs and WatcherState, history                                        news since a cursor
    report, activity -> land_report, land_activity                             reports on the team
    url_shards -> read_shard, read_urls                                        lists of URLs

A function whose name is that of a request to the service (`get_status`, `wait`, `wait_for_any`, `cancel`, `report`,
`activity`) returns a flow: run it with `client.run(...)`, and with an `AsyncClient` await that.

A scheduler that parses a graph, or a triggerer that waits for ten thousand jobs, must not load Arrow: importing this
module does not, and the functions that need it import it when they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weblake import storage
from weblake.api.job_kinds import JOB_KINDS as JOB_KINDS
from weblake.api.models import parse_time as parse_time
from weblake.dataset.records import Intent as Intent
from weblake.dataset.records import Job as Job
from weblake.dataset.root import Dataset as Dataset
from weblake.dataset.root import LandedLoad as LandedLoad
from weblake.dataset.root import open_dataset as open_dataset
from weblake.jobs import ended_jobs, job_links
from weblake.jobs.cancelling import cancel as cancel
from weblake.jobs.ended_jobs import EndedJobs as EndedJobs
from weblake.jobs.ended_jobs import ListedJob as ListedJob
from weblake.jobs.ended_jobs import PollResults as PollResults
from weblake.jobs.ended_jobs import PollRound as PollRound
from weblake.jobs.ended_jobs import WatcherState as WatcherState
from weblake.jobs.ended_jobs import poll_all as poll_all
from weblake.jobs.job_links import job_page as job_page
from weblake.jobs.named_pauses import longest_named_pause as longest_named_pause
from weblake.jobs.named_pauses import named_pause as named_pause
from weblake.jobs.polling import JobRef as JobRef
from weblake.jobs.polling import OverBudget as OverBudget
from weblake.jobs.polling import WaitingJob as WaitingJob
from weblake.jobs.polling import get_status as get_status
from weblake.jobs.polling import is_over as is_over
from weblake.jobs.polling import wait as wait
from weblake.jobs.polling import wait_for_any as wait_for_any
from weblake.jobs.retry import Retry as Retry
from weblake.jobs.retry import RetryPolicy as RetryPolicy
from weblake.jobs.retry import observing as observing
from weblake.jobs.usage_reports import ClosedPeriod as ClosedPeriod
from weblake.jobs.usage_reports import Report as Report
from weblake.jobs.usage_reports import activity as activity
from weblake.jobs.usage_reports import closed_periods as closed_periods
from weblake.jobs.usage_reports import report as report
from weblake.jobs.usage_reports import used_in as used_in
from weblake.loads import load_request
from weblake.loads.load_request import LoadRequest as LoadRequest
from weblake.loads.load_request import Naming as Naming
from weblake.loads.load_request import Task as Task
from weblake.loads.load_request import Terms as Terms
from weblake.observers import METRICS as METRICS
from weblake.observers import LoadTotals as LoadTotals
from weblake.observers import ProgressLog as ProgressLog
from weblake.observers import Totals as Totals
from weblake.observers import combine as combine
from weblake.observers import measurements as measurements
from weblake.remedies import Interface as Interface
from weblake.secret_settings import secrets_in as secrets_in
from weblake.secret_settings import without_secrets as without_secrets
from weblake.urls.lists import read_urls as read_urls
from weblake.urls.shards import UrlShard as UrlShard
from weblake.urls.shards import read_shard as read_shard
from weblake.urls.shards import url_shards as url_shards

if TYPE_CHECKING:
    import pyarrow as pa

    from weblake.api.models import ActivityEntry
    from weblake.client import Client
    from weblake.dataset.history import HistoryEntry as HistoryEntry
    from weblake.dataset.records import Start
    from weblake.loads.intents import StartedLoad as StartedLoad
    from weblake.loads.orphans import Orphan
    from weblake.receipt import LandedFile

#: The service's final statuses of a job.
JOB_ENDS = ended_jobs.ENDS

batch_request = load_request.batch
crawl_request = load_request.crawl
scrape_request = load_request.scrape
parse_request = load_request.parse
existing_job_request = load_request.existing_job

check_job_page = job_links.check_template


def refuse_memory(dataset: Dataset, process: str, *, hint: str = "") -> None:
    """Raise StorageRefused if a dataset is in memory, because the process named here ends before it can be read."""
    storage.refuse_memory(dataset.storage, process, hint=hint)


def place(
    client: Client, dataset: Dataset, request: LoadRequest, task: Task, terms: Terms, generation: int | None = None
) -> LoadRequest:
    """Return the request as the load that the task has to land now: the one that it began before, or the next one.

    A job that was started elsewhere stays the load that its id names. `generation` is for a process that continues
    another one: the `slot.generation` of the request that this one placed.

    Raises:
        AskPerson: The job of the newest generation runs at a service other than the client's.
        WeblakeError: The ledger cannot be read, or the service did not respond.
    """
    from weblake.loads import generations

    if request.job_id is not None:
        return replace(request, slot=task.slot(0, request.partition))
    if generation is None:
        generation = generations.choose(client, dataset, task, terms)
    return generations.place_generation(request, task, generation)


def describe_cancel(job: JobRef, *, cancelled: bool) -> str:
    """Return a clause for a log: what became of a request to cancel a job; `cancelled` is the result of `cancel`."""
    return f"{job} was cancelled" if cancelled else f"{job} has already ended and was not cancelled"


def record_returned(dataset: Dataset, request: LoadRequest) -> None:
    """Record that a task of an orchestrator, which `records_return`, is about to return the placed load to it.

    Call it last. Until then another request by a person, such as a Clear of the task, lands this load again and pays
    for no other one.

    Raises:
        StorageRefused: The record cannot be written.
    """
    if request.slot is not None and request.slot.occasion is not None:
        dataset.ledger.record_returned(request.load_id, request.slot.occasion)


def record_stopped(dataset: Dataset, load_id: str, terms: Terms, used: float = 0.0) -> None:
    """Record that the caller cancels the job of a load at its time limit, or at its credits, of which it has `used`.

    Landing it then raises the error of that limit, and not JobEnded, after which a retry pays for another job. `land`
    does so at a limit that it finds itself. A record that cannot be written is left out.
    """
    from weblake.loads import completeness

    completeness.record_stopped(dataset, load_id, terms, used)


def recorded_request(
    client: Client, dataset: Dataset, task: Task, terms: Terms, generation: int | None = None
) -> LoadRequest | None:
    """Return the request of the load that the task has to land now, made from the ledger and placed.

    For a task that cannot make its request any more, such as from a list of URLs that is gone: the job that it has
    started lands without it. None if no job is on record; then the request is needed. Arguments and errors are those of
    `place`.
    """
    from weblake.loads import generations

    return generations.recorded_request(client, dataset, task, terms, generation)


def find_landed(dataset: Dataset, request: LoadRequest, terms: Terms) -> LandedLoad | None:
    """Return the load of a request if it has landed, also one that was refused and that the terms now allow.

    Raises:
        LoadIncomplete: The load has landed, and all of its pages failed.
    """
    from weblake.loads import load

    return load.find_landed(dataset, request, terms)


def start_load(
    client: Client,
    dataset: Dataset,
    request: LoadRequest,
    *,
    max_credits: float | None = None,
    until: float | None = None,
    ends_at: float | None = None,
) -> StartedLoad:
    """Start the job of a load, or return the one that an earlier run started: its intent, the job, and the document.

    The document is there if the response to the start held it. `until` is the deadline of the reads around a start, up
    to which they wait for a pause that the service names; `ends_at` is the load's time limit, which ends the start,
    too. Both are in monotonic seconds.

    Raises:
        CreditsExhausted: The job is not started yet, and would cost more than `max_credits`.
        StorageRefused: The root cannot hold the load; nothing was paid.
        DeadlineExceeded: The time limit passed; what may have been started stays on record.
        WeblakeError: The service refused the start, or it is unknown whether the job was started.
    """
    from weblake.loads import intents

    return intents.start_load(client, dataset, request, max_credits=max_credits, until=until, ends_at=ends_at)


def land(
    client: Client,
    dataset: Dataset,
    request: LoadRequest,
    terms: Terms | None = None,
    *,
    started_load: StartedLoad | None = None,
) -> LandedLoad:
    """Land a load, with all steps that are still missing, and return it; `started_load` is what `start_load` returned.

    Raises:
        LoadIncomplete: It is not complete; nothing was published, the checked file is kept, and `receipt` has the
            counts. Also if all pages failed: then their errors were published.
        JobEnded: The job failed or was cancelled.
        DeadlineExceeded: The time limit passed; the job continues, and the same call resumes the load.
        WeblakeError: Any other error; the same call resumes the load.
    """
    from weblake.loads import load

    return load.land(client, dataset, request, terms, started_load=started_load)


def collect(client: Client, dataset: Dataset, load_id: str, terms: Terms | None = None) -> LandedLoad:
    """Land a batch or crawl that another process started, and return it; raise as `land`.

    Raises:
        AskPerson: It is not on record that the load was started, or it was started at another service.
    """
    from weblake.loads import detached

    return detached.collect(client, dataset, load_id, terms)


@dataclass(frozen=True, slots=True)
class LoadState:
    """What is on record of one load. Each attribute reads its own record, and raises StorageRefused if it cannot."""

    dataset: Dataset
    load_id: str

    @property
    def intent(self) -> Intent | None:
        """The intent; None if the load has not begun."""
        return self.dataset.ledger.intent(self.load_id)

    @property
    def last_start(self) -> Start | None:
        """The newest start request, or None; its `void` is set if there is evidence that it started no job."""
        return self.dataset.ledger.last_start(self.load_id)

    @property
    def job(self) -> Job | None:
        """The job, or None if none is on record."""
        return self.dataset.ledger.job(self.load_id)

    @property
    def landed(self) -> LandedLoad | None:
        """The receipt and the time of landing, or None; also of a published load that has no done record yet."""
        from weblake.dataset import landed_loads

        return landed_loads.find(self.dataset, self.load_id)

    @property
    def is_replaced(self) -> bool:
        """Whether a later load of its slot has replaced it."""
        return self.dataset.ledger.retired(self.load_id) is not None

    @property
    def current(self) -> LoadState:
        """The load that is current for this one: itself, or the last in its chain of replacements."""
        return LoadState(self.dataset, self.dataset.ledger.current_load(self.load_id))


def open_loads_of_task(dataset: Dataset, task: Task) -> list[Orphan]:
    """Return the loads of a task, of any run, that have not landed, oldest first; reads the whole ledger."""
    from weblake.loads import orphans

    return orphans.open_loads_of_task(dataset, task)


def history(
    dataset: Dataset, since: str | None = None, *, unreadable: Callable[[str, str], None] | None = None
) -> Iterator[HistoryEntry]:
    """Yield the landed loads, oldest first; with `since`, only those that landed after that load.

    Writers' clocks give the order, so a caller that must not miss a load compares load ids. `unreadable` is called
    with the id and the reason of each load that is left out because it cannot be read; by default a warning is logged.

    Raises:
        StorageRefused: The ledger cannot be listed; or load `since` has not landed.
    """
    from weblake.dataset.history import history as landed_history

    return landed_history(dataset, since, unreadable=unreadable)


def land_report(found: Report, dataset: Dataset, only: Collection[str] | None = None) -> list[LandedFile]:
    """Replace the file of each reported month; return the files. `only` selects months, such as `2026-11`."""
    from weblake.loads import usage

    return usage.land_report(found, dataset.storage, only)


def land_activity(entries: Iterable[ActivityEntry], dataset: Dataset) -> list[LandedFile]:
    """Merge entries of the activity list into the files of their UTC days; return the files that were replaced."""
    from weblake.loads import usage

    return usage.land_activity(entries, dataset.storage)


def table_schema(table: str, keys: Iterable[str] = ()) -> pa.Schema:
    """Return the Arrow schema of a table: `documents`, `page_errors`, `usage_periods` or `activity`.

    Path keys, such as those of `path_keys`, are text columns after the others.
    """
    from weblake.arrow.schemas import with_keys

    return with_keys(table, keys)


def path_keys(dataset: Dataset, table: str) -> tuple[str, ...]:
    """Return the path keys of a table of a dataset, in order; those by default if nothing has landed in it yet.

    Raises:
        StorageRefused: The record of the keys cannot be read.
    """
    from weblake.dataset.layout import Layout

    return Layout(dataset.storage).keys(table)
