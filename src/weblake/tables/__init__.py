"""Tables of a dataset: Delta Lake and Apache Iceberg, to which each load is committed exactly once.

    weblake.tables.add(root, "delta")
    weblake.tables.sync(root)                 # after landings, as often as you like

A table of documents or page_errors refers to the Parquet files of the dataset where they are; nothing is copied. A
landing does not wait for a table and never fails because of one: `sync` commits what has landed since, and takes out
what was retired, in one commit. Of a load that replaces another one, readers of the table see the old rows or the new
ones, never both. The files of usage_periods and activity are replaced in place; a table gets a copy of each content.
"""

from __future__ import annotations

import weblake.arrow  # noqa: F401 - first, because its error says what to do if pyarrow cannot be imported
from weblake.dataset.registered_tables import RegisteredTable
from weblake.tables.committing import SyncResult
from weblake.tables.comparison import TableStatus, status
from weblake.tables.registration import add, list_tables, remove
from weblake.tables.synchronization import sync

__all__ = ["RegisteredTable", "SyncResult", "TableStatus", "add", "list_tables", "remove", "status", "sync"]
