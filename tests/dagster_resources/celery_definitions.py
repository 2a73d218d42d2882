"""The code location of the tests with the Celery executor: one asset, whose pages a test holds back.

`CELERY_CONFIG` has the executor's settings.
"""

import json
import os

import dagster as dg
from dagster_celery import celery_executor

from dagster_weblake import BatchScrapeRequest, WeblakeResource, weblake_assets

SITE = os.environ["E2E_SITE"]


class Pages(dg.Config):
    """So many pages."""

    count: int


@weblake_assets(retry_policy=None)
def held(config: Pages) -> BatchScrapeRequest:
    """Pages that a test holds back, waited for in a Celery worker."""
    urls = [f"{SITE}/held/{n}" for n in range(config.count)]
    # Each job asks the site itself, and not the service's memory of it.
    return BatchScrapeRequest(urls=urls, poll_interval=0.3, options={"max_age": 0, "timeout": 240_000})


defs = dg.Definitions(
    assets=held,
    executor=celery_executor.configured(json.loads(os.environ["CELERY_CONFIG"])),
    resources={"weblake": WeblakeResource(root=os.environ["E2E_ROOT"])},
)
