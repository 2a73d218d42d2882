"""One partition for each site, and jobs that nobody waits for: one asset starts, a sensor sees the end, one lands.

A site is the address where its crawl begins. Sites are added by materializing `sites`, on the page of `site_documents`,
or by a program: `instance.add_dynamic_partitions("sites", ["https://docs.example.com/"])`.
"""

import os

import dagster as dg
from pydantic import Field

from dagster_weblake import CrawlRequest, build_collect_sensor, build_document_checks, build_weblake_assets

SITES = dg.DynamicPartitionsDefinition(name="sites")


class Sites(dg.Config):
    """Which sites there are."""

    #: Where their crawls begin; none: the example's own.
    sites: list[str] = Field(default_factory=list)


@dg.asset(group_name="sites")
def sites(context: dg.AssetExecutionContext, config: Sites) -> dg.MaterializeResult[None]:
    """The sites that the run's config names; each is a partition from then on."""
    named = config.sites or [os.environ.get("EXAMPLE_SITE", "https://example.org/")]
    context.instance.add_dynamic_partitions("sites", named)
    return dg.MaterializeResult(metadata={"sites": named, "dagster/row_count": len(named)})


site_documents = build_weblake_assets(
    dg.AssetSpec("site_documents", group_name="sites", deps=[sites]),
    CrawlRequest(
        url="{partition_key}", options={"limit": 20, "scrape_options": {"formats": ["markdown"]}}, max_credits=20
    ),
    wait="sensor",
    partitions_def=SITES,
    # One run starts the crawls of all sites of a backfill, and is over.
    backfill_policy=dg.BackfillPolicy.single_run(),
    pool="weblake",
)

site_documents_checks = build_document_checks(site_documents)

#: Runs by itself, and has each crawl landed when it has ended.
collect_sites = build_collect_sensor(site_documents)
