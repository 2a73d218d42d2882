"""The component of a crawl."""

from __future__ import annotations

from typing import Annotated, Any, cast

import dagster as dg
from pydantic import Field, field_validator

from dagster_weblake.components.attributes import text_attribute
from dagster_weblake.components.job_component import JobComponent
from dagster_weblake.components.option_schema import options_schema
from dagster_weblake.components.scaffolding import CrawlScaffolder
from dagster_weblake.components.templating import with_late_headers
from dagster_weblake.requests import CrawlRequest
from weblake import options as contract


@dg.scaffold_with(CrawlScaffolder)
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
        text_attribute(
            "Where the crawl begins; may name the partition.",
            ["https://docs.example.com/", "https://{partition_key}/"],
            is_needed=True,
        ),
    ]
    options: Annotated[
        dict[str, object],
        dg.Resolver(
            with_late_headers,
            model_field_type=dict[str, Any],
            inject_before_resolve=False,
            description="Crawl options of the contract in snake_case.",
            examples=[{"limit": 500, "scrape_options": {"formats": ["markdown", "links"]}}],
            json_schema_extra=options_schema(contract.CrawlOptions),
        ),
    ] = Field(default_factory=dict, repr=False)

    @field_validator("url")
    @classmethod
    def _can_be_crawled(cls, value: str) -> str:
        problem = None if "{partition_" in value else contract.url_problem(value)
        if problem is not None:
            raise ValueError(f"url {problem}: give the address where the crawl begins.")
        return value

    @field_validator("options")
    @classmethod
    def _is_in_the_contract(cls, value: dict[str, object]) -> dict[str, object]:
        contract.to_wire(contract.CrawlOptions, value)
        return value

    @property
    def request(self) -> CrawlRequest:
        """Return the request of the component."""
        return CrawlRequest(url=self.url, options=cast("contract.CrawlOptions", self.options), **self.terms)
