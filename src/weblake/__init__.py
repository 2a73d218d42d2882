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

#: The names of each module below `weblake`.
_NAMES = {
    "client": ("AsyncClient", "Client"),
    "dataset.changes": ("Change", "Changes", "changes"),
    "dataset.reading": ("Reading", "read"),
    "http.options": ("HttpOptions",),
    "loads.landing": ("land", "land_batch", "land_crawl"),
    "loads.load_request": ("Terms",),
    "loads.orphans": ("Orphan", "Unlanded", "orphans"),
    "receipt": ("LandedFile", "Receipt"),
}
_MODULES = ("errors", "tables", "testing", "webhooks")

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
    if name in _MODULES:
        return import_module(f"weblake.{name}")
    for module, names in _NAMES.items():
        if name in names:
            globals()[name] = getattr(import_module(f"weblake.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module 'weblake' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
