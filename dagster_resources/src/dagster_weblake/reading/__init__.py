"""Reading what has landed: the IO manager, and which rows an input means."""

from __future__ import annotations

from dagster_weblake.reading.io_manager import WeblakeParquetIOManager

__all__ = ["WeblakeParquetIOManager"]
