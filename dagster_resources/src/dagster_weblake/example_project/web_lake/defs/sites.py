"""One partition for each site: one asset starts its crawl, a sensor sees that it has ended, and another asset lands it.

A site is the start URL of its crawl. Sites are added by materializing `sites`, on the page of `site_documents`, or by a
program: `instance.add_dynamic_partitions("sites", ["https://docs.example.com/"])`.
"""

import os

import dagster as dg
from pydantic import Field

from dagster_weblake import CrawlRequest, build_collect_sensor, build_document_checks, build_weblake_assets

SITES = dg.DynamicPartitionsDefinition(name="sites")


class Sites(dg.Config):
    """The sites to add."""

    #: Their start URLs; if empty, the example's own site.
    sites: list[str] = Field(default_factory=list)


@dg.asset(group_name="sites")
def sites(context: dg.AssetExecutionContext, config: Sites) -> dg.MaterializeResult[None]:
    """Add the sites of the run's config; each is a partition from then on."""
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
    # One run starts the crawls of all sites of a backfill, and ends.
    backfill_policy=dg.BackfillPolicy.single_run(),
    pool="weblake",
)

site_documents_checks = build_document_checks(site_documents)

#: The sensor runs by default, and requests the landing of each crawl that has ended.
collect_sites = build_collect_sensor(site_documents)
