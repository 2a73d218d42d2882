"""The service and the lake of every asset; settings and secrets come from the environment when a run needs them."""

import dagster as dg

from dagster_weblake import WeblakeParquetIOManager, WeblakeResource


@dg.definitions
def lake() -> dg.Definitions:
    """Return the resource, which lands, and the IO manager, which reads what has landed."""
    root = dg.EnvVar("WEBLAKE_ROOT")
    return dg.Definitions(
        resources={
            # WEBLAKE_BASE_URL and WEBLAKE_API_KEY are its defaults.
            "weblake": WeblakeResource(root=root),
            "lake": WeblakeParquetIOManager(root=root),
        }
    )
