"""The keyword arguments that the factory, the decorator and the specs share, and the check of their names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, TypedDict, cast

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


class StepOptions(TypedDict, total=False):
    """The execution options of an asset's steps; each has a default."""

    backfill_policy: dg.BackfillPolicy | None
    """How many partitions a run of a backfill takes; one by default. With several, all of their jobs are started
    before the first is waited for."""
    pool: str | None
    """The concurrency pool of the steps that talk to the service."""
    retry_policy: dg.RetryPolicy | None
    """Which failures are tried again: three times by default, after 15 s, 30 s and 60 s, and none that cannot help."""
    op_tags: Mapping[str, object] | None
    hooks: Set[dg.HookDefinition] | None
    resource_key: str
    """The key of the WeblakeResource; `weblake` by default."""


class AssetOptions(SpecOptions, StepOptions, total=False):
    """The keyword arguments of `build_weblake_assets` and `@weblake_assets`: those of the asset and of its steps."""


def check_names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Check the names of keyword arguments.

    Args:
        function: The function's name, for the message.
        given: The names that a caller used.
        known: The names that the function takes.

    Raises:
        TypeError: One of them is unknown; the message suggests the nearest known name.
    """
    names = sorted(set(known))
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"It takes {', '.join(names)}."
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {remedy}")


def spec_options(options: AssetOptions) -> SpecOptions:
    """Return the arguments that describe the asset."""
    return cast("SpecOptions", {name: options[name] for name in SpecOptions.__annotations__ if name in options})  # type: ignore[literal-required]


def step_options(options: AssetOptions) -> StepOptions:
    """Return the arguments that configure the steps."""
    return cast("StepOptions", {name: options[name] for name in StepOptions.__annotations__ if name in options})  # type: ignore[literal-required]


def with_options(spec: dg.AssetSpec, options: SpecOptions) -> dg.AssetSpec:
    """Return the spec with the arguments in it; tags, kinds and deps are added to those of the spec.

    Raises:
        DagsterInvalidDefinitionError: The spec and the arguments both give the same attribute.
    """
    changes: dict[str, Any] = {}
    for name in ("description", "group_name", "owners", "automation_condition"):
        value = options.get(name)
        if value is None:
            continue
        if getattr(spec, name):
            raise dg.DagsterInvalidDefinitionError(
                f"Asset {spec.key.to_user_string()!r}: {name} is given in its AssetSpec and as an argument. "
                "Give it in one place."
            )
        changes[name] = value
    if options.get("tags"):
        changes["tags"] = {**spec.tags, **(options["tags"] or {})}
    found = spec.replace_attributes(**changes) if changes else spec
    if options.get("kinds"):
        found = found.replace_attributes(kinds=found.kinds | set(options["kinds"] or ()))
    deps = list(_deps(options.get("deps") or ()))
    return found.merge_attributes(deps=deps) if deps else found


def _deps(given: Iterable[Any]) -> Iterable[Any]:
    for dep in given:
        if isinstance(dep, list) and dep and all(isinstance(each, dg.AssetsDefinition) for each in dep):
            # With wait="sensor" there are two assets; this is the one that holds the data.
            yield from (spec.key for each in dep for spec in each.specs if "weblake/starts" not in spec.metadata)
        else:
            yield dep
