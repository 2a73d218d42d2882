"""The commands `table add|sync|status|list|remove`: Delta Lake and Iceberg tables of a dataset."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from weblake import output
from weblake.cli.app import FAILED, Json, RootArgument

if TYPE_CHECKING:
    from weblake.dataset.registered_tables import RegisteredTable
    from weblake.tables.formats import TableResult

_Format = Annotated[str, typer.Argument(metavar="delta|iceberg")]
_OnlyFormat = Annotated[
    str | None, typer.Option("--format", metavar="delta|iceberg", help="Only the tables of this format.")
]
_OnlyName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Only this table: its identifier, or the dataset's table.")
]
_TABLES = ("documents", "page_errors", "usage_periods", "activity")
# What concerns the user is an error: without a handler Python would print the warnings of pyiceberg to standard error.
logging.getLogger("pyiceberg").addHandler(logging.NullHandler())
#: Maximum number of load ids that a line names.
_MAX_NAMED = 5


def add(
    root: RootArgument,
    format: _Format,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help=f"The table of the dataset: {', '.join(_TABLES)}.")
    ] = "documents",
    catalog: Annotated[
        str | None, typer.Option("--catalog", metavar="NAME", help="Iceberg: a catalog in pyiceberg's configuration.")
    ] = None,
    identifier: Annotated[
        str | None, typer.Option("--identifier", metavar="NAME", help="Iceberg: the table, such as web.documents.")
    ] = None,
    keep_days: Annotated[
        float | None,
        typer.Option("--keep-days", metavar="DAYS", help="Keep the files of replaced loads for this many days (7)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Registers a table of the dataset, and creates it if it does not exist. `table sync` fills it."""
    from weblake import tables

    added = tables.add(root, format, table=table, catalog=catalog, identifier=identifier, keep_days=keep_days)
    if as_json:
        output.show_json(_as_json(added))
    else:
        output.show_text(f"{added.format} {added.name}: registered. `weblake table sync {root}` fills it.")


def sync(
    root: RootArgument,
    format: _OnlyFormat = None,
    name: _OnlyName = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Check all loads and files, not only those since the last sync.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Adds new loads to the tables and removes replaced ones; each load and period exactly once."""
    from weblake import tables

    done = tables.sync(root, format=format, name=name, everything=everything)
    if as_json:
        output.show_json({"tables": [each.to_dict() for each in done]})
        return
    for each in done:
        output.show_text(
            f"{each.format} {each.name}: {len(each.added):,} {_unit(each)} added ({each.rows:,} rows), "
            f"{len(each.removed):,} taken out, version {each.version}"
        )


def status(root: RootArgument, format: _OnlyFormat = None, name: _OnlyName = None, as_json: Json = False) -> None:
    """Compares the tables with the dataset, load by load; exits with 1 if they differ. Changes nothing."""
    from weblake import tables

    found = tables.status(root, format=format, name=name)
    if as_json:
        output.show_json({"tables": [each.to_dict() for each in found]})
    for each in () if as_json else found:
        title, unit = f"{each.format} {each.name}", _unit(each)
        if each.in_step:
            output.show_text(f"{title}: {each.loads:,} {unit}, {each.rows:,} rows, version {each.version}: up to date")
            continue
        for what, loads in (
            ("not added yet", each.missing),
            ("deleted from the table by another program", each.deleted),
            ("replaced, and still in the table", each.retired),
            ("replaced, and brought back into the table by another program", each.restored),
            (f"in the table with another {'content' if unit == 'files' else 'number of rows'}", each.different),
            (f"in the table, and not in the {'dataset' if unit == 'files' else 'ledger'}", each.unknown),
        ):
            if loads:
                named = ", ".join(loads[:_MAX_NAMED]) + (", …" if len(loads) > _MAX_NAMED else "")
                output.show_text(f"{title}: {len(loads):,} {unit} {what}: {named}")
        if each.deleted or each.restored:
            output.show_text(
                f"{title}: a sync does not undo what another program has changed. Restore the version of the table "
                "before the change, or make the table anew (docs/tables.md)."
            )
    if not all(each.in_step for each in found):
        raise typer.Exit(FAILED)


def list_(root: RootArgument, as_json: Json = False) -> None:
    """Lists the tables of the dataset."""
    from weblake import tables

    found = tables.list_tables(root)
    if as_json:
        output.show_json({"tables": [_as_json(each) for each in found]})
        return
    rows = [(each.format, each.table, each.catalog or "", each.identifier or "", each.at[:16]) for each in found]
    output.show_table(f"Tables of {root}", ("format", "table", "catalog", "identifier", "registered"), rows)


def remove(
    root: RootArgument,
    format: _Format,
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Its identifier; for Delta Lake, the dataset's table. Default: the only table of this format.",
        ),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", metavar="NAME", help="Iceberg: the catalog, if several have a table of this name."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Removes a table from the dataset's list. The table itself is kept, and is not synced any more."""
    from weblake import tables

    removed = tables.remove(root, format, name, catalog=catalog)
    if as_json:
        output.show_json(_as_json(removed))
    else:
        output.show_text(f"{removed.format} {removed.name}: removed from {root}. The table itself is unchanged.")


def _unit(result: TableResult) -> str:
    """Return what a table consists of: the files of usage_periods and activity, or loads."""
    return "files" if result.table in ("usage_periods", "activity") else "loads"


def _as_json(table: RegisteredTable) -> dict[str, object]:
    return {
        "format": table.format,
        "table": table.table,
        "catalog": table.catalog,
        "identifier": table.identifier,
        "keep_days": table.keep_days,
        "registered_at": table.at,
    }
