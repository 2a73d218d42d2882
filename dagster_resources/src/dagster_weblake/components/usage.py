"""The component of a team's usage."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

import dagster as dg
from pydantic import field_validator, model_validator

from dagster_weblake.checks import build_usage_checks
from dagster_weblake.components.attributes import Block, ResolvedBackfillPolicy, doc
from dagster_weblake.components.component import LandingComponent
from dagster_weblake.components.scaffolding import UsageParams, scaffolder
from dagster_weblake.requests import Request, UsageRequest


class UsageChecksBlock(Block):
    """The severity and blocking of the check `usage_under_budget`."""

    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR
    blocking: bool = False


@dg.scaffold_with(scaffolder(UsageParams))
class WeblakeUsageComponent(LandingComponent):
    """The team's usage by month, landed as Parquet; reading it costs nothing.

    ```yaml
    type: dagster_weblake.WeblakeUsageComponent
    attributes:
      asset:
        key: usage
        automation_condition: "{{ dg.AutomationCondition.on_cron('0 6 * * *') }}"
      start_date: "2026-01-01"
      budget: 100000
    ```
    """

    report: Annotated[Literal["credits", "tokens"], doc("What is counted.", "tokens")] = "credits"
    by_api_key: Annotated[bool, doc("Splits the report by API key.", example=True)] = False
    budget: Annotated[
        float | None,
        doc("Credits or tokens that a month may use; adds the check usage_under_budget.", 100000),
    ] = None
    start_date: Annotated[
        str | None,
        doc(
            "The first month: the asset gets monthly partitions, which include the current month. Without it, each "
            "materialization lands all months.",
            "2026-01-01",
        ),
    ] = None
    backfill_policy: ResolvedBackfillPolicy = dg.BackfillPolicy.single_run()
    checks: Annotated[
        UsageChecksBlock | None,
        doc("The severity and blocking of the check of the budget.", {"severity": "WARN"}),
    ] = None

    threshold = "budget"

    @field_validator("start_date")
    @classmethod
    def _is_month(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])(-01)?", value) is None:
            raise ValueError(f"start_date is {value!r}: give the first day of a month, such as 2026-01-01.")
        return None if value is None else f"{value[:7]}-01"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.checks is not None and self.budget is None:
            raise ValueError("checks has no budget to compare the report with: give budget.")
        if self.start_date is not None and self.asset.partitions_def is not None:
            raise ValueError("start_date and the asset's partitions_def are both given: leave one of them out.")
        return self

    @property
    def request(self) -> UsageRequest:
        """Return the request of the component."""
        return UsageRequest(report=self.report, by_api_key=self.by_api_key, budget=self.budget)

    def get_asset_spec(self, request: Request) -> dg.AssetSpec:
        """Return the spec of the asset, with monthly partitions if there is a `start_date`."""
        spec = super().get_asset_spec(request)
        if self.start_date is None:
            return spec
        return spec.replace_attributes(partitions_def=dg.MonthlyPartitionsDefinition(self.start_date, end_offset=1))

    def _checks(self, asset: dg.AssetSpec, resource_key: str) -> list[dg.AssetChecksDefinition]:
        if self.budget is None:
            return []
        how = dict(self.checks or UsageChecksBlock())
        return [build_usage_checks(asset, budget=self.budget, to=self.to, resource_key=resource_key, **how)]
