"""Reading of landed data: the IO manager, and the selection of the rows of an input."""

from __future__ import annotations

from dagster_weblake.reading.io_manager import WeblakeParquetIOManager

__all__ = ["WeblakeParquetIOManager"]
