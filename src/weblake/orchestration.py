"""What an integration with an orchestrator uses of weblake.

Besides this module an integration imports `weblake`, `errors`, `events`, `otel`, `options`, `tables` and `webhooks`
only (.importlinter), and it does not reach through a `Dataset` to the storage and the ledger behind it
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

A scheduler that parses a graph, or a triggerer that waits for ten thousand jobs, must not load Arrow: a name that needs
it is imported at its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from weblake.api.docstrings import document as document
from weblake.api.job_kinds import JOB_KINDS as JOB_KINDS
from weblake.api.models import parse_time as parse_time
from weblake.credentials import secrets_in as secrets_in
from weblake.credentials import without_secrets as without_secrets
from weblake.dataset.history import HistoryEntry as HistoryEntry
from weblake.dataset.history import history as history
from weblake.dataset.records import Intent as Intent
from weblake.dataset.records import Job as Job
from weblake.dataset.root import Dataset as Dataset
from weblake.dataset.root import LandedLoad as LandedLoad
from weblake.dataset.root import open_dataset as open_dataset
from weblake.dataset.root import path_keys as path_keys
from weblake.dataset.root import refuse_memory as refuse_memory
from weblake.errors import Interface as Interface
from weblake.events import METRICS as METRICS
from weblake.events import LoadTotals as LoadTotals
from weblake.events import ProgressLog as ProgressLog
from weblake.events import Totals as Totals
from weblake.events import combine as combine
from weblake.events import measurements as measurements
from weblake.jobs import ended_jobs, job_links
from weblake.jobs.cancelling import cancel as cancel
from weblake.jobs.cancelling import describe_cancel as describe_cancel
from weblake.jobs.ended_jobs import EndedJobs as EndedJobs
from weblake.jobs.ended_jobs import ListedJob as ListedJob
from weblake.jobs.ended_jobs import PollResults as PollResults
from weblake.jobs.ended_jobs import PollRound as PollRound
from weblake.jobs.ended_jobs import WatcherState as WatcherState
from weblake.jobs.ended_jobs import poll_all as poll_all
from weblake.jobs.job_links import job_page as job_page
from weblake.jobs.polling import JobRef as JobRef
from weblake.jobs.polling import OverBudget as OverBudget
from weblake.jobs.polling import WaitingJob as WaitingJob
from weblake.jobs.polling import get_status as get_status
from weblake.jobs.polling import is_over as is_over
from weblake.jobs.polling import wait as wait
from weblake.jobs.polling import wait_for_any as wait_for_any
from weblake.jobs.retry import Retry as Retry
from weblake.jobs.retry import RetryPolicy as RetryPolicy
from weblake.jobs.retry import longest_named_pause as longest_named_pause
from weblake.jobs.retry import named_pause as named_pause
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
from weblake.loads.load_request import duration as duration
from weblake.loads.load_request import refresh_window as refresh_window
from weblake.loads.urls.lists import read_urls as read_urls
from weblake.loads.urls.shards import UrlShard as UrlShard
from weblake.loads.urls.shards import read_shard as read_shard
from weblake.loads.urls.shards import url_shards as url_shards

if TYPE_CHECKING:
    from weblake.arrow import schemas
    from weblake.dataset.changes import counts_of_load as counts_of_load
    from weblake.dataset.landed_loads import LoadState as LoadState
    from weblake.loads.completeness import record_stopped as record_stopped
    from weblake.loads.generations import place as place
    from weblake.loads.generations import place_refresh as place_refresh
    from weblake.loads.generations import record_returned as record_returned
    from weblake.loads.generations import recorded_request as recorded_request
    from weblake.loads.intents import StartedLoad as StartedLoad
    from weblake.loads.intents import start_load as start_load
    from weblake.loads.load import collect as collect
    from weblake.loads.load import find_landed as find_landed
    from weblake.loads.load import land as land
    from weblake.loads.orphans import open_loads_of_task as open_loads_of_task
    from weblake.loads.usage import land_activity as land_activity
    from weblake.loads.usage import land_report as land_report
    from weblake.tables.synchronization import sync_each as sync_each

    table_schema = schemas.with_keys

JOB_ENDS = ended_jobs.ENDS
batch_request = load_request.batch
check_job_page = job_links.check_template
crawl_request = load_request.crawl
existing_job_request = load_request.existing_job
parse_request = load_request.parse
scrape_request = load_request.scrape

#: The module below `weblake` of each name that loads Arrow or httpx; after a colon its name there, if it has another.
_LAZY = {
    "LoadState": "dataset.landed_loads",
    "StartedLoad": "loads.intents",
    "collect": "loads.load",
    "counts_of_load": "dataset.changes",
    "find_landed": "loads.load",
    "land": "loads.load",
    "land_activity": "loads.usage",
    "land_report": "loads.usage",
    "open_loads_of_task": "loads.orphans",
    "place": "loads.generations",
    "place_refresh": "loads.generations",
    "record_returned": "loads.generations",
    "record_stopped": "loads.completeness",
    "recorded_request": "loads.generations",
    "start_load": "loads.intents",
    "sync_each": "tables.synchronization",
    "table_schema": "arrow.schemas:with_keys",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'weblake.orchestration' has no attribute {name!r}")
    module, _, own = _LAZY[name].partition(":")
    return getattr(import_module(f"weblake.{module}"), own or name)


def __dir__() -> list[str]:
    return [name for name in (*globals(), *_LAZY) if not name.startswith("_")]
