"""The attributes that several components share: their form in a defs.yaml, and their conversion to Python values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal

import dagster as dg
from dagster.components.resolved import core_models as core
from pydantic import BaseModel, Discriminator, Field

from dagster_weblake.components.option_schema import in_place_of_union, tagged_blocks, templated
from dagster_weblake.components.placing import Block
from dagster_weblake.components.templating import filled_in, mistake, text_or_variable
from dagster_weblake.resource import WeblakeResource

#: The pattern with which `dg check yaml` checks a duration; `duration` is exact.
DURATION_SCHEMA = in_place_of_union(
    templated(
        {
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": r"^\s*([0-9.]+[dhms])+\s*$|^\s*[0-9.]+\s*$",
        }
    )
)
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


class RetryBlock(Block):
    """Which failures are retried, and when; failures that a retry cannot resolve are never retried."""

    max_retries: Annotated[int, dg.Resolver.default(description="How often at most.", examples=[3])] = 3
    delay: Annotated[float, dg.Resolver.default(description="Seconds before the first retry.", examples=[15])] = 15.0
    backoff: Annotated[
        Literal["exponential", "linear"] | None,
        dg.Resolver.default(
            description="How the pauses grow; null: not at all.",
            json_schema_extra=templated({"enum": ["exponential", "linear", None]}),
        ),
    ] = "exponential"
    jitter: Annotated[
        Literal["full", "plus_minus"] | None,
        dg.Resolver.default(
            description="How chance spreads them.", json_schema_extra=templated({"enum": ["full", "plus_minus", None]})
        ),
    ] = "plus_minus"

    def policy(self) -> dg.RetryPolicy:
        """Return the block as Dagster's RetryPolicy."""
        return dg.RetryPolicy(
            max_retries=self.max_retries,
            delay=self.delay,
            backoff=dg.Backoff[self.backoff.upper()] if self.backoff else None,
            jitter=dg.Jitter[self.jitter.upper()] if self.jitter else None,
        )


class MonthlyPartitions(dg.Model):
    """A partition for each month."""

    type: Literal["monthly"] = "monthly"
    start_date: str = Field(description="The first month.", examples=["2026-01-01"])
    end_date: str | None = None
    timezone: str | None = None
    minute_offset: int = 0
    hour_offset: int = 0
    day_offset: int = 1
    end_offset: int = Field(0, description="1: the month that is running is a partition, too.", examples=[1])


class DynamicPartitions(dg.Model):
    """Partitions that come and go while Dagster runs, such as sites."""

    type: Literal["dynamic"] = "dynamic"
    name: str = Field(description="The name of the set.", examples=["sites"])


class SensorBlock(Block):
    """A sensor that a component brings along."""

    minimum_interval_seconds: Annotated[
        int | None,
        dg.Resolver.default(
            description="Seconds between two ticks at least; by default 30, and an hour for usage.", examples=[60]
        ),
    ] = None
    default_status: Annotated[
        Literal["RUNNING", "STOPPED"],
        dg.Resolver.default(
            description="Whether it runs from the start, or from when somebody switches it on.",
            json_schema_extra=templated({"enum": ["RUNNING", "STOPPED"]}),
        ),
    ] = "RUNNING"

    def status(self) -> dg.DefaultSensorStatus:
        """Return the block as Dagster's DefaultSensorStatus."""
        return dg.DefaultSensorStatus[self.default_status]


class ResourceBlock(dg.Model):
    """A WeblakeResource of the component's own. `{{ env.NAME }}` is looked up when a run needs it."""

    base_url: str | None = Field(None, description="The service.", examples=["{{ env.WEBLAKE_BASE_URL }}"])
    api_key: str | None = Field(None, description="Its API key.", examples=["{{ env.WEBLAKE_API_KEY }}"])
    root: str | None = Field(None, description="Where data land.", examples=["{{ env.WEBLAKE_ROOT }}", "s3://lake/web"])
    storage_options: dict[str, object] | None = Field(
        None, description="For the file system of a storage URL, as fsspec takes them."
    )
    insecure: bool | str | None = Field(None, description="Allows plain http beyond loopback.")
    job_page: str | None = Field(
        None,
        description="Where people look at a job, with {kind} and {job_id}.",
        examples=["https://app.example.com/jobs/{kind}/{job_id}"],
    )
    call_timeout_s: float | str | None = Field(None, description="Seconds for which one call is tried.")
    proxy: str | None = Field(
        None, description="URL of a proxy, with its user name and password.", examples=["{{ env.WEBLAKE_PROXY }}"]
    )
    ca_bundle: str | None = Field(
        None, description="PEM file of the certificate authorities to trust.", examples=["/etc/ssl/company-ca.pem"]
    )
    client_certificate: str | None = Field(None, description="PEM file, for services that want mutual TLS.")
    client_key: str | None = Field(None, description="PEM file with the key of the client certificate.")


def _asset_of(context: dg.ResolutionContext, value: object) -> dg.AssetSpec:
    if isinstance(value, str):
        return dg.AssetSpec(dg.AssetKey.from_user_string(value))
    found: dg.AssetSpec = core.resolve_asset_spec(context, value)
    return found


def _partitions_of(context: dg.ResolutionContext, value: object) -> dg.PartitionsDefinition[str] | None:
    if isinstance(value, BaseModel):
        value = type(value).model_validate(filled_in(context, value.model_dump(exclude_unset=True)))
    if isinstance(value, MonthlyPartitions):
        return dg.MonthlyPartitionsDefinition(**value.model_dump(exclude={"type"}))
    if isinstance(value, DynamicPartitions):
        return dg.DynamicPartitionsDefinition(name=value.name)
    if isinstance(value, str):
        raise mistake(context, f"{value!r} is no partitions definition. Give a block with a `type`, or a template.")
    return core.resolve_partitions_def(context, value)


def _retries_of(context: dg.ResolutionContext, value: object) -> dg.RetryPolicy | None:
    return None if value is None else RetryBlock.resolve_from_model(context, value).policy()  # type: ignore[arg-type]


def _resource_of(context: dg.ResolutionContext, value: object) -> WeblakeResource | None:
    if value is None:
        return None
    assert isinstance(value, ResourceBlock)
    values = {name: getattr(value, name) for name in value.model_fields_set}
    options = values.pop("storage_options", None)
    given = {name: text_or_variable(context.at_path(name), each) for name, each in values.items() if each is not None}
    if options is not None:
        given["storage_options"] = filled_in(context.at_path("storage_options"), options)
    return WeblakeResource(**given)


def duration(value: object) -> timedelta:
    """Return a duration from seconds, or from a text such as `90m`, `6h`, `1h30m` or `2d`.

    Raises:
        ValueError: It is no duration, or not above zero.
    """
    found = value
    if isinstance(value, str):
        parts = _DURATION.fullmatch(value.strip())
        if parts is not None and any(parts.groups()):
            days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
            found = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        else:
            found = float(value) if value.replace(".", "", 1).isdigit() else None
    if isinstance(found, int | float) and not isinstance(found, bool):
        found = timedelta(seconds=found)
    if not isinstance(found, timedelta) or found <= timedelta(0):
        raise ValueError(f"{value!r} is no length of time. Give seconds, or a text such as 90m, 6h or 2d.")
    return found


def urls_of_yaml(context: dg.ResolutionContext, value: object) -> object:
    """Return the URLs of a defs.yaml: a list, or a file; a relative path is resolved beside the defs.yaml."""
    found = filled_in(context, value)
    if not isinstance(found, str) or "://" in found:
        return found
    return str(context.resolve_source_relative_path(found))


_Partitions = Annotated[
    core.HourlyPartitionsDefinitionModel
    | core.DailyPartitionsDefinitionModel
    | core.WeeklyPartitionsDefinitionModel
    | MonthlyPartitions
    | core.TimeWindowPartitionsDefinitionModel
    | core.StaticPartitionsDefinitionModel
    | DynamicPartitions,
    Discriminator("type"),
]
_Backfills = Annotated[core.SingleRunBackfillPolicyModel | core.MultiRunBackfillPolicyModel, Discriminator("type")]

ResolvedAsset = Annotated[
    dg.AssetSpec,
    dg.Resolver(
        _asset_of,
        model_field_type=core.AssetSpecKwargs.model(),
        description="The asset: its key, or a block with key, group_name, owners, tags, description, deps, "
        "automation_condition, freshness_policy and the like.",
        examples=["docs", {"key": "web/docs", "group_name": "web", "owners": ["team:data"]}],
    ),
]
ResolvedPartitions = Annotated[
    dg.PartitionsDefinition | None,
    dg.Resolver(
        _partitions_of,
        model_field_type=_Partitions | None,
        json_schema_extra=tagged_blocks(_Partitions),
        description="The asset's partitions: hourly, daily, weekly, monthly, time_window, static or dynamic.",
        examples=[
            {"type": "daily", "start_date": "2026-11-01"},
            {"type": "monthly", "start_date": "2026-01-01"},
            {"type": "static", "partition_keys": ["docs.example.com"]},
            {"type": "dynamic", "name": "sites"},
        ],
    ),
]
ResolvedBackfillPolicy = Annotated[
    dg.BackfillPolicy | None,
    dg.Resolver(
        core.resolve_backfill_policy,
        model_field_type=_Backfills | None,
        json_schema_extra=tagged_blocks(_Backfills),
        description="How many partitions a run of a backfill takes.",
        examples=[{"type": "single_run"}, {"type": "multi_run", "max_partitions_per_run": 10}],
    ),
]
ResolvedRetryPolicy = Annotated[
    dg.RetryPolicy | None,
    dg.Resolver(
        _retries_of,
        model_field_type=RetryBlock.model() | None,
        description="Which failures are tried again: three times by default, after 15 s, 30 s and 60 s. null: none.",
        examples=[{"max_retries": 5, "delay": 30}],
    ),
]
ResolvedResource = Annotated[
    WeblakeResource | None,
    dg.Resolver(
        _resource_of,
        model_field_type=ResourceBlock | None,
        description="A resource of the component's own, where the project provides none under `resource_key`.",
        examples=[{"api_key": "{{ env.WEBLAKE_API_KEY }}", "root": "s3://lake/web"}],
    ),
]


def _text(context: dg.ResolutionContext, value: object) -> object:
    return filled_in(context, value)


def text_attribute(description: str, examples: list[str], *, is_needed: bool = False) -> dg.Resolver:
    """Return the resolver of an attribute that is a text."""
    kind = str if is_needed else str | None
    return dg.Resolver(
        _text, model_field_type=kind, inject_before_resolve=False, description=description, examples=examples
    )


def mapping_attribute(description: str, examples: list[Mapping[str, object]]) -> dg.Resolver:
    """Return the resolver of an attribute that is an object of texts."""
    return dg.Resolver(
        _text,
        model_field_type=dict[str, str] | None,
        inject_before_resolve=False,
        description=description,
        examples=list(examples),
    )
