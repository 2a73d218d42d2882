"""Dagster components that define crawls, batches and usage in YAML."""

from __future__ import annotations

from dagster_weblake.components.batch_scrape import WeblakeBatchScrapeComponent
from dagster_weblake.components.crawl import WeblakeCrawlComponent
from dagster_weblake.components.usage import WeblakeUsageComponent

__all__ = ["WeblakeBatchScrapeComponent", "WeblakeCrawlComponent", "WeblakeUsageComponent"]
