"""The dataset, and the service of WEBLAKE_BASE_URL and WEBLAKE_API_KEY."""

import os
from pathlib import Path

import dagster as dg

from dagster_weblake import WeblakeResource

LAKE = Path(__file__).resolve().parents[2] / "lake"


@dg.definitions
def lake() -> dg.Definitions:
    """Return the resource that every asset of weblake uses."""
    return dg.Definitions(resources={"weblake": WeblakeResource(root=os.environ.get("WEBLAKE_ROOT", str(LAKE)))})
