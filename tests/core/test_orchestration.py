"""Tests of the door for integrations: it is all that they use of the core, and it loads no Arrow."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from weblake import orchestration

REPOSITORY = Path(__file__).parents[2]
INTEGRATIONS = ("airflow_provider/src", "dagster_resources/src")
#: What lies behind a Dataset.
BEHIND = {"storage", "ledger", "layout", "slots"}


def reached(source: str) -> list[str]:
    """Return the expressions that reach behind a dataset; an import of a module is none."""
    tree = ast.parse(source)
    return [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in BEHIND]


@pytest.mark.parametrize("folder", INTEGRATIONS)
def test_no_integration_reaches_behind_a_dataset(folder: str) -> None:
    files = sorted((REPOSITORY / folder).rglob("*.py"))
    assert len(files) > 20
    assert {str(file): found for file in files if (found := reached(file.read_text(encoding="utf-8")))} == {}


def test_reaching_would_be_noticed() -> None:
    assert reached("dataset.ledger.job(load_id)") == ["dataset.ledger"]


def test_importing_the_door_loads_neither_arrow_nor_a_client() -> None:
    program = "import sys, weblake.orchestration; print(sorted({'pyarrow', 'httpx', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_each_function_of_the_door_is_documented() -> None:
    public = {name: value for name, value in vars(orchestration).items() if not name.startswith("_")}
    mine = [value for value in public.values() if getattr(value, "__module__", "").startswith("weblake")]
    assert len(mine) > 40
    assert [value for value in mine if not value.__doc__] == []
