"""Dagster components that define crawls, batches and usage in YAML."""

from __future__ import annotations

from dagster_weblake.components.jobs import WeblakeBatchScrapeComponent, WeblakeCrawlComponent
from dagster_weblake.components.usage import WeblakeUsageComponent

__all__ = ["WeblakeBatchScrapeComponent", "WeblakeCrawlComponent", "WeblakeUsageComponent"]
