"""What an integration with an orchestrator builds on: names of inner rooms; nothing else of weblake is its business.

Beside this door an integration uses `weblake`, `weblake.errors` and `weblake.options`; .importlinter holds it to that.
Each name is imported when it is first asked for: a scheduler that parses a graph, or a triggerer that waits for ten
thousand jobs, must not load Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weblake.lake import open_dataset, root_name
    from weblake.load import Watch, begin, land
    from weblake.orders import Naming, Order, Slot, Terms
    from weblake.orders import batch as batch_order
    from weblake.orders import crawl as crawl_order
    from weblake.orders import elsewhere as elsewhere_order
    from weblake.orders import parse as parse_order
    from weblake.orders import scrape as scrape_order
    from weblake.publishing import Dataset, Landing, find
    from weblake.retry import Patience
    from weblake.starts import cancel
    from weblake.url_lists import read_urls
    from weblake.usage import Report, activity, report
    from weblake.usage_landing import land_activity, land_report
    from weblake.waiting import JobRef, glance, wait

#: The room and the name that each is known by there.
_HOMES = {
    "Dataset": "weblake.publishing:Dataset",
    "JobRef": "weblake.waiting:JobRef",
    "Landing": "weblake.publishing:Landing",
    "Naming": "weblake.orders:Naming",
    "Order": "weblake.orders:Order",
    "Patience": "weblake.retry:Patience",
    "Report": "weblake.usage:Report",
    "Slot": "weblake.orders:Slot",
    "Terms": "weblake.orders:Terms",
    "Watch": "weblake.load:Watch",
    "activity": "weblake.usage:activity",
    "batch_order": "weblake.orders:batch",
    "begin": "weblake.load:begin",
    "cancel": "weblake.starts:cancel",
    "crawl_order": "weblake.orders:crawl",
    "elsewhere_order": "weblake.orders:elsewhere",
    "find": "weblake.publishing:find",
    "glance": "weblake.waiting:glance",
    "land": "weblake.load:land",
    "land_activity": "weblake.usage_landing:land_activity",
    "land_report": "weblake.usage_landing:land_report",
    "open_dataset": "weblake.lake:open_dataset",
    "parse_order": "weblake.orders:parse",
    "read_urls": "weblake.url_lists:read_urls",
    "report": "weblake.usage:report",
    "root_name": "weblake.lake:root_name",
    "scrape_order": "weblake.orders:scrape",
    "wait": "weblake.waiting:wait",
}

__all__ = [
    "Dataset",
    "JobRef",
    "Landing",
    "Naming",
    "Order",
    "Patience",
    "Report",
    "Slot",
    "Terms",
    "Watch",
    "activity",
    "batch_order",
    "begin",
    "cancel",
    "crawl_order",
    "elsewhere_order",
    "find",
    "glance",
    "land",
    "land_activity",
    "land_report",
    "open_dataset",
    "parse_order",
    "read_urls",
    "report",
    "root_name",
    "scrape_order",
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
