"""The internal names of weblake that integrations with orchestrators may use.

Besides this module an integration may import `weblake`, `errors`, `options`, `aio` and `compat`; .importlinter checks
this. Each name is imported at its first use, because a scheduler that parses a graph, or a triggerer that waits for ten
thousand jobs, must not load Arrow.
"""

# ruff: noqa: F401
# The module re-exports what it imports; for mypy pyproject.toml says so.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weblake.api.job_kinds import JOB_KINDS
    from weblake.api.models import is_terminal, parse_time
    from weblake.dataset.compacted_files import load_batches
    from weblake.dataset.layout import is_compacted
    from weblake.dataset.ledger import Intent, Job
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
    from weblake.loads.ledger_watch import LedgerNews
    from weblake.loads.load import ProgressCallbacks, StartedLoad, find_landed, land, start_load
    from weblake.loads.load_request import LoadRequest, Naming, Slot, Terms
    from weblake.loads.load_request import batch as batch_request
    from weblake.loads.load_request import crawl as crawl_request
    from weblake.loads.load_request import existing_job as existing_job_request
    from weblake.loads.load_request import parse as parse_request
    from weblake.loads.load_request import scrape as scrape_request
    from weblake.loads.orphans import open_loads_of_slot
    from weblake.loads.publishing import Dataset, LandedLoad, find, history
    from weblake.loads.starts import cancel
    from weblake.loads.usage import land_activity, land_report
    from weblake.remedies import Interface
    from weblake.steps import Flow
    from weblake.storage import refuse_memory
    from weblake.tables.schemas import TABLES
    from weblake.urls.lists import parquet_list, read_urls
    from weblake.urls.shards import UrlShard, read_shard, url_shards

#: The names of each module, as in the imports above; `name=own_name` renames.
_NAMES = {
    "weblake.api.job_kinds": "JOB_KINDS",
    "weblake.api.models": "is_terminal parse_time",
    "weblake.dataset.compacted_files": "load_batches",
    "weblake.dataset.layout": "is_compacted",
    "weblake.dataset.ledger": "Intent Job",
    "weblake.dataset.root": "open_dataset",
    "weblake.jobs.ended_jobs": "EndedJobs JOB_ENDS=ENDS ListedJob MAX_OVER PollResults PollRound WatcherState poll_all",
    "weblake.jobs.job_links": "check_job_page=check_template job_page",
    "weblake.jobs.polling": "JobRef OverBudget UNSEEN_S get_status over_budget wait",
    "weblake.jobs.retry": "RetryPolicy",
    "weblake.jobs.usage_reports": "ClosedPeriod Report activity closed_periods report",
    "weblake.loads.detached": "collect detach",
    "weblake.loads.generations": "Task choose_generation=choose known_task=known place place_existing_job",
    "weblake.loads.ledger_watch": "LedgerNews",
    "weblake.loads.load": "ProgressCallbacks StartedLoad find_landed land start_load",
    "weblake.loads.load_request": "LoadRequest Naming Slot Terms batch_request=batch crawl_request=crawl "
    "existing_job_request=existing_job parse_request=parse scrape_request=scrape",
    "weblake.loads.orphans": "open_loads_of_slot",
    "weblake.loads.publishing": "Dataset LandedLoad find history",
    "weblake.loads.starts": "cancel",
    "weblake.loads.usage": "land_activity land_report",
    "weblake.remedies": "Interface",
    "weblake.steps": "Flow",
    "weblake.storage": "refuse_memory",
    "weblake.tables.schemas": "TABLES",
    "weblake.urls.lists": "parquet_list read_urls",
    "weblake.urls.shards": "UrlShard read_shard url_shards",
}
_HOMES = {
    name.partition("=")[0]: (module, name.rpartition("=")[2])
    for module, names in _NAMES.items()
    for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_HOMES)
