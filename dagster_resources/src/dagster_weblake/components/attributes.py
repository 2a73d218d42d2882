"""The attributes that all components share: their form in a defs.yaml, and their conversion to Python values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

import dagster as dg
from dagster.components.resolved import core_models as core
from pydantic import ValidationError

from dagster_weblake.components.block import Block, fill_templates, resolution_error
from dagster_weblake.resource import WeblakeResource

_DURATION = re.compile(r"(?:([\d.]+)d)?(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?")


def doc(description: str, example: object) -> dg.Resolver:
    """Return Dagster's default resolver with a description and an example of the attribute."""
    resolver: dg.Resolver = dg.Resolver.default(description=description, examples=[example])
    return resolver


class RetryBlock(Block):
    """The arguments of a `dg.RetryPolicy`; failures that a retry cannot resolve are never retried."""

    max_retries: int = 3
    delay: float = 15.0
    backoff: dg.Backoff | None = dg.Backoff.EXPONENTIAL
    jitter: dg.Jitter | None = dg.Jitter.PLUS_MINUS


def _asset_of(context: dg.ResolutionContext, value: object) -> dg.AssetSpec:
    if isinstance(value, str):
        return dg.AssetSpec(dg.AssetKey.from_user_string(value))
    found: dg.AssetSpec = core.resolve_asset_spec(context, value)
    return found


def _retries_of(context: dg.ResolutionContext, value: Any) -> dg.RetryPolicy | None:
    return None if value is None else dg.RetryPolicy(**dict(RetryBlock.resolve_from_model(context, value)))


def _resource_of(context: dg.ResolutionContext, value: Mapping[str, object] | None) -> WeblakeResource | None:
    if value is None:
        return None
    given = {
        name: fill_templates(context.at_path(name), each, late=name != "storage_options")
        for name, each in value.items()
    }
    try:
        return WeblakeResource(**{name: each for name, each in given.items() if each is not None})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise resolution_error(context, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _deadline_of(context: dg.ResolutionContext, value: object) -> timedelta:
    try:
        return duration(value)
    except ValueError as error:
        raise resolution_error(context, str(error)) from None


def duration(value: object) -> timedelta:
    """Return a duration from seconds, or from a text such as `90m`, `6h`, `1h30m` or `2d`.

    Raises:
        ValueError: It is no duration, or not above zero.
    """
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        parts = _DURATION.fullmatch(str(value).strip())
        names = ("days", "hours", "minutes", "seconds")
        if parts is not None:
            value = timedelta(**{name: float(part) for name, part in zip(names, parts.groups(), strict=True) if part})
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise ValueError(f"{value!r} is not a duration. Give seconds, or a text such as 90m, 6h or 2d.")
    return value


ResolvedAsset = Annotated[
    dg.AssetSpec,
    dg.Resolver(
        _asset_of,
        model_field_type=core.AssetSpecKwargs.model(),
        description="The asset: its key, or a block with key, group_name, owners, tags, description, deps, "
        "partitions_def, automation_condition, freshness_policy and other attributes of an asset.",
        examples=["docs", {"key": "web/docs", "group_name": "web", "owners": ["team:data"]}],
    ),
]
ResolvedBackfillPolicy = Annotated[
    dg.BackfillPolicy | None,
    dg.Resolver(
        core.resolve_backfill_policy,
        model_field_type=core.SingleRunBackfillPolicyModel | core.MultiRunBackfillPolicyModel | None,
        description="The number of partitions in each run of a backfill.",
        examples=[{"type": "single_run"}, {"type": "multi_run", "max_partitions_per_run": 10}],
    ),
]
ResolvedRetryPolicy = Annotated[
    dg.RetryPolicy | None,
    dg.Resolver(
        _retries_of,
        model_field_type=RetryBlock.model() | None,
        description="The retry policy of the steps. Default: three retries, after 15 s, 30 s and 60 s. null: none.",
        examples=[{"max_retries": 5, "delay": 30}],
    ),
]
ResolvedResource = Annotated[
    WeblakeResource | None,
    dg.Resolver(
        _resource_of,
        model_field_type=dict[str, Any] | None,
        description="A resource for this component only, if the project has none under `resource_key`.",
        examples=[{"api_key": "{{ env.WEBLAKE_API_KEY }}", "root": "s3://lake/web"}],
        json_schema_extra={
            "properties": {
                name: {"description": each.description} for name, each in WeblakeResource.model_fields.items()
            },
            "additionalProperties": False,
        },
    ),
]
ResolvedDeadline = Annotated[
    timedelta,
    dg.Resolver(
        _deadline_of,
        model_field_type=str | float,
        description="The time limit of the load, including retries: seconds, or a text such as 90m or 6h. Then its job "
        "is cancelled. Default: one day.",
        examples=["6h", 3600],
    ),
]
