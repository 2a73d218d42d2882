"""The commands `table add|sync|status|list|remove`: Delta Lake and Iceberg tables of a dataset."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

import weblake
from weblake import output
from weblake.cli.app import FAILED, Json, RootArgument

if TYPE_CHECKING:
    from weblake.tables import RegisteredTable

_Format = Annotated[str, typer.Argument(metavar="delta|iceberg")]
_OnlyFormat = Annotated[
    str | None, typer.Option("--format", metavar="delta|iceberg", help="Only the tables of this format.")
]
_OnlyName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Only this table: its identifier, or the dataset's table.")
]
# What concerns the user is an error: without a handler Python would print the warnings of pyiceberg to standard error.
logging.getLogger("pyiceberg").addHandler(logging.NullHandler())
#: Maximum number of load ids that a line names.
_MAX_NAMED = 5


def add(
    root: RootArgument,
    format: _Format,
    table: Annotated[
        str, typer.Option("--table", metavar="TABLE", help="The table of the dataset: documents, page_errors.")
    ] = "documents",
    catalog: Annotated[
        str | None, typer.Option("--catalog", metavar="NAME", help="Iceberg: a catalog in pyiceberg's configuration.")
    ] = None,
    identifier: Annotated[
        str | None, typer.Option("--identifier", metavar="NAME", help="Iceberg: the table, such as web.documents.")
    ] = None,
    location: Annotated[
        str | None,
        typer.Option(
            "--location", metavar="URL", help="The table's folder; for Delta Lake ROOT/delta/TABLE if absent."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Registers a table of the dataset, and creates it if it does not exist. `table sync` fills it."""
    added = weblake.tables.add(root, format, table=table, catalog=catalog, identifier=identifier, location=location)
    if as_json:
        output.show_json(_as_json(added))
    else:
        output.show_text(f"{added.format} {added.name}: registered. `weblake table sync {root}` fills it.")


def sync(
    root: RootArgument,
    format: _OnlyFormat = None,
    name: _OnlyName = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Look up all loads in the table, not only those since the last sync.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Adds new loads to the tables and removes replaced ones; each load exactly once."""
    done = weblake.tables.sync(root, format=format, name=name, everything=everything)
    if as_json:
        output.show_json({"tables": [each.to_dict() for each in done]})
        return
    for each in done:
        output.show_text(
            f"{each.format} {each.name}: {len(each.added):,} loads added ({each.rows:,} rows), "
            f"{len(each.removed):,} taken out, version {each.version}"
        )


def status(root: RootArgument, format: _OnlyFormat = None, name: _OnlyName = None, as_json: Json = False) -> None:
    """Compares the tables with the dataset, load by load; exits with 1 if they differ. Changes nothing."""
    found = weblake.tables.status(root, format=format, name=name)
    if as_json:
        output.show_json({"tables": [each.to_dict() for each in found]})
    for each in () if as_json else found:
        title = f"{each.format} {each.name}"
        if each.in_step:
            output.show_text(f"{title}: {each.loads:,} loads, {each.rows:,} rows, version {each.version}: up to date")
        for what, loads in (
            ("not added yet", each.missing),
            ("replaced, and still in the table", each.retired),
            ("in the table with more rows than in the dataset", each.different),
            ("in the table, and not in the ledger", each.unknown),
            ("with rows deleted from the table by another program, which a sync leaves as it is", each.deleted),
            ("replaced, and brought back by another program, which a sync leaves as it is", each.restored),
        ):
            if loads:
                named = ", ".join(loads[:_MAX_NAMED]) + (", …" if len(loads) > _MAX_NAMED else "")
                output.show_text(f"{title}: {len(loads):,} loads {what}: {named}")
    if not all(each.in_step for each in found):
        raise typer.Exit(FAILED)


def list_(root: RootArgument, as_json: Json = False) -> None:
    """Lists the tables of the dataset."""
    found = weblake.tables.list_tables(root)
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
            help="Its identifier or location, or the dataset's table. Default: the only table of this format.",
        ),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option("--catalog", metavar="NAME", help="Iceberg: the catalog, if several have a table of this name."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Removes a table from the dataset's list. The table itself is kept, and is not synced any more."""
    removed = weblake.tables.remove(root, format, name, catalog=catalog)
    if as_json:
        output.show_json(_as_json(removed))
    else:
        output.show_text(f"{removed.format} {removed.name}: removed from {root}. The table itself is unchanged.")


def _as_json(table: RegisteredTable) -> dict[str, object]:
    return {
        "format": table.format,
        "table": table.table,
        "catalog": table.catalog,
        "identifier": table.identifier,
        "location": table.location,
        "registered_at": table.at,
    }
