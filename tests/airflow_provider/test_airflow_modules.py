"""Tests that the modules of the package import on every Python and with every dependency that it declares."""

from pathlib import Path

import pytest
from module_imports import import_all

EXAMPLES = Path(__file__).parents[2] / "airflow_provider/src/airflow_provider_weblake/example_dags"


@pytest.mark.smoke
def test_every_example_dag_loads(airflow_db: None) -> None:
    from airflow_provider_weblake.features import dag_bag_in_database

    bag = dag_bag_in_database(str(EXAMPLES))
    assert bag.import_errors == {}
    assert len(bag.dags) >= len([*EXAMPLES.glob("[!_]*.py")])


@pytest.mark.system
@pytest.mark.smoke
def test_every_module_imports() -> None:
    assert import_all("airflow_provider_weblake") > 15
