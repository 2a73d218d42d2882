"""Runs of checks in process: an instance in memory and a resource that has only a dataset."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from weblake import orchestration


class Lake(dg.ConfigurableResource):
    """The part of WeblakeResource that the checks use."""

    root: str

    def dataset(self, to: str | None = None) -> orchestration.Dataset:
        return orchestration.open_dataset(to or self.root)


class Lab:
    """An instance in memory, and what the last run of checks said."""

    def __init__(self, root: str, instance: dg.DagsterInstance) -> None:
        self.root = root
        self.instance = instance

    def run(self, *assets: dg.AssetsDefinition, partition: str | None = None) -> dict[str, dg.AssetCheckEvaluation]:
        """Materializes and checks all of it in one run."""
        done = dg.materialize(
            assets, instance=self.instance, resources={"weblake": Lake(root=self.root)}, partition_key=partition
        )
        return {each.check_name: each for each in done.get_asset_check_evaluations()}

    def check(
        self, asset: dg.AssetsDefinition, checks: dg.AssetChecksDefinition, *names: str
    ) -> dict[str, dg.AssetCheckEvaluation]:
        """Runs the checks alone."""
        wanted = dg.AssetSelection.checks(*(key for key in checks.check_keys if not names or key.name in names))
        done = dg.materialize(
            [asset, checks], instance=self.instance, resources={"weblake": Lake(root=self.root)}, selection=wanted
        )
        assert not done.get_asset_materialization_events()
        return {each.check_name: each for each in done.get_asset_check_evaluations()}


@contextmanager
def open_lab(root: str) -> Iterator[Lab]:
    """Yield a lab; at the end its instance removes its temporary directory."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield Lab(root, instance)


def passed(found: dict[str, dg.AssetCheckEvaluation]) -> dict[str, bool]:
    return {name: each.passed for name, each in found.items()}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])
