"""The code location: all definitions below `defs`."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """Return the definitions that `dg`, `dagster dev` and a deployment load."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__))
