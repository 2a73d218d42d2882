"""The component of a team's usage."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

import dagster as dg
from pydantic import field_validator, model_validator
from typing_extensions import Self

from dagster_weblake.checks import build_usage_checks
from dagster_weblake.components.attributes import ResolvedBackfillPolicy, SensorBlock, text_attribute
from dagster_weblake.components.component import LandingComponent
from dagster_weblake.components.option_schema import templated
from dagster_weblake.components.placing import Block
from dagster_weblake.components.scaffolding import UsageScaffolder
from dagster_weblake.requests import UsageRequest
from dagster_weblake.sensors import build_usage_closed_sensor
from weblake.errors import InvalidOption

_MONTH = re.compile(r"\d{4}-\d{2}")


class UsageChecksBlock(Block):
    """The severity and blocking of the check `usage_under_budget`."""

    severity: Annotated[
        Literal["ERROR", "WARN"],
        dg.Resolver.default(
            description="Of the check when it fails.", json_schema_extra=templated({"enum": ["ERROR", "WARN"]})
        ),
    ] = "ERROR"
    blocking: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether a failure keeps assets downstream from being materialized.", examples=[True]
        ),
    ] = False


@dg.scaffold_with(UsageScaffolder)
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

    report: Annotated[
        Literal["credits", "tokens"],
        dg.Resolver.default(
            description="What is counted.",
            examples=["tokens"],
            json_schema_extra=templated({"enum": ["credits", "tokens"]}),
        ),
    ] = "credits"
    by_api_key: Annotated[
        bool,
        dg.Resolver.default(
            description="Splits the report by API key.",
            examples=[True],
            json_schema_extra=templated({"type": "boolean"}),
        ),
    ] = False
    budget: Annotated[
        float | None,
        dg.Resolver.default(
            description="What a month may use, in what the report counts; brings the check usage_under_budget along.",
            examples=[100000],
            json_schema_extra=templated({"type": ["number", "null"], "minimum": 0}),
        ),
    ] = None
    start_date: Annotated[
        str | None,
        text_attribute(
            "The first month: the asset gets monthly partitions, that of the running month among them. Without it the "
            "asset has none, and each materialization lands every month.",
            ["2026-01-01"],
        ),
    ] = None
    backfill_policy: ResolvedBackfillPolicy = dg.BackfillPolicy.single_run()
    checks: Annotated[
        UsageChecksBlock | None,
        dg.Resolver.default(description="How the check of the budget fails.", examples=[{"severity": "WARN"}]),
    ] = None
    sensor: Annotated[
        SensorBlock | None,
        dg.Resolver.default(
            description="Brings a sensor along that lands a month's last numbers when it has closed; none by default.",
            examples=[{"minimum_interval_seconds": 3600}],
        ),
    ] = None

    @field_validator("start_date")
    @classmethod
    def _is_day(cls, value: str | None) -> str | None:
        if value is None:
            return None
        text = f"{value}-01" if _MONTH.fullmatch(value) else value
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            raise ValueError(f"start_date is {value!r}: give the first day of a month, such as 2026-01-01.") from None

    @model_validator(mode="after")
    def _has_a_budget_to_check(self) -> Self:
        if self.checks is not None and self.budget is None:
            raise ValueError("checks has no budget to hold the report against: give budget.")
        try:
            self._checks(self.asset, "weblake")
        except InvalidOption as error:
            raise ValueError(f"budget: {error}") from None
        return self

    @property
    def request(self) -> UsageRequest:
        """Return the request of the component."""
        return UsageRequest(report=self.report, by_api_key=self.by_api_key, budget=self.budget)

    @property
    def partitions(self) -> dg.PartitionsDefinition[str] | None:
        """Return months, including the current one."""
        return None if self.start_date is None else dg.MonthlyPartitionsDefinition(self.start_date, end_offset=1)

    def _checks(self, asset: dg.AssetSpec, resource_key: str) -> list[dg.AssetChecksDefinition]:
        if self.budget is None:
            return []
        how = self.checks or UsageChecksBlock()
        found = build_usage_checks(
            asset,
            budget=self.budget,
            to=self.to,
            severity=dg.AssetCheckSeverity[how.severity],
            blocking=how.blocking,
            resource_key=resource_key,
        )
        return [found]

    def _sensors(self, assets: list[dg.AssetsDefinition], resource_key: str) -> list[dg.SensorDefinition]:
        if self.sensor is None:
            return []
        found = build_usage_closed_sensor(
            assets[0],
            minimum_interval_seconds=self.sensor.minimum_interval_seconds or 3600,
            default_status=self.sensor.status(),
            resource_key=resource_key,
        )
        return [found]
