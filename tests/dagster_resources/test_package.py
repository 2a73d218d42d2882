"""Dagster's component registry finds the package by its entry point."""

from importlib.metadata import entry_points
from importlib.util import find_spec

import dagster


def test_the_registry_entry_point_loads() -> None:
    (point,) = [p for p in entry_points(group="dagster_dg_cli.registry_modules") if p.name == "dagster_weblake"]
    assert point.load().__name__ == "dagster_weblake"
    assert dagster.__version__ >= "1.13"


def test_the_folders_of_the_guests_are_no_packages() -> None:
    for folder in ("airflow_provider", "dagster_resources"):
        found = find_spec(folder)
        assert found is None or found.origin is None  # a namespace at most: never write such an import
