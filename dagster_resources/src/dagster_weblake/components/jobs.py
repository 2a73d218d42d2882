"""The components of a crawl and of a batch scrape."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import dagster as dg
from pydantic import Field, field_validator, model_validator

from dagster_weblake.checks import build_document_checks
from dagster_weblake.components.attributes import Block, ResolvedDeadline, doc, duration, fill_templates
from dagster_weblake.components.component import LandingComponent
from dagster_weblake.components.option_schema import options_schema
from dagster_weblake.components.scaffolding import BatchScrapeParams, CrawlParams, scaffolder
from dagster_weblake.requests import BatchScrapeRequest, CrawlRequest, LandingRequest, Request, code_version_of
from dagster_weblake.sensors import build_collect_sensor
from dagster_weblake.specs import Wait
from weblake import options as contract


class SensorBlock(Block):
    """The arguments of the collect sensor that a component includes.

    Args:
        minimum_interval_seconds: Seconds between two ticks at least.
        default_status: RUNNING or STOPPED: the sensor's status in a new instance.
    """

    minimum_interval_seconds: int = 30
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING


class DocumentChecksBlock(Block):
    """The arguments of `build_document_checks`.

    Args:
        max_credits: The credits that the job may cost. Default: the component's own `max_credits`.
        only: The names of the checks to build; by default all.
    """

    min_rows: int = 1
    max_error_ratio: float = 0.1
    max_duplicate_urls: int = 0
    max_credits: float | None = None
    only: list[str] | None = None
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    blocking: bool = False


class JobComponent(LandingComponent, ABC):
    """Pages of a job, landed in `documents`."""

    wait: Annotated[
        Wait,
        doc(
            "step: the step waits for its job. sensor: `<key>_job` starts it, and a sensor requests the run of `<key>` "
            "that lands it when it has ended, so that no process waits.",
            "sensor",
        ),
    ] = "step"
    partition: Annotated[
        dict[str, str] | None,
        dg.Resolver(
            fill_templates,
            model_field_type=dict[str, str] | None,
            inject_before_resolve=False,
            description="Path keys of the dataset instead of load_date, the same for all assets of a root.",
            examples=[{"day": "{partition_key}"}],
        ),
    ] = None
    allow_partial: Annotated[bool, doc("Stores the available pages of an incomplete load.", example=True)] = False
    missing_ratio: Annotated[float, doc("The share of submitted URLs that may be missing.", 0.05)] = 0.0
    fail_ratio: Annotated[float, doc("The share of pages that may fail before the load is refused.", 0.2)] = 1.0
    max_credits: Annotated[
        float | None, doc("Refuses a job that would cost more; cancels one that exceeds it. Default: no limit.", 500)
    ] = None
    deadline: ResolvedDeadline = timedelta(hours=24)
    poll_interval: Annotated[float, doc("The maximum interval between status polls, in seconds.", 10)] = 10.0
    report_changes: Annotated[
        bool,
        doc("Counts the pages that are new, changed and gone; reads small columns of the whole dataset.", example=True),
    ] = False
    checks: Annotated[
        DocumentChecksBlock | None,
        doc(
            "Checks of the landed documents; none by default, all of them with {}.",
            {"min_rows": 100, "max_error_ratio": 0.05},
        ),
    ] = None
    sensor: Annotated[
        SensorBlock | None,
        doc(
            "The collect sensor of wait: sensor. null: none, if a sensor of your own collects for several assets.",
            {"minimum_interval_seconds": 60},
        ),
    ] = SensorBlock()

    @field_validator("deadline", mode="before")
    @classmethod
    def _is_duration(cls, value: object) -> timedelta:
        return duration(value)

    @property
    def waiting(self) -> Wait:
        """Return the value of the attribute."""
        return self.wait

    def _terms(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(LandingRequest)}

    def _checks(self, asset: dg.AssetSpec, resource_key: str) -> list[dg.AssetChecksDefinition]:
        if self.checks is None:
            return []
        given = dict(self.checks)
        names = given.pop("only")
        if given["max_credits"] is None:
            given["max_credits"] = self.max_credits
        return [build_document_checks(asset, to=self.to, checks=names, resource_key=resource_key, **given)]

    def _sensors(self, assets: Sequence[dg.AssetsDefinition], resource_key: str) -> list[dg.SensorDefinition]:
        if self.wait == "step" or self.sensor is None:
            return []
        return [build_collect_sensor(assets, resource_key=resource_key, **dict(self.sensor))]


def _options(form: type, description: str, examples: list[Mapping[str, object]]) -> dg.Resolver:
    return dg.Resolver(
        fill_templates,
        model_field_type=dict[str, Any],
        inject_before_resolve=False,
        description=description,
        examples=list(examples),
        json_schema_extra=options_schema(form),
    )


@dg.scaffold_with(scaffolder(CrawlParams))
class WeblakeCrawlComponent(JobComponent):
    """A crawl of a site, landed as Parquet: exactly once, paid once.

    ```yaml
    type: dagster_weblake.WeblakeCrawlComponent
    attributes:
      asset:
        key: docs
        group_name: web
      url: https://docs.example.com/
      options:
        limit: 500
        scrape_options:
          formats:
            - markdown
            - links
      max_credits: 500
    ```
    """

    url: Annotated[
        str,
        doc("The start URL; may contain the partition.", "https://docs.example.com/"),
    ]
    options: Annotated[
        dict[str, object],
        _options(
            contract.CrawlOptions,
            "Crawl options of the contract, in snake_case.",
            [{"limit": 500, "scrape_options": {"formats": ["markdown", "links"]}}],
        ),
    ] = Field(default_factory=dict, repr=False)

    @property
    def request(self) -> CrawlRequest:
        """Return the request of the component."""
        return CrawlRequest(url=self.url, options=cast("contract.CrawlOptions", self.options), **self._terms())


def _urls_of(context: dg.ResolutionContext, value: object) -> object:
    """Return a list of URLs, or a file of them; a relative path is resolved beside the defs.yaml."""
    found = fill_templates(context, value)
    if not isinstance(found, str) or "://" in found:
        return found
    return str(context.resolve_source_relative_path(found))


@dg.scaffold_with(scaffolder(BatchScrapeParams))
class WeblakeBatchScrapeComponent(JobComponent):
    """Many URLs scraped as one job, landed as Parquet: exactly once, paid once.

    ```yaml
    type: dagster_weblake.WeblakeBatchScrapeComponent
    attributes:
      asset: pages
      urls_from: page_list
      column: url
      options:
        formats:
          - markdown
      wait: sensor
    ```
    """

    urls: Annotated[
        list[str] | str | None,
        dg.Resolver(
            _urls_of,
            model_field_type=list[str] | str | None,
            inject_before_resolve=False,
            description="The URLs; or a text, CSV or Parquet file of them: a storage URL, or a path beside this file.",
            examples=[["https://docs.example.com/a", "https://docs.example.com/b"], "urls.csv"],
        ),
    ] = None
    urls_from: Annotated[
        dg.AssetKey | None,
        dg.Resolver(
            lambda context, value: None if value is None else dg.AssetKey.from_user_string(value),
            model_field_type=str | None,
            description="Instead of urls: the key of an upstream asset that returns them, as a list or a table.",
            examples=["page_list", "web/page_list"],
        ),
    ] = None
    column: Annotated[
        str | None,
        doc("The column of a table, or of a CSV or Parquet file; default url.", "url"),
    ] = None
    refresh_after: Annotated[
        str | None,
        doc(
            "Sends only URLs of which no successful page has landed within this time: 7d, 12h or never. "
            "Default: all URLs.",
            "7d",
        ),
    ] = None
    options: Annotated[
        dict[str, object],
        _options(
            contract.BatchScrapeOptions,
            "Scrape options of the contract, in snake_case.",
            [{"formats": ["markdown", "links"], "max_concurrency": 10}],
        ),
    ] = Field(default_factory=dict, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _has_urls(cls, given: Any) -> Any:
        if isinstance(given, dict) and (given.get("urls") is None) == (given.get("urls_from") is None):
            raise ValueError("urls or urls_from is needed, and only one of them.")
        if isinstance(given, dict) and given.get("urls") == []:
            raise ValueError("urls is empty: give at least one URL.")
        return given

    def get_asset_spec(self, request: Request) -> dg.AssetSpec:
        """Return the spec of the asset; a file of URLs counts by its name, so that a checkout's location does not."""
        spec = super().get_asset_spec(request)
        if self.asset.code_version is None and isinstance(self.urls, str) and "://" not in self.urls:
            named = replace(self.request, urls=Path(self.urls).name)
            return spec.replace_attributes(code_version=code_version_of(named))
        return spec

    @property
    def request(self) -> BatchScrapeRequest:
        """Return the request of the component."""
        return BatchScrapeRequest(
            urls=self.urls_from if self.urls is None else self.urls,
            column=self.column,
            refresh_after=self.refresh_after,
            options=cast("contract.BatchScrapeOptions", self.options),
            **self._terms(),
        )
