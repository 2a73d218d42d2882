"""The attributes that all components share: their form in a defs.yaml, and their conversion to Python values.

Errors have the line that they are about. Dagster resolves every text, and reads the result as a Python literal:
`"2026"` would become a number. `fill_templates` resolves only texts that hold a template, and leaves secrets to the
run. A variable that is not set is an error that names it: Dagster itself reads it as null, so that a limit would be
lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Self, cast

import dagster as dg
from dagster.components.resolved import core_models as core
from pydantic import BaseModel, ConfigDict, ValidationError

from dagster_weblake.resource import WeblakeResource
from weblake import orchestration
from weblake.errors import InvalidOption

_TEMPLATE = re.compile(r"\{\{|\{%")
_VARIABLE = re.compile(r"\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}")


class Block(dg.Resolvable, dg.Model):
    """A block of a defs.yaml, whose errors name its lines."""

    # Messages contain no values: options may hold cookies.
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, hide_input_in_errors=True)

    #: Attributes that may hold variables which are looked up when a run needs them.
    late: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        """Add the attributes with their descriptions to the docstring of the class."""
        super().__pydantic_init_subclass__(**more)
        orchestration.document(cls, fields=cls.model_fields)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the block from its model; raise errors with the line of the defs.yaml."""
        for name in model.model_fields_set - cls.late:
            check_variables(context.at_path(name), getattr(model, name))
        try:
            return cast("Self", super().resolve_from_model(context, model))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        text = str(cause or first["msg"])
        # The message of an error about several attributes begins with one of them, or is about the options.
        word = text.partition(" ")[0].rstrip(":")
        named = [word] if word in model.model_fields_set else ["options"] if isinstance(cause, InvalidOption) else []
        for part in first["loc"] or named:
            context = context.at_path(part)
        raise resolution_error(context, text)


def resolution_error(context: dg.ResolutionContext, text: str) -> Exception:
    """Return the error of a value that has to be corrected: its line and the text.

    Dagster adds a traceback to every error that is raised while it resolves an attribute, except to its own.
    """
    return context.build_resolve_fn_exc([text], str(context.path[-1]) if context.path else "", _Attributes())


class _Attributes(BaseModel):
    """The name of the attributes in messages."""


def check_variables(context: dg.ResolutionContext, value: object) -> None:
    """Check that each `{{ env.NAME }}` in a value, at any depth, names a variable that is set.

    Raises:
        ResolutionException: One is not set; the message names it and its line.
    """
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in value.model_fields_set}
    if isinstance(value, Mapping):
        for name, each in value.items():
            check_variables(context.at_path(str(name)), each)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            check_variables(context.at_path(index), each)
    elif isinstance(value, str):
        for name in _VARIABLE.findall(value):
            if name not in os.environ:
                attribute = next((part for part in reversed(context.path) if isinstance(part, str)), "the component")
                raise resolution_error(
                    context, f"The environment variable {name} is not set, and {attribute} needs it."
                )


def fill_templates(context: dg.ResolutionContext, value: object, *, late: bool = False) -> object:
    """Return the value with its templates filled in, at any depth.

    With `late`, and in headers, a text that is only `{{ env.NAME }}` becomes an EnvVar, which the run looks up: it may
    be a secret, or may not be set on a machine that only loads the code.

    Raises:
        ResolutionException: `{{ env.NAME }}` names a variable that is not set.
    """
    if isinstance(value, Mapping):
        return {
            name: fill_templates(context.at_path(str(name)), each, late=late or name == "headers")
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [fill_templates(context.at_path(index), each, late=late) for index, each in enumerate(value)]
    if not isinstance(value, str) or not _TEMPLATE.search(value):
        return value
    alone = _VARIABLE.fullmatch(value.strip())
    if alone is not None and late:
        return dg.EnvVar(alone[1])
    check_variables(context, value)
    return context.resolve_value(value, as_type=object)


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
    given: dict[str, Any] = {
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
    found = orchestration.duration(value) or orchestration.duration(f"{value}s")  # a number has no unit
    if found is None:
        raise ValueError(f"{value!r} is not a duration. Give seconds, or a text such as 90m, 6h or 2d.")
    return found


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
