"""The code location of the end-to-end tests: one asset of each way to wait, usage, and a reading asset.

Steps run in processes of their own (the multiprocess executor), as they do by default.
"""

import os

import dagster as dg
import pandas as pd
import pyarrow as pa

from dagster_weblake import (
    BatchScrapeRequest,
    CrawlRequest,
    UsageRequest,
    WeblakeParquetIOManager,
    WeblakeResource,
    build_collect_sensor,
    build_document_checks,
    build_weblake_assets,
    weblake_assets,
)

SITE = os.environ["E2E_SITE"]


class Pages(dg.Config):
    """Which pages of the site: so many, of this kind."""

    kind: str = "held"
    count: int = 2


def _urls(config: Pages) -> list[str]:
    return [f"{SITE}/{config.kind}/{n}" for n in range(config.count)]


#: Each job asks the site itself, and not the service's memory of it. On a busy machine a page is held for longer than
#: the default timeout of a minute (in ms).
HELD = {"max_age": 0, "timeout": 240_000}

docs = build_weblake_assets("docs", CrawlRequest(url=f"{SITE}/", options={"limit": 4}))


@weblake_assets(retry_policy=None)
def held(config: Pages) -> BatchScrapeRequest:
    """Pages that a test holds back, waited for in the step."""
    return BatchScrapeRequest(urls=_urls(config), poll_interval=0.3, options=HELD)


@weblake_assets(wait="sensor")
def later(config: Pages) -> BatchScrapeRequest:
    """Pages that a test holds back, waited for by nobody."""
    return BatchScrapeRequest(urls=_urls(config), options=HELD)


parts, spans = (
    build_weblake_assets(
        name,
        BatchScrapeRequest(urls=[f"{SITE}/page/0?{name}={{partition_key}}"], options={"max_age": 0}),
        partitions_def=dg.StaticPartitionsDefinition(["a", "b"]),
        backfill_policy=policy,
        retry_policy=None,
    )
    for name, policy in (("parts", None), ("spans", dg.BackfillPolicy.single_run()))
)

usage = build_weblake_assets("usage", UsageRequest(budget=100), resource_key="other")


@dg.asset
def titles(docs: pa.Table, held: pd.DataFrame) -> None:
    """What is downstream of two assets of one dataset gets the rows of each."""
    assert (docs.num_rows, len(held)) == (4, 3)
    assert set(docs["load_id"].to_pylist()) & set(held["load_id"]) == set()


defs = dg.Definitions(
    assets=[*docs, *held, *later, *parts, *spans, *usage, titles],
    asset_checks=[build_document_checks("docs")],
    sensors=[build_collect_sensor(later, minimum_interval_seconds=5)],
    resources={
        "weblake": WeblakeResource(root=os.environ["E2E_ROOT"]),
        # A key that stands in the code, as it must not: it is kept out of what Dagster writes all the same.
        "other": WeblakeResource(api_key=os.environ["E2E_OTHER_KEY"], root=os.environ["E2E_ROOT"]),
        "io_manager": WeblakeParquetIOManager(root=os.environ["E2E_ROOT"]),
    },
)
