"""Pages of a site map that are due: only those are bought of which no page has landed within a week."""

import os

import dagster as dg

from dagster_weblake import BatchScrapeRequest, WeblakeResource, weblake_assets


@dg.asset(group_name="site", deps=["site_pages"])
def site_map(weblake: WeblakeResource) -> list[str]:
    """Return the URLs of the site; a map is one call of the service."""
    found = weblake.client.map_site(os.environ.get("EXAMPLE_SITE", "https://example.org/"))
    return [link.url for link in found.links if link.url]


@weblake_assets(dg.AssetSpec("new_pages", group_name="site"), pool="weblake")
def new_pages(site_map: list[str]) -> BatchScrapeRequest:
    """Return a request for the pages that are due; after a crawl of the whole site nothing is, and nothing is paid."""
    return BatchScrapeRequest(
        urls=site_map, refresh_after="7d", options={"formats": ["markdown", "links"]}, max_credits=50
    )
