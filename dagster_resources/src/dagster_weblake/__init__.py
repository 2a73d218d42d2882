"""weblake for Dagster: web data landed as Parquet by assets, exactly once, paid once.

    from dagster_weblake import CrawlRequest, WeblakeResource, build_weblake_assets

    docs = build_weblake_assets("docs", CrawlRequest(url="https://docs.example.com/", options={"limit": 500}))
    defs = dg.Definitions(assets=docs, resources={"weblake": WeblakeResource(root="s3://lake/web")})

The package has a resource, requests, specs and assets, checks, a sensor, an IO manager for reading, and components for
YAML. The documentation's section on Dagster describes their use (docs/site/dagster).
"""

from dagster_shared.libraries import DagsterLibraryRegistry

from dagster_weblake.assets import JobConfig, build_weblake_assets, weblake_assets
from dagster_weblake.checks import build_document_checks, build_usage_checks
from dagster_weblake.components import WeblakeBatchScrapeComponent, WeblakeCrawlComponent, WeblakeUsageComponent
from dagster_weblake.failures import DEFAULT_RETRIES
from dagster_weblake.metadata import WeblakeMetadataSet
from dagster_weblake.reading import WeblakeParquetIOManager
from dagster_weblake.requests import (
    ActivityRequest,
    BatchScrapeRequest,
    CrawlRequest,
    JobRequest,
    ParseRequest,
    ScrapeRequest,
    UsageRequest,
)
from dagster_weblake.resource import WeblakeResource
from dagster_weblake.sensors import build_collect_sensor
from dagster_weblake.specs import build_weblake_specs
from dagster_weblake.tables import build_table_asset

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_RETRIES",
    "ActivityRequest",
    "BatchScrapeRequest",
    "CrawlRequest",
    "JobConfig",
    "JobRequest",
    "ParseRequest",
    "ScrapeRequest",
    "UsageRequest",
    "WeblakeBatchScrapeComponent",
    "WeblakeCrawlComponent",
    "WeblakeMetadataSet",
    "WeblakeParquetIOManager",
    "WeblakeResource",
    "WeblakeUsageComponent",
    "build_collect_sensor",
    "build_document_checks",
    "build_table_asset",
    "build_usage_checks",
    "build_weblake_assets",
    "build_weblake_specs",
    "weblake_assets",
]

DagsterLibraryRegistry.register("dagster-weblake", __version__, is_dagster_package=False)
