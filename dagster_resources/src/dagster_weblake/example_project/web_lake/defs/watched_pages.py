"""From the crawl to a list, and from the list to a batch: an asset of one's own says which pages are scraped again."""

from datetime import timedelta

import dagster as dg
import pandas as pd

from dagster_weblake import BatchScrapeRequest, build_document_checks, weblake_assets


class Watched(dg.Config):
    """How many pages are watched."""

    pages: int = 10


@dg.asset(
    ins={"site_pages": dg.AssetIn(input_manager_key="lake", metadata={"columns": ["url", "title", "status_code"]})},
    group_name="site",
    kinds={"pandas"},
)
def watch_list(config: Watched, site_pages: pd.DataFrame) -> pd.DataFrame:
    """The pages of the newest crawl that are scraped again, in full: here simply the first ones."""
    found = site_pages[site_pages["status_code"] == 200].drop_duplicates("url").sort_values("url")
    return found[["url", "title"]].head(config.pages)


@weblake_assets(
    dg.AssetSpec(
        "watched_pages",
        group_name="site",
        freshness_policy=dg.FreshnessPolicy.time_window(
            fail_window=timedelta(hours=36), warn_window=timedelta(hours=26)
        ),
        automation_condition=dg.AutomationCondition.eager(),
    ),
    pool="weblake",
)
def watched_pages(watch_list: pd.DataFrame) -> BatchScrapeRequest:
    """The watched pages with all that is needed of them, as one job and one file."""
    return BatchScrapeRequest(
        urls=watch_list,
        options={"formats": ["markdown", "html", "links"]},
        max_credits=50,
        deadline=timedelta(hours=2),
    )


watched_pages_checks = build_document_checks(watched_pages, max_error_ratio=0.2, max_credits=50)
