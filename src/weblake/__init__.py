"""Scrape URLs or a site with a web data extraction service and land the pages as one Parquet file.

This package exports the public names. Each is imported at its first use, so that a program that only polls jobs does
not load Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weblake import errors, tables, testing, webhooks
    from weblake.client import AsyncClient, Client
    from weblake.dataset.changes import Change, Changes, changes
    from weblake.dataset.reading import Reading, read
    from weblake.http.options import HttpOptions
    from weblake.loads.landing import land, land_batch, land_crawl
    from weblake.loads.load_request import Terms
    from weblake.loads.orphans import Orphan, Unlanded, orphans
    from weblake.receipt import LandedFile, Receipt

__version__ = "0.1.0"

_MODULE_OF_NAME = {
    "AsyncClient": "weblake.client",
    "Change": "weblake.dataset.changes",
    "Changes": "weblake.dataset.changes",
    "Client": "weblake.client",
    "HttpOptions": "weblake.http.options",
    "LandedFile": "weblake.receipt",
    "Orphan": "weblake.loads.orphans",
    "Reading": "weblake.dataset.reading",
    "Receipt": "weblake.receipt",
    "Terms": "weblake.loads.load_request",
    "Unlanded": "weblake.loads.orphans",
    "changes": "weblake.dataset.changes",
    "land": "weblake.loads.landing",
    "land_batch": "weblake.loads.landing",
    "land_crawl": "weblake.loads.landing",
    "orphans": "weblake.loads.orphans",
    "read": "weblake.dataset.reading",
}
_LAZY_MODULES = ("errors", "tables", "testing", "webhooks")

__all__ = [
    "AsyncClient",
    "Change",
    "Changes",
    "Client",
    "HttpOptions",
    "LandedFile",
    "Orphan",
    "Reading",
    "Receipt",
    "Terms",
    "Unlanded",
    "changes",
    "errors",
    "land",
    "land_batch",
    "land_crawl",
    "orphans",
    "read",
    "tables",
    "testing",
    "webhooks",
]


def __getattr__(name: str) -> object:
    if name in _MODULE_OF_NAME:
        value = getattr(import_module(_MODULE_OF_NAME[name]), name)
        globals()[name] = value
        return value
    if name in _LAZY_MODULES:
        return import_module(f"weblake.{name}")
    raise AttributeError(f"module 'weblake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
