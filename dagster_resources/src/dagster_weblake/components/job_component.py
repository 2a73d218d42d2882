"""The attributes that the crawl and batch components share: limits, tolerances, waiting and document checks."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, TypedDict

import dagster as dg
from pydantic import field_validator, model_validator
from typing_extensions import Self

from dagster_weblake.checks import build_document_checks
from dagster_weblake.components.attributes import (
    DURATION_SCHEMA,
    ResolvedPartitions,
    SensorBlock,
    duration,
    mapping_attribute,
)
from dagster_weblake.components.component import LandingComponent
from dagster_weblake.components.option_schema import templated
from dagster_weblake.components.placing import Block
from dagster_weblake.components.templating import filled_in, mistakes
from dagster_weblake.sensors import build_collect_sensor
from dagster_weblake.specs import Wait
from weblake.errors import InvalidOption

_SHARE = templated({"type": "number", "minimum": 0, "maximum": 1})
_AMOUNT = templated({"type": ["number", "null"], "minimum": 0})


class DocumentChecksBlock(Block):
    """Checks of the documents that have landed, computed from storage alone; see `build_document_checks`."""

    min_rows: Annotated[int, dg.Resolver.default(description="Documents at least.", examples=[1])] = 1
    max_error_ratio: Annotated[
        float,
        dg.Resolver.default(
            description="The share of pages that may have failed.", examples=[0.1], json_schema_extra=_SHARE
        ),
    ] = 0.1
    max_duplicate_urls: Annotated[
        int, dg.Resolver.default(description="Rows that may have the URL of another one.", examples=[0])
    ] = 0
    max_credits: Annotated[
        float | None,
        dg.Resolver.default(
            description="What the job may have cost; the component's own `max_credits` by default.",
            examples=[500],
            json_schema_extra=_AMOUNT,
        ),
    ] = None
    only: Annotated[
        list[str] | None,
        dg.Resolver.default(
            description="The names of those that are wanted; all by default.", examples=[["error_ratio"]]
        ),
    ] = None
    severity: Annotated[
        Literal["ERROR", "WARN"],
        dg.Resolver.default(
            description="Of a check that fails.", json_schema_extra=templated({"enum": ["ERROR", "WARN"]})
        ),
    ] = "ERROR"
    blocking: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether a failed one keeps assets downstream from being materialized.", examples=[True]
        ),
    ] = False


class Terms(TypedDict):
    """The limits and tolerances of a request."""

    partition: Mapping[str, str] | None
    allow_partial: bool
    missing_ratio: float
    fail_ratio: float
    max_credits: float | None
    deadline: timedelta
    poll_interval: float


def _deadline_of(context: dg.ResolutionContext, value: object) -> timedelta:
    found = filled_in(context, value)
    with mistakes(context):
        return duration(found)


class JobComponent(LandingComponent, ABC):
    """Pages of a job, landed in `documents`."""

    wait: Annotated[
        Wait,
        dg.Resolver.default(
            description="step: the step waits for its job. sensor: `<key>_job` starts it, a sensor sees its end, and "
            "`<key>` lands it, so that nothing waits.",
            examples=["sensor"],
            json_schema_extra=templated({"enum": ["step", "sensor"]}),
        ),
    ] = "step"
    partitions_def: ResolvedPartitions = None
    partition: Annotated[
        dict[str, str] | None,
        mapping_attribute(
            "Path keys of the dataset in place of load_date, the same for all assets of a root.",
            [{"day": "{partition_key}"}],
        ),
    ] = None
    allow_partial: Annotated[
        bool,
        dg.Resolver.default(
            description="Stores what there is of a load that does not add up.",
            examples=[True],
            json_schema_extra=templated({"type": "boolean"}),
        ),
    ] = False
    missing_ratio: Annotated[
        float,
        dg.Resolver.default(
            description="The share of submitted URLs that may be missing.", examples=[0.05], json_schema_extra=_SHARE
        ),
    ] = 0.0
    fail_ratio: Annotated[
        float,
        dg.Resolver.default(
            description="The share of pages that may have failed before the load is refused.",
            examples=[0.2],
            json_schema_extra=_SHARE,
        ),
    ] = 1.0
    max_credits: Annotated[
        float | None,
        dg.Resolver.default(
            description="Refuses to start what would cost more, and cancels a job that passes it.",
            examples=[500],
            json_schema_extra=_AMOUNT,
        ),
    ] = None
    deadline: Annotated[
        timedelta,
        dg.Resolver(
            _deadline_of,
            model_field_type=str | float,
            description="How long the load may take in all, retries included: seconds, or a text such as 90m or 6h. "
            "Then its job is cancelled. A day by default.",
            examples=["6h", 3600],
            json_schema_extra=DURATION_SCHEMA,
        ),
    ] = timedelta(hours=24)
    poll_interval: Annotated[
        float,
        dg.Resolver.default(
            description="Seconds between status polls at most.",
            examples=[10],
            json_schema_extra=templated({"type": "number", "exclusiveMinimum": 0}),
        ),
    ] = 10.0
    checks: Annotated[
        DocumentChecksBlock | None,
        dg.Resolver.default(
            description="Checks of what has landed; none by default, all of them with {}.",
            examples=[{"min_rows": 100, "max_error_ratio": 0.05}],
        ),
    ] = None
    sensor: Annotated[
        SensorBlock | None,
        dg.Resolver.default(
            description="With wait: sensor, the sensor that comes along. null: none, where one of your own collects "
            "for several assets.",
            examples=[{"minimum_interval_seconds": 60}],
        ),
    ] = SensorBlock()

    @field_validator("deadline", mode="before")
    @classmethod
    def _is_duration(cls, value: object) -> timedelta:
        return duration(value)

    @model_validator(mode="after")
    def _has_checks_that_can_be_built(self) -> Self:
        try:
            self._checks(self.asset, "weblake")
        except InvalidOption as error:
            raise ValueError(f"checks: {error}") from None
        return self

    @property
    def waiting(self) -> Wait:
        """Return the value of the attribute."""
        return self.wait

    @property
    def partitions(self) -> dg.PartitionsDefinition[str] | None:
        """Return the value of the attribute."""
        return self.partitions_def

    @property
    def terms(self) -> Terms:
        """Return the limits and tolerances of the request."""
        return Terms(
            partition=self.partition,
            allow_partial=self.allow_partial,
            missing_ratio=self.missing_ratio,
            fail_ratio=self.fail_ratio,
            max_credits=self.max_credits,
            deadline=self.deadline,
            poll_interval=self.poll_interval,
        )

    def _checks(self, asset: dg.AssetSpec, resource_key: str) -> list[dg.AssetChecksDefinition]:
        if self.checks is None:
            return []
        most = self.max_credits if self.checks.max_credits is None else self.checks.max_credits
        found = build_document_checks(
            asset,
            to=self.to,
            min_rows=self.checks.min_rows,
            max_error_ratio=self.checks.max_error_ratio,
            max_duplicate_urls=self.checks.max_duplicate_urls,
            max_credits=most,
            severity=dg.AssetCheckSeverity[self.checks.severity],
            blocking=self.checks.blocking,
            checks=self.checks.only,
            resource_key=resource_key,
        )
        return [found]

    def _sensors(self, assets: list[dg.AssetsDefinition], resource_key: str) -> list[dg.SensorDefinition]:
        if self.wait == "step" or self.sensor is None:
            return []
        found = build_collect_sensor(
            assets,
            minimum_interval_seconds=self.sensor.minimum_interval_seconds or 30,
            default_status=self.sensor.status(),
            resource_key=resource_key,
        )
        return [found]
