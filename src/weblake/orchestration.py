"""What an integration with an orchestrator builds on: names of inner rooms; nothing else of weblake is its business.

Beside this module an integration uses `weblake`, its `errors`, `options`, `aio` and `compat`; .importlinter holds it to
that. Each name is imported when it is first asked for: a scheduler that parses a graph, or a triggerer that waits for
ten thousand jobs, must not load Arrow.
"""

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
    from weblake.jobs.ended_jobs import MAX_OVER, Answers, EndedJobs, ListedJob, Round, Seen, ask_all
    from weblake.jobs.job_links import check_template as check_job_page
    from weblake.jobs.job_links import job_page
    from weblake.jobs.polling import UNSEEN_S, JobRef, OverBudget, glance, over_budget, wait
    from weblake.jobs.retry import Patience
    from weblake.jobs.usage_reports import ClosedPeriod, Report, activity, closed_periods, report
    from weblake.loads.detached import collect, detach
    from weblake.loads.generations import Task, place, place_elsewhere
    from weblake.loads.generations import choose as choose_generation
    from weblake.loads.generations import known as known_task
    from weblake.loads.ledger_watch import LedgerNews
    from weblake.loads.load import Begun, Watch, begin, land, landed
    from weblake.loads.load_request import Naming, Order, Slot, Terms
    from weblake.loads.load_request import batch as batch_order
    from weblake.loads.load_request import crawl as crawl_order
    from weblake.loads.load_request import elsewhere as elsewhere_order
    from weblake.loads.load_request import parse as parse_order
    from weblake.loads.load_request import scrape as scrape_order
    from weblake.loads.orphans import of_slot as open_loads
    from weblake.loads.publishing import Dataset, Landed, Landing, find, history
    from weblake.loads.starts import cancel
    from weblake.loads.usage import land_activity, land_report
    from weblake.remedies import Interface
    from weblake.steps import Flow
    from weblake.storage import refuse_memory
    from weblake.tables.schemas import TABLES
    from weblake.urls.lists import parquet_list, read_urls
    from weblake.urls.shards import UrlShard, read_shard, url_shards

#: The room and the name that each is known by there.
_HOMES = {
    "Answers": "weblake.jobs.ended_jobs:Answers",
    "Begun": "weblake.loads.load:Begun",
    "ClosedPeriod": "weblake.jobs.usage_reports:ClosedPeriod",
    "Dataset": "weblake.loads.publishing:Dataset",
    "EndedJobs": "weblake.jobs.ended_jobs:EndedJobs",
    "Flow": "weblake.steps:Flow",
    "Intent": "weblake.dataset.ledger:Intent",
    "Interface": "weblake.remedies:Interface",
    "JOB_ENDS": "weblake.jobs.ended_jobs:ENDS",
    "Job": "weblake.dataset.ledger:Job",
    "JobRef": "weblake.jobs.polling:JobRef",
    "Landed": "weblake.loads.publishing:Landed",
    "Landing": "weblake.loads.publishing:Landing",
    "LedgerNews": "weblake.loads.ledger_watch:LedgerNews",
    "ListedJob": "weblake.jobs.ended_jobs:ListedJob",
    "MAX_OVER": "weblake.jobs.ended_jobs:MAX_OVER",
    "Naming": "weblake.loads.load_request:Naming",
    "Order": "weblake.loads.load_request:Order",
    "OverBudget": "weblake.jobs.polling:OverBudget",
    "Patience": "weblake.jobs.retry:Patience",
    "Report": "weblake.jobs.usage_reports:Report",
    "Round": "weblake.jobs.ended_jobs:Round",
    "Seen": "weblake.jobs.ended_jobs:Seen",
    "JOB_KINDS": "weblake.api.job_kinds:JOB_KINDS",
    "Slot": "weblake.loads.load_request:Slot",
    "TABLES": "weblake.tables.schemas:TABLES",
    "Task": "weblake.loads.generations:Task",
    "Terms": "weblake.loads.load_request:Terms",
    "UNSEEN_S": "weblake.jobs.polling:UNSEEN_S",
    "UrlShard": "weblake.urls.shards:UrlShard",
    "Watch": "weblake.loads.load:Watch",
    "activity": "weblake.jobs.usage_reports:activity",
    "ask_all": "weblake.jobs.ended_jobs:ask_all",
    "batch_order": "weblake.loads.load_request:batch",
    "begin": "weblake.loads.load:begin",
    "cancel": "weblake.loads.starts:cancel",
    "check_job_page": "weblake.jobs.job_links:check_template",
    "choose_generation": "weblake.loads.generations:choose",
    "closed_periods": "weblake.jobs.usage_reports:closed_periods",
    "collect": "weblake.loads.detached:collect",
    "crawl_order": "weblake.loads.load_request:crawl",
    "detach": "weblake.loads.detached:detach",
    "elsewhere_order": "weblake.loads.load_request:elsewhere",
    "find": "weblake.loads.publishing:find",
    "glance": "weblake.jobs.polling:glance",
    "history": "weblake.loads.publishing:history",
    "is_compacted": "weblake.dataset.layout:is_compacted",
    "is_terminal": "weblake.api.models:is_terminal",
    "job_page": "weblake.jobs.job_links:job_page",
    "known_task": "weblake.loads.generations:known",
    "land": "weblake.loads.load:land",
    "land_activity": "weblake.loads.usage:land_activity",
    "land_report": "weblake.loads.usage:land_report",
    "load_batches": "weblake.dataset.compacted_files:load_batches",
    "landed": "weblake.loads.load:landed",
    "open_dataset": "weblake.dataset.root:open_dataset",
    "open_loads": "weblake.loads.orphans:of_slot",
    "over_budget": "weblake.jobs.polling:over_budget",
    "parquet_list": "weblake.urls.lists:parquet_list",
    "parse_order": "weblake.loads.load_request:parse",
    "parse_time": "weblake.api.models:parse_time",
    "place": "weblake.loads.generations:place",
    "place_elsewhere": "weblake.loads.generations:place_elsewhere",
    "read_shard": "weblake.urls.shards:read_shard",
    "read_urls": "weblake.urls.lists:read_urls",
    "refuse_memory": "weblake.storage:refuse_memory",
    "report": "weblake.jobs.usage_reports:report",
    "scrape_order": "weblake.loads.load_request:scrape",
    "url_shards": "weblake.urls.shards:url_shards",
    "wait": "weblake.jobs.polling:wait",
}

__all__ = [
    "JOB_ENDS",
    "JOB_KINDS",
    "MAX_OVER",
    "TABLES",
    "UNSEEN_S",
    "Answers",
    "Begun",
    "ClosedPeriod",
    "Dataset",
    "EndedJobs",
    "Flow",
    "Intent",
    "Interface",
    "Job",
    "JobRef",
    "Landed",
    "Landing",
    "LedgerNews",
    "ListedJob",
    "Naming",
    "Order",
    "OverBudget",
    "Patience",
    "Report",
    "Round",
    "Seen",
    "Slot",
    "Task",
    "Terms",
    "UrlShard",
    "Watch",
    "activity",
    "ask_all",
    "batch_order",
    "begin",
    "cancel",
    "check_job_page",
    "choose_generation",
    "closed_periods",
    "collect",
    "crawl_order",
    "detach",
    "elsewhere_order",
    "find",
    "glance",
    "history",
    "is_compacted",
    "is_terminal",
    "job_page",
    "known_task",
    "land",
    "land_activity",
    "land_report",
    "landed",
    "load_batches",
    "open_dataset",
    "open_loads",
    "over_budget",
    "parquet_list",
    "parse_order",
    "parse_time",
    "place",
    "place_elsewhere",
    "read_shard",
    "read_urls",
    "refuse_memory",
    "report",
    "scrape_order",
    "url_shards",
    "wait",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, _, known_as = _HOMES[name].partition(":")
    value = getattr(import_module(room), known_as)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
