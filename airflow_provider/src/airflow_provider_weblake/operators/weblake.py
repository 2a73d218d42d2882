"""All operators of the provider, under the module that DAGs import from."""

from __future__ import annotations

from airflow_provider_weblake.operators.discovery import WeblakeInteractOperator, WeblakeMapOperator
from airflow_provider_weblake.operators.jobs import (
    WeblakeBatchScrapeOperator,
    WeblakeCrawlOperator,
    WeblakeLandOperator,
)
from airflow_provider_weblake.operators.pages import WeblakeParseOperator, WeblakeScrapeOperator
from airflow_provider_weblake.operators.reports import WeblakeActivityOperator, WeblakeUsageOperator
from airflow_provider_weblake.operators.tables import WeblakeTableSyncOperator

__all__ = [
    "WeblakeActivityOperator",
    "WeblakeBatchScrapeOperator",
    "WeblakeCrawlOperator",
    "WeblakeInteractOperator",
    "WeblakeLandOperator",
    "WeblakeMapOperator",
    "WeblakeParseOperator",
    "WeblakeScrapeOperator",
    "WeblakeTableSyncOperator",
    "WeblakeUsageOperator",
]
