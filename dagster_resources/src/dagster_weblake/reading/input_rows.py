"""Selection of the rows of an asset's input: the table, its root, and the loads or path keys of its partitions.

The content of an asset follows from its materializations, each of which names the load that it landed. If a load has
been replaced since, its replacement is read: the event of that one may have been lost with its run.

    documents, page_errors      the newest load of each requested partition
    usage_periods, activity     the files of the months and days that the partitions stand for
    landed outside Dagster      by the metadata of the asset or the input: `loads: table` for all of it, or `keys`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import dagster as dg

import weblake
from dagster_weblake.reading.materializations import Materializations
from dagster_weblake.templates import Part, filled
from weblake import orchestration
from weblake.errors import AskPerson, InvalidOption

#: The values of `loads`.
LATEST, ALL, TABLE = "latest", "all", "table"
#: The metadata of an asset that applies to all its inputs, as `weblake/table` and so on.
_OF_ASSET = ("table", "to", "report", "loads", "keys")
_LOAD_TABLES = ("documents", "page_errors")
#: For a table that is replaced whole: the path key of a partition, and the attribute of the partition that gives it.
_TIME_KEYS = {"usage_periods": ("period", "month"), "activity": ("activity_date", "day")}
#: Records of the ledger that are read at once; partitions that an error names.
_READERS, _NAMED = 16, 5


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to read."""

    table: str
    root: str
    columns: tuple[str, ...] | None = None
    #: Load ids; None for all loads.
    loads: tuple[str, ...] | None = None
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: The number of rows, if the ledger records it.
    count: int | None = None


def rows_of(context: dg.InputContext, root: str, storage_options: Mapping[str, object] | None) -> Rows:
    """Return the rows of an input; `root` is their root unless the metadata of the input or the asset name another one.

    Raises:
        AskPerson: A partition, or the asset, was never materialized; or its load is not in this root.
        InvalidOption: The metadata of the input or of the asset cannot be understood.
        StorageRefused: The ledger cannot be read.
    """
    asked = _asked(context)
    rows = Rows(
        _text(asked, "table") or "documents",
        _text(asked, "to") or root,
        None if asked.get("columns") is None else _texts("columns", asked["columns"]),
    )
    which = _text(asked, "loads") or LATEST
    if which not in (LATEST, ALL, TABLE):
        raise InvalidOption(f"The input's metadata says loads: {which!r}.", hint=f"Say {LATEST}, {ALL} or {TABLE}.")
    partitions = _partitions(context)
    parts = [Part()] if partitions is None else [Part.of(context.asset_partitions_def, key) for key in partitions]
    if asked.get("keys") is not None:
        return replace(rows, keys=_keys(asked["keys"], parts))
    if rows.table not in _LOAD_TABLES:
        missing = set() if which == TABLE else _never_materialized(context, asked, partitions or ())
        there = [part for part in parts if part.key is not None and part.key not in missing]
        return replace(rows, keys=_time_keys(rows.table, _text(asked, "report"), partitions is not None, there))
    if which == TABLE or not context.has_asset_key:
        return rows
    return _by_loads(context, rows, asked, which == ALL, storage_options)


def _by_loads(
    context: dg.InputContext, rows: Rows, asked: Mapping[str, object], every: bool, options: Mapping[str, object] | None
) -> Rows:
    partitions = _partitions(context)
    events = Materializations(context.instance, context.asset_key)
    found = {None: events.loads(every)} if partitions is None else events.loads_of(partitions, every)
    missing = [partition for partition, loads in found.items() if not loads]
    if partitions is None and missing and events.any():
        return rows  # the materialization names no load
    _check(context, asked, missing)
    dataset = orchestration.open_dataset(rows.root, storage_options=options)
    named = dict.fromkeys(load for loads in found.values() for load in loads)
    with ThreadPoolExecutor(_READERS) as readers:
        receipts = list(readers.map(lambda load: _current(dataset, load, context), named))
    counts = {each.load_id: _count(each, rows.table) for each in receipts}
    return replace(rows, loads=tuple(counts), count=sum(counts.values()))


def _never_materialized(
    context: dg.InputContext, asked: Mapping[str, object], partitions: Sequence[str]
) -> set[str | None]:
    if not partitions:
        return set()
    there = Materializations(context.instance, context.asset_key).materialized(partitions)
    missing = [partition for partition in partitions if partition not in there]
    _check(context, asked, missing)
    return set(missing)


def _time_keys(table: str, report: str | None, partitioned: bool, parts: Sequence[Part]) -> dict[str, Sequence[str]]:
    """Return the path keys of months or days; other tables have none that a partition could stand for."""
    keys: dict[str, Sequence[str]] = {"report": [report]} if report is not None else {}
    if partitioned and table in _TIME_KEYS:
        name, unit = _TIME_KEYS[table]
        keys[name] = [getattr(part, unit) for part in parts]
    return keys


def _current(dataset: orchestration.Dataset, load_id: str, context: dg.InputContext) -> weblake.Receipt:
    """Return the receipt of the load, or of the load that has replaced it."""
    load_id = dataset.ledger.standing(load_id)
    done = dataset.ledger.done(load_id)
    if done is None:
        raise AskPerson(
            f"Load {load_id} of {_name(context)} has not landed in {dataset.storage.url}.",
            hint="Its materialization says where it did (weblake/root): give the io manager that root, "
            'or the input: AssetIn(metadata={"to": "..."}).',
        )
    return weblake.Receipt.from_dict(done.receipt)


def _count(receipt: weblake.Receipt, table: str) -> int:
    return sum(file.rows for file in receipt.files if file.path.startswith(f"{table}/"))


def _check(context: dg.InputContext, asked: Mapping[str, object], missing: Sequence[str | None]) -> None:
    """Raise an error for missing partitions, unless the input allows them."""
    if not missing:
        return
    which = ""
    if missing != [None]:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        which = f" for {', '.join(str(partition) for partition in missing[:_NAMED])}{more}"
    text = f"{_name(context)} was never materialized{which}: no materialization says what it holds."
    if which and asked.get("allow_missing_partitions") is True:
        context.log.warning(f"{text} Left out, as the input's allow_missing_partitions says.")
        return
    leave = ', or give the input metadata {"allow_missing_partitions": True} to go on without' if which else ""
    outside = '{"weblake/keys": {"day": "{partition_key}"}}' if which else '{"weblake/loads": "table"}'
    raise AskPerson(
        text, hint=f"Materialize it first{leave}. If it is landed outside Dagster, give its spec metadata {outside}."
    )


def _partitions(context: dg.InputContext) -> list[str] | None:
    return list(context.asset_partition_keys) if context.has_asset_partitions else None


def _keys(given: object, parts: Sequence[Part]) -> dict[str, Sequence[str]]:
    """Return the values of path keys, for all requested partitions."""
    if not isinstance(given, Mapping):
        raise InvalidOption("The input's metadata `keys` is no mapping.", hint='Give {"period": "2026-11"}, say.')
    keys: dict[str, dict[str, None]] = {str(name): {} for name in given}
    for part in parts:
        for name, value in given.items():
            for text in _texts("keys", value):
                keys[name][filled(text, part)] = None
    return {name: list(values) for name, values in keys.items()}


def _asked(context: dg.InputContext) -> dict[str, object]:
    """Return the input's metadata, completed by the asset's, whose names begin with `weblake/`."""
    above = context.upstream_output
    spec = {} if above is None else _values(above.definition_metadata)
    of_asset = {name.removeprefix("weblake/"): value for name, value in spec.items() if name.startswith("weblake/")}
    return {name: of_asset[name] for name in _OF_ASSET if name in of_asset} | _values(context.definition_metadata)


def _values(metadata: Mapping[str, object] | None) -> dict[str, object]:
    """Return metadata as plain values."""
    return {
        name: value.value if isinstance(value, dg.MetadataValue) else value for name, value in (metadata or {}).items()
    }


def _text(values: Mapping[str, object], name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidOption(f"The metadata {name} is no text: {value!r}.", hint="Give a text.")
    return value or None


def _texts(name: str, value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [None]
    if not all(isinstance(each, str) for each in listed):
        raise InvalidOption(f"The input's metadata `{name}` is no text and no list of texts.", hint="Give such.")
    return tuple(listed)


def _name(context: dg.InputContext) -> str:
    return f"Asset {context.asset_key.to_user_string()}"
