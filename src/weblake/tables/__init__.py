"""Tables of a dataset: Delta Lake and Apache Iceberg, to which each load is copied exactly once.

    weblake.tables.add(root, "delta")
    weblake.tables.sync(root)                 # after landings, as often as you like

A table has a place of its own and copies of the rows of documents or page_errors, so its own maintenance never reaches
the dataset. A landing does not wait for a table and never fails because of one: `sync` appends what has landed since,
and takes out what was replaced. Of a load that replaces another one, readers of the table see the old rows or the new
ones, never both.
"""

from __future__ import annotations

import weblake.arrow  # noqa: F401 - first, because its error says what to do if pyarrow cannot be imported
from weblake.tables.comparison import TableStatus, status
from weblake.tables.registration import RegisteredTable, add, list_tables, remove
from weblake.tables.synchronization import SyncResult, sync

__all__ = ["RegisteredTable", "SyncResult", "TableStatus", "add", "list_tables", "remove", "status", "sync"]
