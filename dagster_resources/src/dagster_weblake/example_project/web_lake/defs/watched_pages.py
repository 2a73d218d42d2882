"""A batch scrape of pages that another asset selects from a crawl."""

from datetime import timedelta

import dagster as dg
import pandas as pd

from dagster_weblake import BatchScrapeRequest, build_document_checks, weblake_assets


class Watched(dg.Config):
    """The number of pages that are watched."""

    pages: int = 10


@dg.asset(
    ins={"site_pages": dg.AssetIn(input_manager_key="lake", metadata={"columns": ["url", "title", "status_code"]})},
    group_name="site",
    kinds={"pandas"},
)
def watch_list(config: Watched, site_pages: pd.DataFrame) -> pd.DataFrame:
    """Return the pages of the newest crawl that are scraped again, in full: here simply the first ones."""
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
    """Return a request for the watched pages with all formats that are needed, as one job and one file."""
    return BatchScrapeRequest(
        urls=watch_list,
        options={"formats": ["markdown", "html", "links"]},
        max_credits=50,
        deadline=timedelta(hours=2),
    )


watched_pages_checks = build_document_checks(watched_pages, max_error_ratio=0.2, max_credits=50)
