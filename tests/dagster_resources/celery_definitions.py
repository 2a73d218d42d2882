"""The code location of the tests with the Celery executor: one asset, whose pages a test holds back.

`CELERY_CONFIG` has the executor's settings.
"""

import json
import os

import dagster as dg
from dagster_celery import celery_executor

from dagster_weblake import BatchScrapeRequest, WeblakeResource, build_weblake_assets

SITE = os.environ["E2E_SITE"]


# Each job asks the site itself, and not the service's memory of it.
held = build_weblake_assets(
    "held",
    BatchScrapeRequest(
        urls=[f"{SITE}/held/{n}" for n in range(3)], poll_interval=0.3, options={"max_age": 0, "timeout": 240_000}
    ),
    retry_policy=None,
)

defs = dg.Definitions(
    assets=held,
    executor=celery_executor.configured(json.loads(os.environ["CELERY_CONFIG"])),
    resources={"weblake": WeblakeResource(root=os.environ["WEBLAKE_ROOT"])},
)
