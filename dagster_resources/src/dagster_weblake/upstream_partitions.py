"""Selection of the URLs of one partition from an input that was loaded for several upstream partitions.

IO managers pass such an input as a mapping by the keys of the upstream partitions. These keys can be equal to keys of
the asset's own partitions and mean something else: a week has the key of its first day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import dagster as dg

from dagster_weblake.templates import Part
from dagster_weblake.url_inputs import urls_of_all
from weblake.errors import InvalidOption


def urls_of_part(
    context: dg.AssetExecutionContext, key: dg.AssetKey, part: Part, given: object, column: str | None
) -> object:
    """Return what an input has for one partition of the asset: the URLs of all upstream partitions that belong to it.

    A value that is no mapping of an input's partitions is returned unchanged.

    Raises:
        InvalidOption: The input has no value for this partition.
    """
    if not isinstance(given, Mapping):
        for name in _inputs_of_one_partition(context):
            if not _keys_of_part(context, key, part, name):
                raise _no_value(context, part, name)
        return given
    if not given:
        return given
    upstream = next((name for name in _partitioned(context) if set(given) <= set(_keys(context, name))), None)
    if upstream is None:
        return given
    own = _keys_of_part(context, key, part, upstream)
    values = [value for name, value in given.items() if name in own]
    if not values:
        raise _no_value(context, part, upstream)
    return values[0] if len(values) == 1 else urls_of_all(values, column)


def _no_value(context: dg.AssetExecutionContext, part: Part, name: str) -> InvalidOption:
    upstream = context.asset_key_for_input(name).to_user_string()
    return InvalidOption(
        f"The input {name} has no value for the partition {part.key!r}.",
        hint=f"Materialize {upstream} for it first; or leave the partition out, if no partition of {upstream} belongs "
        "to it.",
    )


def _inputs_of_one_partition(context: dg.AssetExecutionContext) -> list[str]:
    """Return the step's input if it has only one with partitions, and that one is the value of a single partition.

    It is no mapping then, and may belong to some of the asset's partitions only.
    """
    names = list(_partitioned(context))
    return names if len(names) == 1 and len(_keys(context, names[0])) == 1 else []


def _partitioned(context: dg.AssetExecutionContext) -> Iterator[str]:
    """Yield the names of the step's inputs that have a value and partitions."""
    for name, each in context.op_def.ins.items():
        if each.dagster_type.is_nothing:
            continue
        try:
            context.asset_partitions_def_for_input(name)
        except dg.DagsterInvariantViolationError:
            continue
        yield name


def _keys(context: dg.AssetExecutionContext, name: str) -> Collection[str]:
    return list(context.asset_partition_keys_for_input(name))


def _keys_of_part(context: dg.AssetExecutionContext, key: dg.AssetKey, part: Part, name: str) -> Collection[str]:
    """Return the keys of the upstream partitions that belong to one partition of the asset."""
    definition = context.assets_def.specs_by_key[key].partitions_def
    if definition is None or part.key is None or len(context.partition_keys) == 1:
        return _keys(context, name)
    upstream = context.asset_partitions_def_for_input(name)
    mapping = context.assets_def.infer_partition_mapping(key, context.asset_key_for_input(name), upstream)
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        definition.subset_with_partition_keys([part.key]),
        definition,
        upstream,
        dynamic_partitions_store=context.instance,
    )
    return set(found.partitions_subset.get_partition_keys())
