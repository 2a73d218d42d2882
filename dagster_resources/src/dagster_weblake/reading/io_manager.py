"""The IO manager that passes landed data to assets downstream, as Arrow, pandas or Polars, eagerly or lazily.

It only reads: the assets of this package land by themselves and return no value. `input_rows` selects the rows of an
input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from pydantic import Field

import weblake
from dagster_weblake import secret_config
from dagster_weblake.reading.input_rows import Rows, replaced_since, rows_of
from dagster_weblake.remedies import in_dagster_terms
from weblake.errors import InvalidOption, StorageRefused, WeblakeError

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


class WeblakeParquetIOManager(dg.ConfigurableIOManager):
    """Loads the landed data of weblake's assets, in the type that the input is annotated with.

    The type is `pyarrow.Table` (also without an annotation), `pyarrow.dataset.Dataset`, `pyarrow.RecordBatchReader`,
    `pandas.DataFrame`, `polars.DataFrame`, `polars.LazyFrame` or `weblake.Reading`. Several partitions come as one
    table, and path keys (load_date and the like) as columns of text.

    An input's metadata (`dg.AssetIn(metadata={...})`) may say

    - `table`: `documents`, `page_errors`, `usage_periods` or `activity`; by default the table of the upstream asset.
    - `columns`: the columns wanted; all by default.
    - `loads`: `latest` (default) for the newest load of the asset or of each partition, `all` for every load of it that
      has not been replaced or deleted, `table` for the whole table, including loads of other writers.
    - `allow_missing_partitions`: True leaves out partitions that were never materialized.

    An asset's spec may say `weblake/table`, `weblake/to` (another root) and `weblake/loads` for all its readers.

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
    storage_options: dict[str, Any] | None = Field(
        default=None,
        repr=False,
        description="Options for the file system of a storage URL, in the form of fsspec. Default: the credentials of "
        "the machine's environment or role.",
    )

    def __init__(self, **data: object) -> None:
        super().__init__(**secret_config.hidden(data))

    @classmethod
    def __pydantic_init_subclass__(cls, **more: object) -> None:
        super().__pydantic_init_subclass__(**more)
        secret_config.hide_defaults(cls)

    def load_input(self, context: dg.InputContext) -> object:
        """Return the rows of the input, in the type that it is annotated with.

        Raises:
            dg.Failure: The type is not supported; a partition was never materialized; the root cannot be read. The
            message says what to do.
        """
        with _translate_errors():
            form = _form(context)
            options: Any = secret_config.resolve(self.storage_options)
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
                value = form(reading)
                if not replaced_since(rows, reading, options):
                    break
            else:
                raise StorageRefused(
                    f"Other runs have replaced loads of the input {_SELECTIONS} times while it was read.",
                    hint="Run the step again when they have ended.",
                )
        _tell(context, rows, reading, value)
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


def _tell(context: dg.InputContext, rows: Rows, reading: weblake.Reading, value: object) -> None:
    """Log what was loaded. Metadata of the input would be an observation that hides the asset's materializations."""
    count = rows.count if rows.count is not None else _rows(value)
    what = f"the table {rows.table} of {reading.url}"
    if rows.loads is not None:
        what += f", {', '.join(rows.loads[:3]) or 'no load'}{' and more' if len(rows.loads) > 3 else ''}"
    if rows.keys:
        keys = {name: list(values) for name, values in rows.keys.items()}
        what += f", {keys}"
    context.log.info(f"Loaded {what}{'' if count is None else f': {count} rows'} as {type(value).__name__}.")


def _rows(value: object) -> int | None:
    """Return the number of rows of a value that has them in memory."""
    shape = getattr(value, "shape", None)
    return shape[0] if isinstance(shape, tuple) and isinstance(shape[0], int) else None


def _output_name(context: dg.OutputContext) -> str:
    return f"asset {context.asset_key.to_user_string()}" if context.has_asset_key else f"output {context.name}"


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Translate errors of weblake to failures of Dagster; only errors of the storage allow a retry."""
    try:
        with in_dagster_terms():
            yield
    except WeblakeError as error:
        raise dg.Failure(
            str(error),
            metadata={"weblake/error": type(error).__name__, "weblake/what_to_do": error.hint},
            allow_retries=isinstance(error, StorageRefused),
        ) from error
