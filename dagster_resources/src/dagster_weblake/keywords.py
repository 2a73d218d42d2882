"""The keyword arguments that the factory, the decorator and the specs share, and the check of their names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, TypedDict

import dagster as dg


class SpecOptions(TypedDict, total=False):
    """The catalog options of an asset, with the meanings that they have in `dg.asset`.

    With `wait="sensor"` the deps and the automation condition belong to `<asset>_job`, which starts the job.
    """

    description: str | None
    deps: Iterable[Any] | None
    """Upstream assets that are not read: in any form that Dagster takes, or the list that `build_weblake_assets`
    returns for one asset."""
    group_name: str | None
    owners: Sequence[str] | None
    tags: Mapping[str, str] | None
    kinds: Set[str] | None
    """In addition to `weblake`, `parquet` and the kind of storage."""
    automation_condition: dg.AutomationCondition[Any] | None
    freshness_policy: dg.FreshnessPolicy | None
    metadata: Mapping[str, Any] | None


class StepOptions(TypedDict, total=False):
    """The execution options of an asset's steps, with the meanings that they have in `dg.multi_asset`."""

    backfill_policy: dg.BackfillPolicy | None
    """Default: one partition in each run. A run of several starts all of their jobs before it waits for the first."""
    pool: str | None
    """The concurrency pool of the steps that call the service."""
    retry_policy: dg.RetryPolicy | None
    """Default: DEFAULT_RETRIES."""
    op_tags: Mapping[str, object] | None
    hooks: Set[dg.HookDefinition] | None
    resource_key: str
    """The key of the WeblakeResource; default `weblake`."""


class AssetOptions(SpecOptions, StepOptions, total=False):
    """The keyword arguments of every builder of assets: those of the asset and of its steps."""


def check_names(function: Callable[..., object], options: Mapping[str, Any], known: type) -> None:
    """Check the names of a function's keyword arguments against its parameters and a TypedDict.

    Raises:
        TypeError: One of them is unknown; the message suggests the nearest known name.
    """
    names = sorted({*inspect.signature(function).parameters, *known.__annotations__} - {"options"})
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.8)
            remedy = f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(names)}."
            if name in inspect.signature(dg.AssetSpec).parameters:
                remedy = f"Give a dg.AssetSpec with {name} as the asset."
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}. {remedy}")


def chosen(options: AssetOptions, kind: type) -> Any:
    """Return those of the arguments that a TypedDict has."""
    return {name: value for name, value in options.items() if name in kind.__annotations__}


def with_options(spec: dg.AssetSpec, options: SpecOptions) -> dg.AssetSpec:
    """Return the spec with the arguments in it; tags, kinds, metadata and deps are added to those of the spec.

    Raises:
        DagsterInvalidDefinitionError: The spec and the arguments both give the same attribute.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    merged = {name: given.pop(name) for name in ("tags", "kinds", "metadata") if name in given}
    deps = list(_deps(given.pop("deps", ())))
    for name in given:
        if getattr(spec, name):
            raise dg.DagsterInvalidDefinitionError(
                f"Asset {spec.key.to_user_string()!r}: {name} is given in its AssetSpec and as an argument. "
                "Give it in one place."
            )
    return spec.replace_attributes(**given).merge_attributes(deps=deps or ..., **merged)


def _deps(given: Iterable[Any]) -> Iterable[Any]:
    for dep in given:
        if isinstance(dep, list) and dep and all(isinstance(each, dg.AssetsDefinition) for each in dep):
            # With wait="sensor" there are two assets; this is the one that holds the data.
            yield from (spec.key for each in dep for spec in each.specs if "weblake/starts" not in spec.metadata)
        else:
            yield dep
