"""The component of a batch scrape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import dagster as dg
from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from dagster_weblake.components.attributes import text_attribute, urls_of_yaml
from dagster_weblake.components.job_component import JobComponent
from dagster_weblake.components.option_schema import options_schema
from dagster_weblake.components.scaffolding import BatchScrapeScaffolder
from dagster_weblake.components.templating import with_late_headers
from dagster_weblake.requests import BatchScrapeRequest, Request, code_version_of
from weblake import options as contract


@dg.scaffold_with(BatchScrapeScaffolder)
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
            urls_of_yaml,
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
            description="In place of urls: the key of an upstream asset that returns them, as a list or a table.",
            examples=["page_list", "web/page_list"],
        ),
    ] = None
    column: Annotated[
        str | None, text_attribute("The column of a table or of a CSV or Parquet file; url by default.", ["url"])
    ] = None
    options: Annotated[
        dict[str, object],
        dg.Resolver(
            with_late_headers,
            model_field_type=dict[str, Any],
            inject_before_resolve=False,
            description="Scrape options of the contract in snake_case.",
            examples=[{"formats": ["markdown", "links"], "max_concurrency": 10}],
            json_schema_extra=options_schema(contract.BatchScrapeOptions),
        ),
    ] = Field(default_factory=dict, repr=False)

    @field_validator("options")
    @classmethod
    def _is_in_the_contract(cls, value: dict[str, object]) -> dict[str, object]:
        contract.to_wire(contract.BatchScrapeOptions, value)
        return value

    @model_validator(mode="after")
    def _has_urls(self) -> Self:
        if (self.urls is None) == (self.urls_from is None):
            raise ValueError("urls or urls_from is needed, and only one of them.")
        if isinstance(self.urls, list) and not any(url.strip() for url in self.urls):
            raise ValueError("urls is empty: give at least one URL.")
        return self

    def get_asset_spec(self, request: Request) -> dg.AssetSpec:
        """Return the spec of the asset; a file of URLs counts by its name, so that a checkout's location does not."""
        spec = super().get_asset_spec(request)
        if self.asset.code_version is None and isinstance(self.urls, str) and "://" not in self.urls:
            assert isinstance(request, BatchScrapeRequest)
            version = code_version_of(replace(request, urls=Path(self.urls).name))
            spec = spec.replace_attributes(code_version=version)
        return spec

    @property
    def request(self) -> BatchScrapeRequest:
        """Return the request of the component."""
        return BatchScrapeRequest(
            urls=self.urls_from if self.urls is None else self.urls,
            column=self.column,
            options=cast("contract.BatchScrapeOptions", self.options),
            **self.terms,
        )
