"""The known maximum price of a page, in credits. Pure functions, no I/O.

The prices come from the service's published table of credit costs and, for json and zero data retention, from other
public text. They estimate the cost before a start; only the service knows the billed cost.
"""

from __future__ import annotations

from collections.abc import Mapping

PAGE = 1.0
JSON_EXTRACTION = 4.0
ZERO_DATA_RETENTION = 1.0
PROXY_ENHANCED = 5.0
LOCKDOWN_HIT = 5.0


def per_page(options: Mapping[str, object]) -> float:
    """Return the known maximum price in credits of one page with these scrape options (snake_case)."""
    price = PAGE
    formats = options.get("formats")
    for entry in formats if isinstance(formats, list | tuple) else ():
        kind = entry.get("type") if isinstance(entry, Mapping) else entry
        if kind == "json":
            price += JSON_EXTRACTION
    if options.get("zero_data_retention") is True:
        price += ZERO_DATA_RETENTION
    if options.get("proxy") == "enhanced":
        price = max(price, PROXY_ENHANCED)
    if options.get("lockdown") is True:
        price = max(price, LOCKDOWN_HIT)
    return price
