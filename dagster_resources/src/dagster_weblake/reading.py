"""The IO manager that passes landed data to assets downstream, as Arrow, pandas or Polars, eagerly or lazily.

It only reads: the assets of this package land by themselves and return no value. The content of an asset follows from
its materializations, each of which names the load that it landed. If a load has been replaced since, its replacement is
read: the event of that one may have been lost with its run.

    documents, page_errors      the newest load of each requested partition
    usage_periods, activity     the files of the months and days that the partitions stand for
    landed outside Dagster      all of the table, if the metadata of the asset or the input says `loads: table`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
from pydantic import Field

import weblake
from dagster_weblake import secret_config
from dagster_weblake.failures import facts_of, in_dagster_terms
from dagster_weblake.metadata import named_loads
from dagster_weblake.templates import Part
from weblake import orchestration
from weblake.errors import AskPerson, InvalidOption, StorageRefused, WeblakeError

#: The names of an input's annotation, by the library and its public class; libraries move their classes between
#: internal modules.
_FORMS: dict[tuple[str, str], Callable[[weblake.Reading], object]] = {
    ("pyarrow", "Table"): lambda reading: reading.to_table(),
    ("pyarrow", "Dataset"): lambda reading: reading.to_dataset(),
    ("pyarrow", "RecordBatchReader"): lambda reading: reading.to_reader(),
    ("pandas", "DataFrame"): lambda reading: reading.to_pandas(),
    ("polars", "DataFrame"): lambda reading: reading.to_polars(),
    ("polars", "LazyFrame"): lambda reading: reading.to_polars_lazy(),
    ("weblake", "Reading"): lambda reading: reading,
}
_NAMES = (
    "pyarrow.Table, pyarrow.dataset.Dataset, pyarrow.RecordBatchReader, pandas.DataFrame, polars.DataFrame, "
    "polars.LazyFrame, weblake.Reading, or nothing for a pyarrow.Table"
)
#: How often the loads of an input are selected if other runs replace them while they are read.
_SELECTIONS = 3
#: The values of `loads`.
LATEST, ALL, TABLE = "latest", "all", "table"
#: Metadata of an input, and metadata of an asset that applies to all its inputs, as `weblake/table` and so on.
_OF_INPUT = ("table", "columns", "loads", "version", "allow_missing_partitions")
_OF_ASSET = ("table", "to", "report", "loads", "version")
_LOAD_TABLES = ("documents", "page_errors")
#: For a table that is replaced whole: the path key of a partition, and the attribute of the partition that gives it.
_TIME_KEYS = {"usage_periods": ("period", "month"), "activity": ("activity_date", "day")}
#: Records of the ledger that are read at once; partitions that an error names.
_READERS, _NAMED = 16, 5
#: Partitions in one query: a database limits the number of values.
_PARTITIONS = 500


class WeblakeParquetIOManager(secret_config.SecretConfig, dg.ConfigurableIOManager):
    """Loads the landed data of weblake's assets, in the type that the input is annotated with.

    The type is `pyarrow.Table` (also without an annotation), `pyarrow.dataset.Dataset`, `pyarrow.RecordBatchReader`,
    `pandas.DataFrame`, `polars.DataFrame`, `polars.LazyFrame` or `weblake.Reading`. Several partitions come as one
    table, and path keys (load_date and the like) as columns of text.

    An input's metadata (`dg.AssetIn(metadata={...})`) may say

    - `table`: `documents`, `page_errors`, `usage_periods` or `activity`; by default the table of the upstream asset.
    - `columns`: the columns wanted; all by default.
    - `loads`: `latest` (default) for the newest load of the asset or of each partition, `all` for every load of it that
      has not been replaced or deleted, `table` for the whole table, including loads of other writers.
    - `version`: `latest` reads one row for each page, its newest version with a status below 400; `loads` is `all` then
      unless it is given.
    - `allow_missing_partitions`: True leaves out partitions that were never materialized.

    An asset's spec may say `weblake/table`, `weblake/to` (another root), `weblake/loads` and `weblake/version` for all
    its readers.

    ```python
    @dg.asset(ins={"docs": dg.AssetIn(metadata={"columns": ["url", "markdown"]})})
    def word_counts(docs: pl.LazyFrame) -> None: ...

    defs = dg.Definitions(
        assets=[docs, word_counts],
        resources={"io_manager": WeblakeParquetIOManager(root="s3://lake/web"), "weblake": WeblakeResource()},
    )
    ```
    """

    root: str = Field(description="The dataset's root: a local path, s3://, gs:// or abfs://.")

    def load_input(self, context: dg.InputContext) -> object:
        """Return the rows of the input, in the type that it is annotated with.

        Raises:
            dg.Failure: The type is not supported; a partition was never materialized; the root cannot be read. The
            message says what to do.
        """
        with _translate_errors():
            form = _form(context)
            options = self.options_of_storage()
            for _ in range(_SELECTIONS):
                rows = rows_of(context, str(secret_config.reveal(self.root)), options)
                reading = weblake.read(
                    rows.root,
                    rows.table,
                    columns=rows.columns,
                    loads=rows.loads,
                    keys=rows.keys,
                    storage_options=options,
                )
                value = form(reading.latest() if rows.latest else reading)
                if not replaced_since(rows, reading, options):
                    break
            else:
                raise StorageRefused(
                    f"Other runs have replaced loads of the input {_SELECTIONS} times while it was read.",
                    hint="Run the step again when they have ended.",
                )
        # Metadata of the input would be an observation that hides the asset's materializations.
        which = "" if rows.loads is None else f", loads {', '.join(rows.loads[:3]) or 'none'} of {len(rows.loads)}"
        context.log.info(f"Loaded the table {rows.table} of {reading.url}{which} as {type(value).__name__}.")
        return value

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Accept only None as the value of an output.

        Raises:
            dg.Failure: There is a value. A retry would return it again, so none is allowed.
        """
        if obj is not None:
            raise dg.Failure(
                f"WeblakeParquetIOManager only reads, and {_output_name(context)} is a {type(obj).__name__}. Give the "
                "asset another io_manager_key; or land with an asset of dagster_weblake, which returns no value.",
                allow_retries=False,
            )


def _form(context: dg.InputContext) -> Callable[[weblake.Reading], object]:
    kind = _annotation(context)
    if kind is Any or kind is object:
        return _FORMS["pyarrow", "Table"]
    # An annotation proves that its library is installed and imported; others need not be imported.
    for each in getattr(kind, "__mro__", ()):
        found = _FORMS.get((each.__module__.partition(".")[0], each.__qualname__))
        if found is not None:
            return found
    raise InvalidOption(
        f"The input {context.name if context.has_input_name else ''} is annotated with {kind}, "
        "which a table cannot be loaded as.",
        hint=f"Annotate it with {_NAMES}.",
    )


def _annotation(context: dg.InputContext) -> object:
    try:
        return context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        return Any


def _output_name(context: dg.OutputContext) -> str:
    return f"asset {context.asset_key.to_user_string()}" if context.has_asset_key else f"output {context.name}"


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate errors of weblake to failures of Dagster; only errors of the storage allow a retry."""
    try:
        with in_dagster_terms():
            yield
    except WeblakeError as error:
        again = isinstance(error, StorageRefused)
        raise dg.Failure(str(error), metadata=facts_of(error), allow_retries=again) from error


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows to read."""

    table: str
    root: str
    columns: tuple[str, ...] | None = None
    #: Load ids; None for all loads.
    loads: tuple[str, ...] | None = None
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Whether only the newest version of each page is read.
    latest: bool = False
    #: The files of the loads in this table.
    files: frozenset[str] = frozenset()


def rows_of(context: dg.InputContext, root: str, storage_options: Mapping[str, object] | None) -> Rows:
    """Return the rows of an input; `root` is their root unless the metadata of the asset names another one.

    Raises:
        AskPerson: A partition, or the asset, was never materialized; or its load is not in this root.
        InvalidOption: The metadata of the input or of the asset cannot be understood.
        StorageRefused: The ledger cannot be read.
    """
    asked = _asked(context)
    columns = asked.get("columns")
    if columns is not None and not (
        isinstance(columns, list | tuple) and all(isinstance(each, str) for each in columns)
    ):
        raise InvalidOption(
            "The input's metadata `columns` is not a list of texts.", hint="Give a list of column names."
        )
    version = _text(asked, "version", ALL)
    if version not in (LATEST, ALL):
        raise InvalidOption(f"The input's metadata says version: {version!r}.", hint=f"Say {LATEST}, or leave it out.")
    rows = Rows(
        _text(asked, "table", "documents"),
        _text(asked, "to", root),
        None if columns is None else tuple(columns),
        latest=version == LATEST,
    )
    which = _text(asked, "loads", ALL if rows.latest else LATEST)
    if which not in (LATEST, ALL, TABLE):
        raise InvalidOption(f"The input's metadata says loads: {which!r}.", hint=f"Say {LATEST}, {ALL} or {TABLE}.")
    partitions = list(context.asset_partition_keys) if context.has_asset_partitions else None
    if rows.table not in _LOAD_TABLES:
        if which != TABLE and partitions is not None:
            there = context.instance.get_materialized_partitions(context.asset_key)
            _check(context, asked, [partition for partition in partitions if partition not in there])
            partitions = [partition for partition in partitions if partition in there]
        return replace(rows, keys=_time_keys(context, rows.table, asked, partitions))
    if which == TABLE or not context.has_asset_key:
        return rows
    found = _loads(context, partitions, every=which == ALL)
    _check(context, asked, [partition for partition, loads in found.items() if loads is None])
    dataset = orchestration.open_dataset(rows.root, storage_options=storage_options)
    named = dict.fromkeys(load for loads in found.values() for load in loads or ())
    with ThreadPoolExecutor(_READERS) as readers:
        receipts = list(readers.map(lambda load: _current(dataset, load, context), named))
    paths = (file.path for receipt in receipts for file in receipt.files)
    return replace(
        rows,
        loads=tuple(receipt.load_id for receipt in receipts),
        files=frozenset(path for path in paths if path.startswith(f"{rows.table}/")),
    )


def replaced_since(rows: Rows, reading: weblake.Reading, storage_options: Mapping[str, object] | None) -> bool:
    """Return whether other runs have replaced loads since they were selected: their rows are absent, without an error.

    The ledger is read only if a file is absent.
    """
    if rows.files <= set(reading.files()):
        return False
    dataset = orchestration.open_dataset(rows.root, storage_options=storage_options)
    with ThreadPoolExecutor(_READERS) as readers:
        return any(readers.map(lambda load: orchestration.LoadState(dataset, load).is_replaced, rows.loads or ()))


def _time_keys(
    context: dg.InputContext, table: str, asked: Mapping[str, object], partitions: Sequence[str] | None
) -> dict[str, Sequence[str]]:
    """Return the path keys of months or days; other tables have none that a partition could stand for."""
    keys: dict[str, Sequence[str]] = {"report": [_text(asked, "report", "")]} if asked.get("report") else {}
    if partitions is not None and table in _TIME_KEYS:
        name, unit = _TIME_KEYS[table]
        keys[name] = [getattr(Part.of(context.asset_partitions_def, key), unit) for key in partitions]
    return keys


def _loads(
    context: dg.InputContext, partitions: Sequence[str] | None, *, every: bool
) -> dict[str | None, list[str] | None]:
    """Return the loads by partition, newest first: of the newest event that names one, or all.

    Without partitions the key is None. A partition for which no URL was ever due has none; without an event, None.
    """
    wanted: Sequence[str | None] = [None] if partitions is None else partitions
    found: dict[str | None, list[str] | None] = dict.fromkeys(wanted)
    for first in range(0, len(wanted), _PARTITIONS):
        some = wanted[first : first + _PARTITIONS]
        left = set(some)
        texts = None if partitions is None else [str(each) for each in some]
        for load, record in named_loads(context.instance, context.asset_key, texts):
            partition = None if partitions is None else record.partition_key
            found[partition] = loads = found[partition] or []
            if load and (every or partition in left):
                loads.append(load)
                left.discard(partition)
            if not left and not every:
                break
    return found


def _current(dataset: orchestration.Dataset, load_id: str, context: dg.InputContext) -> weblake.Receipt:
    """Return the receipt of the load, or of the load that has replaced it."""
    state = orchestration.LoadState(dataset, load_id).current
    landing = state.landed
    if landing is None:
        raise AskPerson(
            f"Load {state.load_id} of {_name(context)} has not landed in {dataset.url}.",
            hint="Its materialization says where it did (weblake/root): give the IO manager that root.",
        )
    return landing.receipt


def _check(context: dg.InputContext, asked: Mapping[str, object], missing: Sequence[str | None]) -> None:
    """Raise an error for missing partitions, unless the input allows them."""
    if not missing:
        return
    which = ""
    if missing != [None]:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        which = f" for {', '.join(str(partition) for partition in missing[:_NAMED])}{more}"
    text = f"{_name(context)} was never materialized{which} with a load of weblake."
    if which and asked.get("allow_missing_partitions") is True:
        context.log.warning(f"{text} Left out, as the input's allow_missing_partitions says.")
        return
    leave = ', or give the input metadata {"allow_missing_partitions": True} to go on without' if which else ""
    raise AskPerson(
        text,
        hint=f"Materialize it first{leave}. If it is landed outside Dagster, give its spec metadata "
        '{"weblake/loads": "table"}, which reads all of the table.',
    )


def _asked(context: dg.InputContext) -> dict[str, object]:
    """Return the input's metadata, completed by the asset's, whose names begin with `weblake/`."""
    above, own = context.upstream_output, context.definition_metadata or {}
    spec = {} if above is None else above.definition_metadata or {}
    asked = {name: spec[f"weblake/{name}"] for name in _OF_ASSET if f"weblake/{name}" in spec}
    asked |= {name: own[name] for name in _OF_INPUT if name in own}
    return {name: value.value if isinstance(value, dg.MetadataValue) else value for name, value in asked.items()}


def _text(asked: Mapping[str, object], name: str, default: str) -> str:
    value = asked.get(name) or default
    if not isinstance(value, str):
        raise InvalidOption(f"The metadata {name} is no text: {value!r}.", hint="Give a text.")
    return value


def _name(context: dg.InputContext) -> str:
    return f"Asset {context.asset_key.to_user_string()}"
