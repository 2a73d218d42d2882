"""Commits to an Iceberg catalog that took place although the catalog has refused them.

A client of a catalog may repeat a request whose reply was lost: botocore does so for Glue, and proxies for a REST
catalog. If the first request took place, the repetition is refused as if another program had committed first. pyiceberg
then deletes the manifests of the commit, and the table could not be read any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import CommitTableResponse, Table
    from pyiceberg.table.update import TableRequirement, TableUpdate


def keep_commits(catalog: Catalog) -> None:
    """Have a commit of this catalog succeed if the table has its snapshots, also if the catalog refuses it."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import CommitTableResponse
    from pyiceberg.table.update import AddSnapshotUpdate

    def commit_table(
        table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            return type(catalog).commit_table(catalog, table, requirements, updates)
        except CommitFailedException:
            snapshots = [each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)]
            if not snapshots:
                raise
            # An error of this look keeps pyiceberg from deleting the files: the outcome is unknown then.
            now = catalog.load_table(table.name())
            if any(now.metadata.snapshot_by_id(each) is None for each in snapshots):
                raise
            return CommitTableResponse.model_validate(
                {"metadata": now.metadata, "metadata-location": now.metadata_location}
            )

    catalog.commit_table = commit_table  # type: ignore[method-assign]
