"""Tests of the package's entry point and of its two short introductions, whose code must load unchanged."""

import re
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import dagster as dg
import pytest

import dagster_weblake

ROOT = Path(__file__).parents[2]


@pytest.mark.smoke
def test_the_registry_entry_point_loads() -> None:
    (point,) = [p for p in entry_points(group="dagster_dg_cli.registry_modules") if p.name == "dagster_weblake"]
    assert point.load() is dagster_weblake


def test_all_public_names_exist() -> None:
    assert [name for name in dagster_weblake.__all__ if not hasattr(dagster_weblake, name)] == []


@pytest.mark.smoke
@pytest.mark.parametrize("readme", ["README.md", "dagster_resources/README.md"])
def test_the_examples_of_the_readmes_load(readme: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / readme).read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "dagster_weblake" in block]
    names: dict[str, object] = {}
    exec(compile(code, readme, "exec"), names)
    defs = names["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    assert {"docs", "pages", "pages_job"} <= {key.to_user_string() for key in defs.resolve_all_asset_keys()}


def test_the_source_folders_of_the_integrations_are_not_packages() -> None:
    for folder in ("airflow_provider", "dagster_resources"):
        found = find_spec(folder)
        assert found is None or found.origin is None  # a namespace at most: never write such an import
