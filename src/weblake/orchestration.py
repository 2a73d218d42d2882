"""The internal names of weblake that integrations with orchestrators may use.

Besides this module an integration may import `weblake`, `errors`, `options`, `aio` and `compat`; .importlinter checks
this. Each name is imported at its first use, because a scheduler that parses a graph, or a triggerer that waits for ten
thousand jobs, must not load Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weblake.api.job_kinds import JOB_KINDS
    from weblake.api.models import is_terminal, parse_time
    from weblake.dataset.compacted_files import load_batches
    from weblake.dataset.layout import is_compacted
    from weblake.dataset.records import Intent, Job
    from weblake.dataset.root import open_dataset
    from weblake.jobs.ended_jobs import ENDS as JOB_ENDS
    from weblake.jobs.ended_jobs import MAX_OVER, EndedJobs, ListedJob, PollResults, PollRound, WatcherState, poll_all
    from weblake.jobs.job_links import check_template as check_job_page
    from weblake.jobs.job_links import job_page
    from weblake.jobs.polling import UNSEEN_S, JobRef, OverBudget, get_status, over_budget, wait
    from weblake.jobs.retry import RetryPolicy
    from weblake.jobs.usage_reports import ClosedPeriod, Report, activity, closed_periods, report
    from weblake.loads.detached import collect, detach
    from weblake.loads.generations import Task, place, place_existing_job
    from weblake.loads.generations import choose as choose_generation
    from weblake.loads.generations import known as known_task
    from weblake.loads.intents import StartedLoad, start_load
    from weblake.loads.ledger_watch import LedgerNews
    from weblake.loads.load import ProgressCallbacks, find_landed, land
    from weblake.loads.load_request import LoadRequest, Naming, Slot, Terms
    from weblake.loads.load_request import batch as batch_request
    from weblake.loads.load_request import crawl as crawl_request
    from weblake.loads.load_request import existing_job as existing_job_request
    from weblake.loads.load_request import parse as parse_request
    from weblake.loads.load_request import scrape as scrape_request
    from weblake.loads.orphans import open_loads_of_slot
    from weblake.loads.publishing import Dataset, HistoryEntry, LandedLoad, find, history
    from weblake.loads.starts import cancel
    from weblake.loads.usage import land_activity, land_report
    from weblake.remedies import Interface
    from weblake.steps import Flow
    from weblake.storage import refuse_memory
    from weblake.tables.schemas import TABLES
    from weblake.urls.lists import parquet_list, read_urls
    from weblake.urls.shards import UrlShard, read_shard, url_shards

#: Module and attribute of each name.
_HOMES = {
    "PollResults": "weblake.jobs.ended_jobs:PollResults",
    "StartedLoad": "weblake.loads.intents:StartedLoad",
    "ClosedPeriod": "weblake.jobs.usage_reports:ClosedPeriod",
    "Dataset": "weblake.loads.publishing:Dataset",
    "EndedJobs": "weblake.jobs.ended_jobs:EndedJobs",
    "Flow": "weblake.steps:Flow",
    "Intent": "weblake.dataset.records:Intent",
    "Interface": "weblake.remedies:Interface",
    "JOB_ENDS": "weblake.jobs.ended_jobs:ENDS",
    "Job": "weblake.dataset.records:Job",
    "JobRef": "weblake.jobs.polling:JobRef",
    "HistoryEntry": "weblake.loads.publishing:HistoryEntry",
    "LandedLoad": "weblake.loads.publishing:LandedLoad",
    "LedgerNews": "weblake.loads.ledger_watch:LedgerNews",
    "ListedJob": "weblake.jobs.ended_jobs:ListedJob",
    "MAX_OVER": "weblake.jobs.ended_jobs:MAX_OVER",
    "Naming": "weblake.loads.load_request:Naming",
    "LoadRequest": "weblake.loads.load_request:LoadRequest",
    "OverBudget": "weblake.jobs.polling:OverBudget",
    "RetryPolicy": "weblake.jobs.retry:RetryPolicy",
    "Report": "weblake.jobs.usage_reports:Report",
    "PollRound": "weblake.jobs.ended_jobs:PollRound",
    "WatcherState": "weblake.jobs.ended_jobs:WatcherState",
    "JOB_KINDS": "weblake.api.job_kinds:JOB_KINDS",
    "Slot": "weblake.loads.load_request:Slot",
    "TABLES": "weblake.tables.schemas:TABLES",
    "Task": "weblake.loads.generations:Task",
    "Terms": "weblake.loads.load_request:Terms",
    "UNSEEN_S": "weblake.jobs.polling:UNSEEN_S",
    "UrlShard": "weblake.urls.shards:UrlShard",
    "ProgressCallbacks": "weblake.loads.load:ProgressCallbacks",
    "activity": "weblake.jobs.usage_reports:activity",
    "poll_all": "weblake.jobs.ended_jobs:poll_all",
    "batch_request": "weblake.loads.load_request:batch",
    "start_load": "weblake.loads.intents:start_load",
    "cancel": "weblake.loads.starts:cancel",
    "check_job_page": "weblake.jobs.job_links:check_template",
    "choose_generation": "weblake.loads.generations:choose",
    "closed_periods": "weblake.jobs.usage_reports:closed_periods",
    "collect": "weblake.loads.detached:collect",
    "crawl_request": "weblake.loads.load_request:crawl",
    "detach": "weblake.loads.detached:detach",
    "existing_job_request": "weblake.loads.load_request:existing_job",
    "find": "weblake.loads.publishing:find",
    "get_status": "weblake.jobs.polling:get_status",
    "history": "weblake.loads.publishing:history",
    "is_compacted": "weblake.dataset.layout:is_compacted",
    "is_terminal": "weblake.api.models:is_terminal",
    "job_page": "weblake.jobs.job_links:job_page",
    "known_task": "weblake.loads.generations:known",
    "land": "weblake.loads.load:land",
    "land_activity": "weblake.loads.usage:land_activity",
    "land_report": "weblake.loads.usage:land_report",
    "load_batches": "weblake.dataset.compacted_files:load_batches",
    "find_landed": "weblake.loads.load:find_landed",
    "open_dataset": "weblake.dataset.root:open_dataset",
    "open_loads_of_slot": "weblake.loads.orphans:open_loads_of_slot",
    "over_budget": "weblake.jobs.polling:over_budget",
    "parquet_list": "weblake.urls.lists:parquet_list",
    "parse_request": "weblake.loads.load_request:parse",
    "parse_time": "weblake.api.models:parse_time",
    "place": "weblake.loads.generations:place",
    "place_existing_job": "weblake.loads.generations:place_existing_job",
    "read_shard": "weblake.urls.shards:read_shard",
    "read_urls": "weblake.urls.lists:read_urls",
    "refuse_memory": "weblake.storage:refuse_memory",
    "report": "weblake.jobs.usage_reports:report",
    "scrape_request": "weblake.loads.load_request:scrape",
    "url_shards": "weblake.urls.shards:url_shards",
    "wait": "weblake.jobs.polling:wait",
}

__all__ = [
    "JOB_ENDS",
    "JOB_KINDS",
    "MAX_OVER",
    "TABLES",
    "UNSEEN_S",
    "ClosedPeriod",
    "Dataset",
    "EndedJobs",
    "Flow",
    "HistoryEntry",
    "Intent",
    "Interface",
    "Job",
    "JobRef",
    "LandedLoad",
    "LedgerNews",
    "ListedJob",
    "LoadRequest",
    "Naming",
    "OverBudget",
    "PollResults",
    "PollRound",
    "ProgressCallbacks",
    "Report",
    "RetryPolicy",
    "Slot",
    "StartedLoad",
    "Task",
    "Terms",
    "UrlShard",
    "WatcherState",
    "activity",
    "batch_request",
    "cancel",
    "check_job_page",
    "choose_generation",
    "closed_periods",
    "collect",
    "crawl_request",
    "detach",
    "existing_job_request",
    "find",
    "find_landed",
    "get_status",
    "history",
    "is_compacted",
    "is_terminal",
    "job_page",
    "known_task",
    "land",
    "land_activity",
    "land_report",
    "load_batches",
    "open_dataset",
    "open_loads_of_slot",
    "over_budget",
    "parquet_list",
    "parse_request",
    "parse_time",
    "place",
    "place_existing_job",
    "poll_all",
    "read_shard",
    "read_urls",
    "refuse_memory",
    "report",
    "scrape_request",
    "start_load",
    "url_shards",
    "wait",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
